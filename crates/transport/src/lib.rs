//! Moves registered bytes between processes.
//!
//! [`Endpoint`] is the contract that every provider keeps: memory is registered, a peer is
//! connected by its [`Card`], and a [`Transfer`] reads blocks that the peer has granted.
//! Everything is polled; nothing calls back.
//!
//! * [`tcp`] works everywhere: parallel streams, straight from and into registered memory.
//! * [`shm`] joins processes of one host: the reader copies straight out of the source's memory.
//! * [`libfabric`] is the driver below a provider for network cards with RDMA.
//! * [`Several`] joins providers of one agent.
//! * [`loopback`] joins endpoints of one process, for tests and simulation.
//!
//! `unsafe` is confined to [`memory`], the system calls of [`tcp`] and [`shm`], and the calls into
//! the library of [`libfabric`].

#![deny(unsafe_code)]

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
compile_error!("transport is for Linux on x86-64 and arm64");

mod bell;
mod endpoint;
mod ends;
mod error;
mod events;
mod grants;
mod greet;
mod guests;
mod ledger;
pub mod libfabric;
pub mod loopback;
#[allow(unsafe_code)]
pub mod memory;
mod pieces;
mod portion;
mod registry;
mod scatter;
pub mod session;
mod several;
pub mod shm;
mod sync;
pub mod tcp;

pub use endpoint::{
    AgentId, BoundRegion, Capabilities, Card, Endpoint, Event, Fence, GrantToken, Outcome, PeerId,
    Registration, Transfer, TransferId,
};
pub use error::{
    BindError, Class, ConnectError, GrantError, RegisterError, SubmitError, SubmitErrorKind,
    TransferError,
};
pub use memory::Memory;
pub use several::Several;
