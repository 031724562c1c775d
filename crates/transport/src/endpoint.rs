//! The contract of every mover: one trait, polled, with no callback into user code.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use strided::{BlockCopy, Blocks, Region, RegionId};

use crate::{ConnectError, GrantError, Memory, RegisterError, SubmitError, TransferError};

/// Names one running agent: a random number that it draws at start and shows in its hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AgentId(pub u64);

/// A peer as this endpoint knows it, from [`Endpoint::connect`] until [`Event::PeerDown`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(pub u64);

/// Names a transfer; chosen by the caller and never used twice on one endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransferId(pub u64);

/// Opaque permission to read, made by the serving side's user and shown by the reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GrantToken(pub u64);

/// A region of registered memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoundRegion {
    /// Its name, unique on this endpoint.
    pub id: RegionId,
    /// First byte of block 0 within the memory.
    pub offset: u64,
    /// Stride and number of its blocks.
    pub region: Region,
}

/// Memory that an endpoint may use, until it is deregistered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Registration {
    /// Counts up with each registration of an endpoint, so that none is taken for another.
    pub generation: u64,
}

/// How others reach an endpoint; travels in the handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Card {
    /// The provider's name, such as `tcp`.
    pub provider: &'static str,
    /// The agent that answers there.
    pub agent: AgentId,
    /// The provider's own address, as text.
    pub address: String,
}

/// What is true of a provider; nothing here is a hope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// The target's CPU takes no part in a read.
    pub one_sided: bool,
    /// Bytes of one transfer arrive in the order of its copies.
    pub ordered: bool,
    /// Pattern dimensions that the provider takes without expanding them.
    pub native_dims: u8,
    /// What a fence ends beside the overdue transfer.
    pub fence: Fence,
}

/// The reach of a fence, from the least to the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Fence {
    /// Nothing is ever in flight after a call returns.
    Nothing,
    /// The transfers of the same peer, which end with a retryable error.
    Peer,
    /// The transfers of every peer.
    Endpoint,
}

/// Blocks to read from a peer into local memory.
///
/// A transfer of no bytes is asked for like any other: it completes as done if the grant lives.
#[derive(Clone, Debug)]
pub struct Transfer {
    /// The caller's name for it.
    pub id: TransferId,
    /// Whom to read from.
    pub peer: PeerId,
    /// The permission that the peer gave.
    pub token: GrantToken,
    /// Sources name the peer's regions, targets this endpoint's.
    pub copies: Vec<BlockCopy>,
    /// Time until [`Event::Overdue`].
    pub timeout: Duration,
}

/// How a transfer ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Every byte is in local memory.
    Done,
    /// It was cancelled; some target bytes may have been written, none will be from now on.
    Cancelled,
    /// It failed; some target bytes may have been written, none will be from now on.
    Failed(TransferError),
}

/// What [`Endpoint::poll`] reports.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The one terminal report of a transfer: its memory may be reused.
    Completion {
        /// The transfer.
        id: TransferId,
        /// How it ended.
        outcome: Outcome,
    },
    /// A transfer passed its deadline. Not terminal: its memory is still in use, the endpoint
    /// begins to fence, and a [`Event::Completion`] follows.
    Overdue {
        /// The transfer.
        id: TransferId,
    },
    /// A peer is gone. Its transfers end with completions of their own.
    PeerDown {
        /// The peer, which may be connected anew under another id.
        peer: PeerId,
        /// What was seen.
        why: TransferError,
    },
    /// Nothing that this peer was asked for can touch local memory any more. Comes once after
    /// the completions that follow [`Event::Overdue`], before [`Event::PeerDown`].
    Fenced {
        /// The peer.
        peer: PeerId,
    },
    /// Nothing is sent under a revoked grant any more: its blocks may be reused.
    Revoked {
        /// The grant's token.
        token: GrantToken,
    },
}

/// One mover of bytes: initiator and serving side of a provider.
///
/// * Every transfer that `submit` accepts gets exactly one [`Event::Completion`].
/// * A peer's death is an event, within seconds, never a hang.
/// * Bytes are served only under a live grant to the very agent that asks.
/// * No call blocks on the network.
pub trait Endpoint: Send {
    /// What this provider can do.
    fn capabilities(&self) -> Capabilities;

    /// How peers reach the serving side.
    fn card(&self) -> Card;

    /// Makes memory usable as source and target. The endpoint keeps the `Arc` until the
    /// registration has ended and no transfer uses it.
    ///
    /// # Errors
    /// A region that reaches beyond the memory, or an id that is taken.
    fn register(
        &mut self,
        memory: Arc<dyn Memory>,
        regions: &[BoundRegion],
    ) -> Result<Registration, RegisterError>;

    /// Ends a registration.
    ///
    /// # Errors
    /// [`RegisterError::InUse`] while a transfer or a grant uses it.
    fn deregister(&mut self, registration: Registration) -> Result<(), RegisterError>;

    /// Starts to connect and returns at once: transfers may be submitted and wait for the
    /// connection; if it fails they fail, and [`Event::PeerDown`] says why.
    ///
    /// # Errors
    /// A card of another provider or without a usable address.
    fn connect(&mut self, card: &Card) -> Result<PeerId, ConnectError>;

    /// Drops a peer. Its transfers end as failed, then comes [`Event::PeerDown`].
    fn disconnect(&mut self, peer: PeerId);

    /// Starts a transfer.
    ///
    /// # Errors
    /// Nothing was started; the transfer comes back with the reason.
    fn submit(&mut self, transfer: Transfer) -> Result<(), SubmitError>;

    /// Wishes a transfer to end early. It still gets its one completion.
    fn cancel(&mut self, id: TransferId);

    /// Lets `reader` read `blocks` of registered memory by showing `token`.
    ///
    /// # Errors
    /// Blocks outside registered memory, or a token that is in use.
    fn grant(
        &mut self,
        reader: AgentId,
        token: GrantToken,
        blocks: Vec<Blocks>,
    ) -> Result<(), GrantError>;

    /// Ends a grant. Sends under it are cut; [`Event::Revoked`] says when none is left.
    /// Unknown tokens are reported revoked at once.
    fn revoke(&mut self, token: GrantToken);

    /// Takes what happened since the last call; never blocks.
    fn poll(&mut self, events: &mut Vec<Event>);

    /// Readable while `poll` has something to do: for `epoll` and its kin. What it finds may be
    /// nothing whole yet, so that no event comes of it.
    fn ready_fd(&self) -> BorrowedFd<'_>;
}
