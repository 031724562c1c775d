//! The endpoint with its completion queue and its table of addresses.

use std::mem::offset_of;
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr::null_mut;

use libc::{c_int, c_void};
use libfabric_sys::abi::{
    fi_addr_t, fi_av_attr, fi_cq_attr, fi_cq_data_entry, fi_cq_err_entry, fi_ops_fabric, fid_av,
    fid_cq, fid_domain, fid_ep, fid_fabric,
};
use libfabric_sys::constants::{
    FI_ADDR_NOTAVAIL, FI_AV_TABLE, FI_CQ_FORMAT_DATA, FI_ENABLE, FI_GETWAIT, FI_RECV, FI_TRANSMIT,
    FI_WAIT_FD, FI_WAIT_NONE,
};

use super::info::Info;
use super::object::Object;
use super::region::Region;
use crate::libfabric::seam::Action;
use crate::memory::Slice;

/// Bytes of an address, more than any provider has.
pub(super) const MAX_ADDRESS: usize = 256;

/// Reports of one call.
pub(super) const REPORTS: usize = 64;

/// A call that failed: what it was to do, and the library's number.
pub(super) type Failed = (&'static str, c_int);

pub(super) struct Links {
    /// Closed first.
    endpoint: Object<fid_ep>,
    addresses: Object<fid_av>,
    queue: Object<fid_cq>,
    /// Belongs to the queue.
    wakes: Option<RawFd>,
}

/// One operation, as the library is told of it.
pub(super) struct Call<'a> {
    pub(super) action: Action,
    pub(super) region: &'a Region,
    pub(super) local: Slice<'a>,
    pub(super) peer: fi_addr_t,
    pub(super) address: u64,
    pub(super) key: u64,
    pub(super) context: *mut c_void,
}

fn doing<T>(what: &'static str, result: Result<T, c_int>) -> Result<T, Failed> {
    result.map_err(|code| (what, code))
}

impl Links {
    pub(super) fn open(
        domain: &Object<fid_domain>,
        info: &Info,
        reports: usize,
        wait: bool,
    ) -> Result<Self, Failed> {
        let mut queue = None;
        if wait {
            queue = open_queue(domain, reports, FI_WAIT_FD).ok();
        }
        let wakes = queue.as_ref().and_then(wait_object);
        let queue = match queue.filter(|_| wakes.is_some()) {
            Some(queue) => queue,
            None => doing("open a completion queue", open_queue(domain, reports, FI_WAIT_NONE))?,
        };
        let addresses = doing("open a table of addresses", open_addresses(domain))?;
        let endpoint = doing("open an endpoint", open_endpoint(domain, info))?;
        doing("bind the completion queue", endpoint.bind(&queue, FI_TRANSMIT | FI_RECV))?;
        doing("bind the table of addresses", endpoint.bind(&addresses, 0))?;
        // SAFETY: this command has no argument.
        doing("enable the endpoint", unsafe { endpoint.control(FI_ENABLE, null_mut()) })?;
        Ok(Self { endpoint, addresses, queue, wakes })
    }

    /// Closes the endpoint, and then the rest, which is left alone where the endpoint may still
    /// use it.
    pub(super) fn close(self) -> Result<(), c_int> {
        let Self { endpoint, addresses, queue, wakes: _ } = self;
        endpoint.close().inspect_err(|_| std::mem::forget((addresses, queue)))
    }

    pub(super) fn address(&self) -> Result<Vec<u8>, Failed> {
        let mut bytes = vec![0_u8; MAX_ADDRESS];
        let mut len = bytes.len();
        // SAFETY: the endpoint is open and has this table; the library writes `len` bytes at most.
        let code = unsafe {
            let endpoint = self.endpoint.ptr();
            let getname = (*(*endpoint).cm).getname;
            getname(self.endpoint.fid(), bytes.as_mut_ptr().cast(), &raw mut len)
        };
        bytes.truncate(len);
        if code == 0 { Ok(bytes) } else { Err(("name the endpoint", code)) }
    }

    /// Adds a peer. The bytes were looked at by the caller.
    pub(super) fn insert(&self, address: &[u8]) -> Result<fi_addr_t, c_int> {
        // Whatever length the library reads from these bytes, there is memory for it.
        let mut room = [0_u8; 2 * MAX_ADDRESS];
        let len = address.len().min(MAX_ADDRESS);
        room[..len].copy_from_slice(&address[..len]);
        let mut peer = FI_ADDR_NOTAVAIL;
        // SAFETY: the table is open; there is one address, whose room outlives the call.
        let count = unsafe {
            let table = self.addresses.ptr();
            let insert = (*(*table).ops).insert;
            insert(table, room.as_ptr().cast(), 1, &raw mut peer, 0, null_mut())
        };
        match count {
            1 if peer != FI_ADDR_NOTAVAIL => Ok(peer),
            0 | 1 => Err(-libc::EINVAL),
            code => Err(code),
        }
    }

    pub(super) fn remove(&self, mut peer: fi_addr_t) -> c_int {
        // SAFETY: the table is open and has this entry.
        unsafe {
            let table = self.addresses.ptr();
            ((*(*table).ops).remove)(table, &raw mut peer, 1, 0)
        }
    }

