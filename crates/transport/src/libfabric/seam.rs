//! What the engine asks of a fabric, so that another one can be put in its place.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::plan::{Exposure, Segment};
use super::slots::Token;
use super::{FabricFacts, FenceError, MemoryError, PeerError};
use crate::Memory;
use crate::bell::Bell;

/// A number that this process has not given before: what one driver has named means nothing to
/// another.
pub(super) fn unique() -> u64 {
    static GIVEN: AtomicU64 = AtomicU64::new(0);
    GIVEN.fetch_add(1, Ordering::Relaxed)
}

/// A peer as its driver knows it; never used twice in a process, and unknown behind a fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FabricPeer(u64);

impl FabricPeer {
    pub(super) fn new() -> Self {
        Self(unique())
    }
}

/// What peers may do with a registration. This side may always read into it and write from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights {
    /// Peers may read.
    pub read: bool,
    /// Peers may write.
    pub write: bool,
}

/// What the bytes of a memory are.
#[derive(Debug)]
#[non_exhaustive]
pub enum Backing {
    /// Of the host.
    Host,
    /// Of a CUDA device, at the same addresses.
    ///
    /// With a descriptor the card is given that, where the library knows how (1.20 or later). Where
    /// that fails or there is none, it is given the addresses, which works with a kernel module
    /// that knows both. Whoever registers stages through the host if that fails too.
    Cuda {
        /// The driver's number for it.
        ordinal: u32,
        /// The memory as a dma-buf that begins with it; closed once it is registered.
        dmabuf: Option<OwnedFd>,
    },
}

/// Memory to be registered.
pub(super) struct Registering {
    pub(super) id: u64,
    pub(super) memory: Arc<dyn Memory>,
    pub(super) backing: Backing,
    pub(super) rights: Rights,
    pub(super) grain: u64,
}

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Read,
    Write,
    /// A write that leaves this word with the target.
    Count(u32),
}

/// An operation to be started.
#[derive(Clone, Copy, Debug)]
pub(super) struct Post {
    pub(super) token: Token,
    pub(super) action: Action,
    pub(super) peer: FabricPeer,
    pub(super) segment: Segment,
}

/// Why an operation was not started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PostFault {
    /// Not now. It may be once the fabric has been polled.
    Full,
    /// Never.
    Refused(OperationFault),
}

/// How an operation failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OperationFault {
    pub(super) code: i32,
    pub(super) why: String,
}

/// What a poll finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// An operation is over and touches nothing any more.
    Ended(Token, Result<(), OperationFault>),
    /// A peer's write has left its word.
    Word(u32),
}

/// One domain with one endpoint. An implementation answers for memory by itself: whatever it is
/// asked for, what an operation uses stays registered until it is over or the endpoint is closed.
pub(super) trait Fabric {
    fn facts(&self) -> &FabricFacts;

    /// The endpoint's own, for peers to insert.
    fn address(&self) -> &[u8];

    fn insert(&mut self, peer: FabricPeer, address: &[u8]) -> Result<(), PeerError>;

    fn remove(&mut self, peer: FabricPeer);

    /// One exposure for each part of the memory.
    fn register(&mut self, memory: Registering) -> Result<Vec<Exposure>, MemoryError>;

    /// Ends it, as soon as no operation uses it.
    fn deregister(&mut self, id: u64) -> Result<(), MemoryError>;

    fn post(&mut self, post: &Post) -> Result<(), PostFault>;

    /// # Errors
    /// The endpoint cannot be used any more.
    fn poll(&mut self, found: &mut Vec<Found>) -> Result<(), String>;

    /// Waits until the bell rings, for so long, or less if there may be something to poll; true if
    /// the card has said that there is.
    fn sleep(&mut self, bell: &Bell, at_most: Duration) -> bool;

    /// Closes the endpoint, and opens another one, which knows no peer. Registrations stay.
    fn reopen(&mut self) -> Result<(), FenceError>;
}
