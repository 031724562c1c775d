//! A domain of the real library. `unsafe` stands in the small modules below; this one puts them
//! together, and sees to it that nothing is freed while the card may touch it.

mod address;
mod contexts;
mod info;
mod links;
mod object;
mod region;

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::ptr::null_mut;
use std::rc::Rc;
use std::time::Duration;

use libc::c_int;
use libfabric_sys::abi::{fi_addr_t, fi_cq_data_entry, fid_domain, fid_fabric};
use libfabric_sys::constants::{FI_EAVAIL, FI_REMOTE_CQ_DATA};
use libfabric_sys::{Libfabric, Version, load};
use rustix::event::{PollFd, PollFlags};

use self::contexts::Contexts;
use self::info::Info;
use self::links::{Call, Failed, Links, REPORTS};
use self::object::Object;
use self::region::{Region, Wanted};
use super::plan::Exposure;
use super::seam::{Backing, Fabric, Found, OperationFault, Post, PostFault, Registering};
use super::{FabricConfig, FabricFacts, FabricPeer, FenceError, MemoryError, OpenError, PeerError};
use crate::bell::{Bell, sleep};

/// Reports that may wait beside those of this side's own operations.
const SPARE_REPORTS: usize = 4096;

/// Calls of one poll.
const ROUNDS: usize = 4;

/// From here on memory can be registered by a descriptor.
const DMABUF_SINCE: Version = Version::new(1, 20);

/// One domain, opened by the thread that uses it. What is closed last stands last.
pub(super) struct Native {
    links: Option<Links>,
    contexts: Contexts,
    memories: HashMap<u64, Parts>,
    peers: HashMap<FabricPeer, fi_addr_t>,
    facts: FabricFacts,
    address: Vec<u8>,
    reports: usize,
    device_memory: bool,
    domain: Object<fid_domain>,
    fabric: Object<fid_fabric>,
    info: Info,
    library: &'static Libfabric,
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
        let fabric = open_fabric(library, &info).map_err(refused)?;
        let domain = open_domain(&fabric, &info).map_err(refused)?;
        let reports = facts.operations + info.received().min(SPARE_REPORTS) + SPARE_REPORTS;
        let links = Links::open(&domain, &info, reports, config.wait).map_err(refused)?;
        facts.wakes = links.wakes().is_some();
        let address = links.address().map_err(refused)?;
        tracing::info!(?facts, "a fabric was opened");
        Ok(Self {
            links: Some(links),
            contexts: Contexts::new(facts.operations),
            memories: HashMap::new(),
            peers: HashMap::new(),
            facts,
            address,
            reports,
            device_memory: config.device_memory,
            domain,
            fabric,
            info,
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
        let peer = *self.peers.get(&post.peer)?;
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
        if let Some(links) = self.links.take()
            && let Err((links, code)) = links.close()
        {
            self.links = Some(links);
            return Err(FenceError::StillOpen { why: self.library.words(code) });
        }
        self.contexts.clear();
        Ok(())
    }

    fn open_links(&mut self) -> Result<(), Failed> {
        let links = Links::open(&self.domain, &self.info, self.reports, self.facts.wakes)?;
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
        let key_bytes = (!self.facts.modes.card_keys).then(|| self.info.key_bytes());
        let (memory, rights, grain) = (&wanted.memory, wanted.rights, wanted.grain);
        let all = memory.len() as u64;
        let parts = (0..all.div_ceil(grain)).map(|part| {
            let offset = part * grain;
            let len = grain.min(all - offset);
            let wanted = Wanted { memory, offset, len, rights, key_bytes, device, dmabuf };
            let refused = |code| MemoryError::Refused { bytes: len, why: self.library.words(code) };
            Region::new(&self.domain, &wanted).map(Rc::new).map_err(refused)
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
        address::check(self.info.address_format(), &self.address, address)?;
        let links = self.links.as_ref().ok_or(PeerError::Gone)?;
        let refused = |code| PeerError::Refused { why: self.library.words(code) };
        self.peers.insert(peer, links.insert(address).map_err(refused)?);
        Ok(())
    }

    fn remove(&mut self, peer: FabricPeer) {
        if let (Some(links), Some(peer)) = (&self.links, self.peers.remove(&peer)) {
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

    fn deregister(&mut self, id: u64) {
        self.memories.remove(&id);
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
        if let Some(links) = &self.links
            && let Some(wakes) = links.wakes()
        {
            if !links.may_wait(&self.fabric) {
                return true;
            }
            (card, has_card) = (PollFd::from_borrowed_fd(wakes, PollFlags::IN), true);
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
    /// The endpoint goes first, then the registrations, and by the order of the fields the rest.
    fn drop(&mut self) {
        if let Err(why) = self.close_links() {
            // The card may still write: what it may write to is never freed.
            tracing::error!(%why, "memory is kept for good");
            std::mem::forget(std::mem::replace(&mut self.contexts, Contexts::new(0)));
            std::mem::forget(std::mem::take(&mut self.memories));
        }
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
