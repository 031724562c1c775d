//! The one promise about memory that Python owns.

use std::ptr::NonNull;
use std::sync::Arc;

use kvferry::Class;
use kvferry::transport;
use pyo3::prelude::*;

use crate::errors::error;

/// Host memory that a Python object owns, such as the storage of a tensor or an array.
///
/// Peers read and write it while this object, or an engine that was made with it, lives: its
/// maker promises that the `length` bytes from `address` on stay where they are until `owner` is
/// collected, and that nobody frees or moves them before.
#[pyclass(frozen, module = "kvferry")]
pub(crate) struct Memory(Arc<Borrowed>);

struct Borrowed {
    base: NonNull<u8>,
    len: usize,
    /// Keeps the bytes alive. Where it is dropped by a thread without the interpreter's lock,
    /// the interpreter collects it later.
    _owner: Py<PyAny>,
}

// SAFETY: the base and the length are fixed here, and whoever made the `Memory` has promised
// that the bytes stay valid while `_owner` is held; Python code touches them only through its own
// pointers, never through Rust references.
unsafe impl transport::Memory for Borrowed {
    fn base(&self) -> NonNull<u8> {
        self.base
    }

    fn len(&self) -> usize {
        self.len
    }
}

// SAFETY: the pointer is to plain bytes that any thread may use while the value lives.
unsafe impl Send for Borrowed {}
// SAFETY: as above; nothing here is changed through a shared reference.
unsafe impl Sync for Borrowed {}

#[pymethods]
impl Memory {
    #[new]
    fn new(address: usize, length: usize, owner: Py<PyAny>) -> PyResult<Self> {
        let refused = || error(Class::Bug, format!("no memory of {length} bytes at {address:#x}"));
        let end = address.checked_add(length).filter(|_| length > 0);
        end.filter(|&end| isize::try_from(end).is_ok()).ok_or_else(refused)?;
        let base = NonNull::new(address as *mut u8).ok_or_else(refused)?;
        Ok(Self(Arc::new(Borrowed { base, len: length, _owner: owner })))
    }

    /// Bytes.
    fn __len__(&self) -> usize {
        self.0.len
    }

    fn __repr__(&self) -> String {
        format!("Memory({:p}, {})", self.0.base, self.0.len)
    }
}

impl Memory {
    pub(crate) fn share(&self) -> Arc<dyn transport::Memory> {
        Arc::clone(&self.0) as _
    }
}
