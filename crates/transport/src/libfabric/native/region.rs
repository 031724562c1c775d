//! Memory that the card may touch, which outlives its registration.

use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::null_mut;
use std::sync::Arc;

use libc::{c_int, c_void, iovec};
use libfabric_sys::abi::{fi_mr_attr, fi_mr_dmabuf, fid_domain, fid_mr};
use libfabric_sys::constants::{
    FI_ENOKEY, FI_HMEM_CUDA, FI_MR_DMABUF, FI_READ, FI_REMOTE_READ, FI_REMOTE_WRITE, FI_WRITE,
};

use super::object::Object;
use crate::Memory;
use crate::libfabric::Rights;
use crate::memory::Slice;

/// Tries with other keys where a random one is taken.
const TRIES: usize = 8;

/// Registered bytes: a part of a memory.
pub(super) struct Region {
    object: ManuallyDrop<Object<fid_mr>>,
    memory: ManuallyDrop<Arc<dyn Memory>>,
    offset: u64,
    len: u64,
}

/// Which bytes are registered, and how.
pub(super) struct Wanted<'a> {
    pub(super) memory: &'a Arc<dyn Memory>,
    pub(super) offset: u64,
    pub(super) len: u64,
    pub(super) rights: Rights,
    /// Bytes of a key to be chosen here; `None` if the card chooses.
    pub(super) key_bytes: Option<usize>,
    /// A CUDA device.
    pub(super) device: Option<u32>,
    pub(super) dmabuf: Option<BorrowedFd<'a>>,
}

impl Region {
    /// Registers by the descriptor, where there is one, and else or where that fails by addresses.
    pub(super) fn new(domain: &Object<fid_domain>, wanted: &Wanted<'_>) -> Result<Self, c_int> {
        let slice = Slice::of(&**wanted.memory, wanted.offset, wanted.len).ok_or(-libc::EFAULT)?;
        let file = wanted.dmabuf.and_then(|file| described(wanted, file));
        let by_file = file
            .as_ref()
            .map(|file| register(domain, wanted, std::ptr::from_ref(file).cast(), FI_MR_DMABUF));
        let object = match by_file {
            Some(Ok(object)) => object,
            _ => {
                let addresses = iovec { iov_base: slice.ptr().cast(), iov_len: slice.len() };
                register(domain, wanted, (&raw const addresses).cast(), 0)?
            }
        };
        Ok(Self {
            object: ManuallyDrop::new(object),
            memory: ManuallyDrop::new(Arc::clone(wanted.memory)),
            offset: wanted.offset,
            len: wanted.len,
        })
    }

    pub(super) fn key(&self) -> u64 {
        // SAFETY: it is open, and this field does not change.
        unsafe { (*self.object.ptr()).key }
    }

    /// What the library wants to see with local addresses.
    pub(super) fn descriptor(&self) -> *mut c_void {
        // SAFETY: as above.
        unsafe { (*self.object.ptr()).mem_desc }
    }

    /// What its first byte is called.
    pub(super) fn address(&self) -> u64 {
        self.slice(0, 0).map_or(0, |slice| slice.ptr().addr() as u64)
    }

    /// `len` of its bytes from `offset` on, where it has them.
    pub(super) fn slice(&self, offset: u64, len: u64) -> Option<Slice<'_>> {
        let inside = offset.checked_add(len)? <= self.len;
        inside.then(|| Slice::of(&**self.memory, self.offset + offset, len))?
    }

    /// Ends the registration and gives the memory back, which is kept for good where that fails:
    /// the card may still write there.
    pub(super) fn close(self) -> Result<Arc<dyn Memory>, c_int> {
        ManuallyDrop::new(self).end()
    }

    fn end(&mut self) -> Result<Arc<dyn Memory>, c_int> {
        // SAFETY: neither is used again, here or anywhere: both callers let the value go.
        let (object, memory) =
            unsafe { (ManuallyDrop::take(&mut self.object), ManuallyDrop::take(&mut self.memory)) };
        match object.close() {
            Ok(()) => Ok(memory),
            Err(code) => {
                tracing::error!(code, "memory cannot be deregistered and is kept for good");
                std::mem::forget(memory);
                Err(code)
            }
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // What fails was told of.
        let _ = self.end();
    }
}

