//! A domain of the real library. `unsafe` stands in the small modules below; this one puts them
//! together, and sees to it that nothing is freed while the card may touch it.

mod address;
mod contexts;
mod info;
mod links;
mod object;
mod peers;
mod region;

use std::collections::HashMap;
use std::mem::ManuallyDrop;
use std::os::fd::AsFd;
use std::ptr::null_mut;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use libc::c_int;
use libfabric_sys::abi::{fi_cq_data_entry, fid_domain, fid_fabric};
use libfabric_sys::constants::{FI_EAVAIL, FI_REMOTE_CQ_DATA};
use libfabric_sys::{Libfabric, Version, keeping_handlers, load};
use rustix::event::{PollFd, PollFlags};

use self::contexts::Contexts;
use self::info::Info;
use self::links::{Call, Failed, Links, REPORTS};
use self::object::Object;
use self::peers::Peers;
use self::region::{Region, Wanted};
use super::plan::Exposure;
use super::seam::{Backing, Fabric, Found, OperationFault, Post, PostFault, Registering};
use super::{FabricConfig, FabricFacts, FabricPeer, FenceError, MemoryError, OpenError, PeerError};
use crate::Memory;
use crate::bell::{Bell, sleep};

/// Reports that may wait beside those of this side's own operations.
const SPARE_REPORTS: usize = 4096;

/// Calls of one poll.
const ROUNDS: usize = 4;

/// From here on memory can be registered by a descriptor.
const DMABUF_SINCE: Version = Version::new(1, 20);

/// One domain, opened by the thread that uses it.
pub(super) struct Native {
    links: Option<Links>,
    /// Why the endpoint was not closed. It is gone or it is not: nothing is called any more that
    /// might use it, and nothing is freed.
    lost: Option<String>,
    contexts: Contexts<Rc<Region>>,
    memories: HashMap<u64, Parts>,
    /// Of registrations that are over, until the endpoint is closed, where an operation that a
    /// peer has begun may still touch it.
    closed: Vec<Arc<dyn Memory>>,
    peers: Peers,
    facts: FabricFacts,
    address: Vec<u8>,
    reports: usize,
    device_memory: bool,
    base: ManuallyDrop<Base>,
    library: &'static Libfabric,
}

/// What all else is opened with; closed in this order.
struct Base {
    domain: Object<fid_domain>,
    fabric: Object<fid_fabric>,
    info: Info,
}

/// A registered memory.
struct Parts {
    grain: u64,
    regions: Vec<Rc<Region>>,
}

impl Native {
    pub(super) fn open(config: &FabricConfig) -> Result<Self, OpenError> {
        let library = load(config.library.as_deref())?;
        let info = Info::find(library, config)?;
        let mut facts = info.facts(config);
        let refused = |(what, code): Failed| OpenError::Refused { what, why: library.words(code) };
        // Providers set handlers when something of theirs is opened.
        let fabric = keeping_handlers(|| open_fabric(library, &info)).map_err(refused)?;
        let domain = keeping_handlers(|| open_domain(&fabric, &info)).map_err(refused)?;
        let reports = facts.operations + info.received().min(SPARE_REPORTS) + SPARE_REPORTS;
        let links = keeping_handlers(|| Links::open(&domain, &info, reports, config.wait));
        let links = links.map_err(refused)?;
        facts.wakes = links.wakes().is_some();
        let address = links.address().map_err(refused)?;
        tracing::info!(?facts, "a fabric was opened");
        Ok(Self {
            links: Some(links),
            lost: None,
            contexts: Contexts::new(facts.operations),
            memories: HashMap::new(),
            closed: Vec::new(),
            peers: Peers::default(),
            facts,
            address,
            reports,
            device_memory: config.device_memory,
            base: ManuallyDrop::new(Base { domain, fabric, info }),
            library,
        })
    }

    fn fault(&self, code: c_int) -> OperationFault {
        OperationFault { code: code.saturating_abs(), why: self.library.words(code) }
    }

    fn region(&self, post: &Post) -> Option<(Rc<Region>, u64)> {
        let segment = &post.segment;
        let parts = self.memories.get(&segment.memory)?;
        let part = usize::try_from(segment.offset / parts.grain).ok()?;
        Some((Rc::clone(parts.regions.get(part)?), segment.offset % parts.grain))
    }

    /// What cannot be posted at all has no place in the card.
    fn try_post(&mut self, post: &Post) -> Option<isize> {
        let (region, offset) = self.region(post)?;
        let local = region.slice(offset, post.segment.len)?;
        let peer = self.peers.get(post.peer)?;
        let links = self.links.as_ref()?;
        let context = self.contexts.enter(post.token, Rc::clone(&region))?;
        let (action, address, key) = (post.action, post.segment.address, post.segment.key);
        let call = Call { action, region: &region, local, peer, address, key, context };
        // SAFETY: the contexts keep the region and their rooms until the operation is reported or
        // the endpoint is closed; the slice is the region's.
        let code = unsafe { links.post(&call) };
        if code != 0 {
            self.contexts.leave(context);
        }
        Some(code)
    }