    /// Starts an operation; 0, or the library's number.
    ///
    /// # Safety
    /// The region and the room of the context stay until the operation is over or the endpoint is
    /// closed, and the local bytes are the region's.
    pub(super) unsafe fn post(&self, call: &Call<'_>) -> isize {
        let Call { action, region, local, peer, address, key, context } = *call;
        let (endpoint, desc) = (self.endpoint.ptr(), region.descriptor());
        let (bytes, len) = (local.ptr().cast::<c_void>(), local.len());
        // SAFETY: the endpoint is enabled and has this table. The bytes are registered with this
        // domain and may be read and written by anybody, by the contract of `Memory`; the caller
        // sees to it that they and the context stay.
        unsafe {
            let rma = &*(*endpoint).rma;
            match action {
                Action::Read => (rma.read)(endpoint, bytes, len, desc, peer, address, key, context),
                Action::Write => {
                    (rma.write)(endpoint, bytes, len, desc, peer, address, key, context)
                }
                Action::Count(word) => (rma.writedata)(
                    endpoint,
                    bytes,
                    len,
                    desc,
                    word.into(),
                    peer,
                    address,
                    key,
                    context,
                ),
            }
        }
    }

    /// Takes reports, and runs the library; their number, or the library's for what is wrong.
    pub(super) fn read(&self, reports: &mut [fi_cq_data_entry; REPORTS]) -> isize {
        // SAFETY: the queue is open and of the format of these entries, of which there are so many.
        unsafe {
            let queue = self.queue.ptr();
            ((*(*queue).ops).read)(queue, reports.as_mut_ptr().cast(), reports.len())
        }
    }

    /// Takes the report of a failure, if there is one.
    pub(super) fn read_error(&self) -> Option<fi_cq_err_entry> {
        // SAFETY: integers and pointers, which may be null.
        let mut report: fi_cq_err_entry = unsafe { std::mem::zeroed() };
        // SAFETY: the queue is open, and the entry is at least as large as any version has it.
        let got = unsafe {
            let queue = self.queue.ptr();
            ((*(*queue).ops).readerr)(queue, &raw mut report, 0)
        };
        (got == 1).then_some(report)
    }

    /// What becomes readable when there is something to take, as long as the links stand.
    pub(super) fn wakes(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: the descriptor is the queue's, which is closed with this value.
        self.wakes.map(|fd| unsafe { BorrowedFd::borrow_raw(fd) })
    }

    /// Whether the descriptor may be waited for: it tells of what comes from now on. If not, there
    /// may be something to take.
    pub(super) fn may_wait(&self, fabric: &Object<fid_fabric>) -> Result<bool, c_int> {
        let mut all = [self.queue.fid()];
        // SAFETY: the fabric is open; its table has the function if it is long enough. The queue
        // is of this fabric and has a descriptor.
        unsafe {
            let ops = &*(*fabric.ptr()).ops;
            let has = ops.size > offset_of!(fi_ops_fabric, trywait);
            let trywait = ops.trywait.filter(|_| has);
            let trywait = trywait.ok_or(-libc::ENOSYS)?;
            match trywait(fabric.ptr(), all.as_mut_ptr(), 1) {
                0 => Ok(true),
                code if code == -libc::EAGAIN => Ok(false),
                code => Err(code),
            }
        }
    }
}

fn open_queue(
    domain: &Object<fid_domain>,
    size: usize,
    wait: c_int,
) -> Result<Object<fid_cq>, c_int> {
    let mut attributes = fi_cq_attr {
        size,
        flags: 0,
        format: FI_CQ_FORMAT_DATA,
        wait_obj: wait,
        signaling_vector: 0,
        wait_cond: 0,
        wait_set: null_mut(),
        room: [0; 8],
    };
    // SAFETY: the domain is open, and the attributes outlive the call.
    unsafe {
        let (domain, ops) = (domain.ptr(), (*domain.ptr()).ops);
        Object::open(|queue| ((*ops).cq_open)(domain, &raw mut attributes, queue, null_mut()))
    }
}

fn wait_object(queue: &Object<fid_cq>) -> Option<RawFd> {
    let mut fd: c_int = -1;
    // SAFETY: this command fills in a descriptor for a queue that was opened to have one.
    let got = unsafe { queue.control(FI_GETWAIT, (&raw mut fd).cast()) };
    got.ok().map(|()| fd).filter(|&fd| fd >= 0)
}

fn open_addresses(domain: &Object<fid_domain>) -> Result<Object<fid_av>, c_int> {
    let mut attributes = fi_av_attr {
        type_: FI_AV_TABLE,
        rx_ctx_bits: 0,
        count: 0,
        ep_per_node: 0,
        name: std::ptr::null(),
        map_addr: null_mut(),
        flags: 0,
        room: [0; 8],
    };
    // SAFETY: the domain is open, and the attributes outlive the call.
    unsafe {
        let (domain, ops) = (domain.ptr(), (*domain.ptr()).ops);
        Object::open(|table| ((*ops).av_open)(domain, &raw mut attributes, table, null_mut()))
    }
}

fn open_endpoint(domain: &Object<fid_domain>, info: &Info) -> Result<Object<fid_ep>, c_int> {
    // SAFETY: the domain is open, and what describes the endpoint is what it was opened by.
    unsafe {
        let (domain, ops) = (domain.ptr(), (*domain.ptr()).ops);
        Object::open(|endpoint| ((*ops).endpoint)(domain, info.ptr(), endpoint, null_mut()))
    }
}
