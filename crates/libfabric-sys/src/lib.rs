//! The part of libfabric's binary interface that `transport` uses, written by hand.
//!
//! Nothing of libfabric is needed to build, and no program of this repository names it as a library:
//! [`load`] opens it when it is first asked for, and a machine without it gets an error that says
//! what to do. The crate of this name in the public registry is another one, and not used: it
//! links the library, so that what was built beside a new one does not start beside an old one.
//!
//! * [`abi`] has the structures and the tables of functions, [`constants`] the numbers. They are
//!   those of libfabric 1.17 to 2.6, in all of which every field that is named here lies at the
//!   same place; `tests/abi.rs` compares them with the headers of the machine, where there are any.
//! * [`load`] finds the library, checks its version, and keeps it for good: its providers have
//!   threads of their own, which cannot be unloaded.
//!
//! Structures that are filled in here and read by the library end in zeroed room for the fields of
//! later versions. Those that the library fills in are allocated by it (`fi_dupinfo(NULL)`).

#![deny(unsafe_op_in_unsafe_fn)]

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!("libfabric-sys is for Linux with pointers of 64 bits");

pub mod abi;
pub mod constants;
mod error;
mod load;
mod places;
mod signals;
mod version;

pub use error::LoadError;
pub use load::{Libfabric, load};
pub use signals::keeping_handlers;
pub use version::Version;