    fn found(&mut self, report: &fi_cq_data_entry) -> Option<Found> {
        if let Some(token) = self.contexts.leave(report.op_context) {
            return Some(Found::Ended(token, Ok(())));
        }
        let [.., a, b, c, d] = report.data.to_be_bytes();
        let word = u32::from_be_bytes([a, b, c, d]);
        (report.flags & FI_REMOTE_CQ_DATA != 0).then_some(Found::Word(word))
    }

    fn found_error(&mut self) -> Option<Found> {
        let report = self.links.as_ref()?.read_error()?;
        let fault = self.fault(report.err);
        let token = self.contexts.leave(report.op_context);
        if token.is_none() {
            tracing::debug!(?fault, "a failure that belongs to no operation");
        }
        Some(Found::Ended(token?, Err(fault)))
    }

    fn close_links(&mut self) -> Result<(), FenceError> {
        if let Some(Err(code)) = self.links.take().map(Links::close) {
            self.lost = Some(self.library.words(code));
        }
        if let Some(why) = self.lost.clone() {
            return Err(FenceError::StillOpen { why });
        }
        self.contexts.clear();
        self.closed.clear();
        Ok(())
    }

    fn open_links(&mut self) -> Result<(), Failed> {
        let wait = self.facts.wakes;
        let links = keeping_handlers(|| {
            Links::open(&self.base.domain, &self.base.info, self.reports, wait)
        })?;
        self.address = links.address()?;
        self.facts.wakes = links.wakes().is_some();
        self.links = Some(links);
        Ok(())
    }

    fn regions(&self, wanted: &Registering) -> Result<Vec<Rc<Region>>, MemoryError> {
        let (device, dmabuf) = match &wanted.backing {
            Backing::Host => (None, None),
            Backing::Cuda { .. } if !self.device_memory => return Err(MemoryError::NoDevices),
            Backing::Cuda { ordinal, dmabuf } => (Some(*ordinal), dmabuf.as_ref()),
        };
        let dmabuf = dmabuf.filter(|_| self.facts.version >= DMABUF_SINCE).map(AsFd::as_fd);
        let key_bytes = (!self.facts.modes.card_keys).then(|| self.base.info.key_bytes());
        let (memory, rights, grain) = (&wanted.memory, wanted.rights, wanted.grain);
        let all = memory.len() as u64;
        let parts = (0..all.div_ceil(grain)).map(|part| {
            let offset = part * grain;
            let len = grain.min(all - offset);
            let wanted = Wanted { memory, offset, len, rights, key_bytes, device, dmabuf };
            let refused = |code| MemoryError::Refused { bytes: len, why: self.library.words(code) };
            Region::new(&self.base.domain, &wanted).map(Rc::new).map_err(refused)
        });
        parts.collect()
    }
}

impl Fabric for Native {
    fn facts(&self) -> &FabricFacts {
        &self.facts
    }

    fn address(&self) -> &[u8] {
        &self.address
    }

    fn insert(&mut self, peer: FabricPeer, address: &[u8]) -> Result<(), PeerError> {
        address::check(self.base.info.address_format(), &self.address, address)?;
        let links = self.links.as_ref().ok_or(PeerError::Gone)?;
        let refused = |code| PeerError::Refused { why: self.library.words(code) };
        self.peers.insert(peer, address, || links.insert(address).map_err(refused))
    }

    fn remove(&mut self, peer: FabricPeer) {
        if let (Some(links), Some(peer)) = (&self.links, self.peers.remove(peer)) {
            let code = links.remove(peer);
            if code != 0 {
                tracing::debug!(code, "a peer cannot be forgotten");
            }
        }
    }

    fn register(&mut self, memory: Registering) -> Result<Vec<Exposure>, MemoryError> {
        let regions = self.regions(&memory)?;
        let by_address = self.facts.modes.virtual_addresses;
        let base = |region: &Region| if by_address { region.address() } else { 0 };
        let exposures =
            regions.iter().map(|region| Exposure { key: region.key(), base: base(region) });
        let exposures = exposures.collect();
        self.memories.insert(memory.id, Parts { grain: memory.grain, regions });
        Ok(exposures)
    }

