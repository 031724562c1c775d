//! Objects of the library, each closed once.

use std::mem::ManuallyDrop;
use std::ptr::{NonNull, null_mut};

use libc::{c_int, c_void};
use libfabric_sys::abi::{fid, fid_av, fid_cq, fid_domain, fid_ep, fid_fabric, fid_mr};

/// A structure of the library that others are bound to and that can be closed.
///
/// # Safety
/// It begins with a [`fid`].
pub(super) unsafe trait Handle {}

// SAFETY: its first field.
unsafe impl Handle for fid_fabric {}
// SAFETY: its first field.
unsafe impl Handle for fid_domain {}
// SAFETY: its first field.
unsafe impl Handle for fid_av {}
// SAFETY: its first field.
unsafe impl Handle for fid_cq {}
// SAFETY: its first field.
unsafe impl Handle for fid_ep {}
// SAFETY: its first field.
unsafe impl Handle for fid_mr {}

/// An open object, closed when it is dropped. It belongs to the thread that has opened it.
pub(super) struct Object<T: Handle>(NonNull<T>);

impl<T: Handle> Object<T> {
    /// Calls `open`, which is to put an object into its place and to return 0, or an error number.
    ///
    /// # Safety
    /// `open` calls the function of the library that opens such an object, and nobody else
    /// closes what it has opened.
    pub(super) unsafe fn open(open: impl FnOnce(*mut *mut T) -> c_int) -> Result<Self, c_int> {
        let mut object = null_mut();
        let code = open(&raw mut object);
        match NonNull::new(object) {
            Some(object) if code == 0 => Ok(Self(object)),
            _ if code == 0 => Err(-libc::EFAULT),
            _ => Err(code),
        }
    }

    /// For functions of the library; it is open for as long as this value lives.
    pub(super) fn ptr(&self) -> *mut T {
        self.0.as_ptr()
    }

    pub(super) fn fid(&self) -> *mut fid {
        self.0.as_ptr().cast()
    }

    /// Binds another object to this one.
    pub(super) fn bind<U: Handle>(&self, other: &Object<U>, flags: u64) -> Result<(), c_int> {
        // SAFETY: both are open, and each has the table of its kind.
        let code = unsafe { ((*(*self.fid()).ops).bind)(self.fid(), other.fid(), flags) };
        if code == 0 { Ok(()) } else { Err(code) }
    }

    /// Gives a command.
    ///
    /// # Safety
    /// `argument` is what the command wants.
    pub(super) unsafe fn control(
        &self,
        command: c_int,
        argument: *mut c_void,
    ) -> Result<(), c_int> {
        // SAFETY: it is open and has the table of its kind; the caller answers for the argument.
        let code = unsafe { ((*(*self.fid()).ops).control)(self.fid(), command, argument) };
        if code == 0 { Ok(()) } else { Err(code) }
    }

    /// Closes it. Where that fails it is gone or it is not, which nobody can find out: it is left
    /// alone from then on.
    pub(super) fn close(self) -> Result<(), c_int> {
        match ManuallyDrop::new(self).close_once() {
            0 => Ok(()),
            code => Err(code),
        }
    }

    fn close_once(&self) -> c_int {
        // SAFETY: it is open, and whoever calls this does not use it again.
        unsafe { ((*(*self.fid()).ops).close)(self.fid()) }
    }
}

impl<T: Handle> Drop for Object<T> {
    fn drop(&mut self) {
        let code = self.close_once();
        if code != 0 {
            let kind = std::any::type_name::<T>();
            tracing::warn!(code, kind, "libfabric does not close an object");
        }
    }
}
