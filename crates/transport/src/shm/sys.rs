//! The system calls on other processes that nobody has wrapped yet.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

use crate::pieces::Pieces;

/// Bytes of what the kernel says of a peer.
const CREDENTIALS_LEN: libc::socklen_t = 12;

/// Who is at the other end of a socket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Credentials {
    /// 0 if the process has no number in this PID namespace.
    pub(super) pid: i32,
    pub(super) user: u32,
}

/// Who called `listen` or `connect` at the other end, as the kernel saw it.
pub(super) fn credentials(socket: &UnixStream) -> io::Result<Credentials> {
    let mut credentials = MaybeUninit::<libc::ucred>::zeroed();
    let mut len = CREDENTIALS_LEN;
    // SAFETY: the address and size of the value are passed, which outlives the call; any bytes
    // make a `ucred`, and zeros do too where the kernel writes fewer.
    let (failed, credentials) = unsafe {
        let failed = libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            credentials.as_mut_ptr().cast(),
            &raw mut len,
        );
        (failed, credentials.assume_init())
    };
    if failed != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Credentials { pid: credentials.pid, user: credentials.uid })
}

/// Copies from the memory of a process into this one's, as many bytes as both lists have at
/// most, and says how many.
///
/// # Safety
/// `near` names memory of this process that may be written by the kernel until this returns.
pub(super) unsafe fn read_process(
    pid: i32,
    near: &mut Pieces,
    far: &mut Pieces,
) -> io::Result<usize> {
    let (near, far) = (near.rest(), far.rest());
    // Both have 1024 pieces at most.
    let (near_len, far_len) = (near.len() as libc::c_ulong, far.len() as libc::c_ulong);
    // SAFETY: both lists outlive the call; the caller answers for what the first one names, and
    // the kernel checks each address of the second one in the other process.
    let got =
        unsafe { libc::process_vm_readv(pid, near.as_ptr(), near_len, far.as_ptr(), far_len, 0) };
    usize::try_from(got).map_err(|_| io::Error::last_os_error())
}

/// Copies `len` bytes with the C library's `memcpy`, called so that the compiler does not know
/// which function it is.
///
/// # Safety
/// As for [`copy_bytes`].
pub(super) unsafe fn copy_plainly(from: *const u8, to: *mut u8, len: usize) {
    type Copy =
        unsafe extern "C" fn(*mut libc::c_void, *const libc::c_void, usize) -> *mut libc::c_void;
    let copy: Copy = std::hint::black_box(libc::memcpy);
    // SAFETY: `memcpy` reads and writes `len` bytes from the two addresses, for which the caller
    // answers.
    unsafe { copy(to.cast(), from.cast(), len) };
}

/// Copies `len` bytes as a device would: neither side is seen by the compiler, so it makes no
/// difference to it that others read and write them at the same time.
///
/// # Safety
/// `from` may be read and `to` written for `len` bytes, and the two do not overlap.
pub(super) unsafe fn copy_bytes(from: *const u8, to: *mut u8, len: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction reads and writes `len` bytes upwards from the two addresses, for
    // which the caller answers; the direction flag is clear by the calling convention.
    unsafe {
        std::arch::asm!(
            "rep movsb",
            inout("rcx") len => _,
            inout("rsi") from => _,
            inout("rdi") to => _,
            options(nostack, preserves_flags)
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the loops read and write `len` bytes upwards from the two addresses, 32 at a time
    // while there are so many and then one by one; the caller answers for the addresses.
    unsafe {
        std::arch::asm!(
            "2:",
            "cmp {len}, #32",
            "b.lo 3f",
            "ldp {a}, {b}, [{from}], #16",
            "ldp {c}, {d}, [{from}], #16",
            "stp {a}, {b}, [{to}], #16",
            "stp {c}, {d}, [{to}], #16",
            "sub {len}, {len}, #32",
            "b 2b",
            "3:",
            "cbz {len}, 4f",
            "ldrb {a:w}, [{from}], #1",
            "strb {a:w}, [{to}], #1",
            "sub {len}, {len}, #1",
            "b 3b",
            "4:",
            len = inout(reg) len => _,
            from = inout(reg) from => _,
            to = inout(reg) to => _,
            a = out(reg) _,
            b = out(reg) _,
            c = out(reg) _,
            d = out(reg) _,
            options(nostack)
        );
    }
}