    fn deregister(&mut self, id: u64) -> Result<(), MemoryError> {
        let regions = self.memories.remove(&id).map_or_else(Vec::new, |parts| parts.regions);
        let mut result = Ok(());
        // One that an operation of this side uses ends with it.
        for region in regions.into_iter().filter_map(Rc::into_inner) {
            match region.close() {
                Ok(memory) if self.lost.is_some() || !self.facts.keys_end_at_once() => {
                    self.closed.push(memory);
                }
                Ok(_) => {}
                Err(code) => {
                    let why = self.library.words(code);
                    result = result.and(Err(MemoryError::StillOpen { why }));
                }
            }
        }
        result
    }

    fn post(&mut self, post: &Post) -> Result<(), PostFault> {
        match self.try_post(post) {
            Some(0) => Ok(()),
            Some(code) if code == -(libc::EAGAIN as isize) => Err(PostFault::Full),
            Some(code) => {
                let code = c_int::try_from(code).unwrap_or(-libc::EIO);
                Err(PostFault::Refused(self.fault(code)))
            }
            None => Err(PostFault::Refused(self.fault(-libc::EINVAL))),
        }
    }

    fn poll(&mut self, found: &mut Vec<Found>) -> Result<(), String> {
        let empty =
            fi_cq_data_entry { op_context: null_mut(), flags: 0, len: 0, buf: null_mut(), data: 0 };
        let mut reports = [empty; REPORTS];
        for _ in 0..ROUNDS {
            let Some(links) = &self.links else { return Ok(()) };
            let got = links.read(&mut reports);
            let Ok(count) = usize::try_from(got) else {
                match c_int::try_from(-got) {
                    Ok(libc::EAGAIN) => return Ok(()),
                    Ok(FI_EAVAIL) => found.extend(self.found_error()),
                    Ok(code) => return Err(self.library.words(code)),
                    Err(_) => return Err(self.library.words(libc::EIO)),
                }
                continue;
            };
            found.extend(reports[..count].iter().filter_map(|report| self.found(report)));
            if count < REPORTS {
                return Ok(());
            }
        }
        Ok(())
    }

    fn sleep(&mut self, bell: &Bell, at_most: Duration) -> bool {
        let bell = PollFd::from_borrowed_fd(bell.as_fd(), PollFlags::IN);
        // Where nothing of a card is waited for, the bell stands in twice.
        let (mut card, mut has_card) = (bell.clone(), false);
        if self.facts.wakes
            && let Some(links) = &self.links
            && let Some(wakes) = links.wakes()
        {
            match links.may_wait(&self.base.fabric) {
                Ok(true) => {
                    (card, has_card) = (PollFd::from_borrowed_fd(wakes, PollFlags::IN), true);
                }
                Ok(false) => return true,
                Err(code) => {
                    tracing::warn!(code, "the card does not wake the thread, which naps");
                    self.facts.wakes = false;
                    return true;
                }
            }
        }
        let mut fds = [bell, card];
        if sleep(&mut fds, Some(at_most)).is_err() {
            std::thread::sleep(at_most);
        }
        has_card && !fds[1].revents().is_empty()
    }

    fn reopen(&mut self) -> Result<(), FenceError> {
        self.close_links()?;
        self.peers.clear();
        let library = self.library;
        self.open_links().map_err(|(_, code)| FenceError::NotReopened { why: library.words(code) })
    }
}

impl Drop for Native {
    /// The endpoint goes first, then the registrations, and then the rest.
    fn drop(&mut self) {
        if let Err(why) = self.close_links() {
            // The card may still write: what it may write to, and by what, is never freed.
            tracing::error!(%why, "memory is kept for good");
            std::mem::forget(std::mem::replace(&mut self.contexts, Contexts::new(0)));
            std::mem::forget(std::mem::take(&mut self.memories));
            std::mem::forget(std::mem::take(&mut self.closed));
            return;
        }
        self.memories.clear();
        // SAFETY: nobody uses it again, and what was opened with it is closed.
        unsafe { ManuallyDrop::drop(&mut self.base) };
    }
}

fn open_fabric(library: &Libfabric, info: &Info) -> Result<Object<fid_fabric>, Failed> {
    let attributes = std::ptr::from_ref(info.fabric()).cast_mut();
    // SAFETY: the attributes are the library's own and outlive the call, which reads them.
    let fabric = unsafe { Object::open(|fabric| (library.fabric)(attributes, fabric, null_mut())) };
    fabric.map_err(|code| ("open the fabric", code))
}

fn open_domain(fabric: &Object<fid_fabric>, info: &Info) -> Result<Object<fid_domain>, Failed> {
    // SAFETY: the fabric is open, and the information is what it was opened by.
    let domain = unsafe {
        let ops = (*fabric.ptr()).ops;
        Object::open(|domain| ((*ops).domain)(fabric.ptr(), info.ptr(), domain, null_mut()))
    };
    domain.map_err(|code| ("open the domain", code))
}