/// A part of a dma-buf that begins with the memory. The library adds the offset to the address, as
/// to the place in the file.
fn described(wanted: &Wanted<'_>, file: BorrowedFd<'_>) -> Option<fi_mr_dmabuf> {
    let base = Slice::of(&**wanted.memory, 0, 0)?;
    let (offset, len) = (wanted.offset, usize::try_from(wanted.len).ok()?);
    Some(fi_mr_dmabuf { fd: file.as_raw_fd(), offset, len, base_addr: base.ptr().cast() })
}

/// `from` is an `iovec` or, by the flags, what describes a dma-buf; of memory that is alive.
fn register(
    domain: &Object<fid_domain>,
    wanted: &Wanted<'_>,
    from: *const iovec,
    flags: u64,
) -> Result<Object<fid_mr>, c_int> {
    let mut result = Err(-FI_ENOKEY);
    for _ in 0..TRIES {
        let key = wanted.key_bytes.map_or(Ok(0), key).map_err(|()| -libc::EIO)?;
        let attributes = attributes(wanted, from, key);
        // SAFETY: the domain is open and has these tables. What the attributes point to outlives
        // the call, and the memory itself the object, which a `Region` sees to.
        result = unsafe {
            let regattr = (*(*domain.ptr()).mr).regattr;
            Object::open(|object| regattr(domain.fid(), &raw const attributes, flags, object))
        };
        if !matches!(result, Err(code) if code == -FI_ENOKEY) {
            break;
        }
    }
    result
}

fn attributes(wanted: &Wanted<'_>, from: *const iovec, key: u64) -> fi_mr_attr {
    let Rights { read, write } = wanted.rights;
    let remote = (u64::from(read) * FI_REMOTE_READ) | (u64::from(write) * FI_REMOTE_WRITE);
    fi_mr_attr {
        mr_iov: from,
        iov_count: 1,
        access: FI_READ | FI_WRITE | remote,
        offset: 0,
        requested_key: key,
        context: null_mut(),
        auth_key_size: 0,
        auth_key: null_mut(),
        iface: wanted.device.map_or(0, |_| FI_HMEM_CUDA),
        device: wanted.device.map_or(0, u64::from),
        room: [0; 12],
    }
}

/// One that nobody guesses, as far as its length allows.
fn key(bytes: usize) -> Result<u64, ()> {
    let random = getrandom::u64().map_err(|_| ())?;
    let bits = u32::try_from(bytes).unwrap_or(u32::MAX).saturating_mul(8);
    Ok(random & u64::MAX.checked_shl(bits).map_or(u64::MAX, |above| !above))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::memory::HostMemory;

    #[test]
    fn a_part_of_a_file_is_named_by_the_address_of_its_beginning() {
        let memory = Arc::new(HostMemory::new(64 << 10).unwrap()) as Arc<dyn Memory>;
        let base = Slice::of(&*memory, 0, 1).unwrap().ptr().cast::<c_void>();
        let rights = Rights { read: true, write: true };
        let file = std::io::stdin();
        let wanted = Wanted {
            memory: &memory,
            offset: 4096,
            len: 8192,
            rights,
            key_bytes: None,
            device: None,
            dmabuf: None,
        };
        let part = described(&wanted, file.as_fd()).unwrap();
        assert_eq!((part.base_addr, part.offset, part.len), (base, 4096, 8192));
    }

    #[test]
    fn a_key_has_as_many_bytes_as_the_card_takes() {
        for (bytes, limit) in
            [(0, 0), (1, 0xff), (4, u64::from(u32::MAX)), (8, u64::MAX), (9, u64::MAX)]
        {
            assert!((0..100).all(|_| key(bytes).unwrap() <= limit), "{bytes}");
        }
        assert_ne!(key(8), key(8));
    }
}
