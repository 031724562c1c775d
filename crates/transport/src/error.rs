//! Errors, one small enum per operation.

use std::fmt::{self, Display};
use std::io;

use strided::RegionId;

use crate::{AgentId, Transfer};

/// What the caller should do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Class {
    /// The same call may succeed later.
    Retry,
    /// The peer is gone; connect anew.
    PeerLost,
    /// The peer broke the protocol or the permission was not there.
    Protocol,
    /// What was configured cannot work.
    Config,
    /// A limit was reached.
    Exhausted,
    /// The caller broke the contract.
    Bug,
}

/// Why memory was not registered or not deregistered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// A region does not fit its memory.
    #[error("region {region} ends at byte {end} of a memory of {len} bytes")]
    OutOfBounds {
        /// The region.
        region: RegionId,
        /// First byte after it.
        end: u64,
        /// Bytes of the memory.
        len: u64,
    },
    /// The region id is taken.
    #[error("region {region} is registered already")]
    Taken {
        /// The region.
        region: RegionId,
    },
    /// More regions than the provider can tell its readers of.
    #[error("{regions} regions in one registration, where {most} are the most")]
    TooMany {
        /// How many there are.
        regions: usize,
        /// How many there may be.
        most: usize,
    },
    /// Transfers or grants still use the registration.
    #[error("the registration is in use")]
    InUse,
    /// No such registration.
    #[error("there is no such registration")]
    Unknown,
}

/// Why an endpoint was not opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// A setting that cannot work.
    #[error("{setting} must be {rule}")]
    Config {
        /// Which one.
        setting: &'static str,
        /// What it must be.
        rule: &'static str,
    },
    /// Others than this host could connect, and nobody has to prove anything.
    #[error("{address} is not a loopback address: listening there needs a secret")]
    NotLoopback {
        /// The address.
        address: String,
    },
    /// The agent is on this net already.
    #[error("agent {} is on this net already", agent.0)]
    AgentTaken {
        /// The agent.
        agent: AgentId,
    },
    /// The system refused.
    #[error("cannot {what}: {why}")]
    System {
        /// What it refused.
        what: &'static str,
        /// Its words.
        why: String,
    },
}

impl BindError {
    /// Turns the system's error into this one.
    pub(crate) fn system<E: Display>(what: &'static str) -> impl FnOnce(E) -> Self {
        move |why| Self::System { what, why: why.to_string() }
    }
}

/// Why a connection was not started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The card belongs to another provider.
    #[error("a card of provider {found} was given to provider {own}")]
    Provider {
        /// This endpoint's provider.
        own: &'static str,
        /// The card's.
        found: &'static str,
    },
    /// The address cannot be used.
    #[error("{address:?} is not an address that can be used here: {why}")]
    Address {
        /// As the card has it.
        address: String,
        /// What is wrong with it.
        why: String,
    },
    /// The way to the peer leaves this host, and nobody has to prove anything.
    #[error("{address} is not a loopback address: connecting there needs a secret")]
    NotLoopback {
        /// The address.
        address: String,
    },
    /// The system refused.
    #[error("cannot {what}: {why}")]
    System {
        /// What it refused.
        what: &'static str,
        /// Its words.
        why: String,
    },
}

/// Why a transfer was not accepted; it comes back in [`SubmitError::transfer`].
#[derive(thiserror::Error)]
#[error("{why}")]
pub struct SubmitError {
    /// The reason.
    pub why: SubmitErrorKind,
    /// The transfer, untouched.
    pub transfer: Box<Transfer>,
}

impl fmt::Debug for SubmitError {
    /// Names the transfer; its block lists would fill pages.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (why, id) = (&self.why, &self.transfer.id);
        f.debug_struct("SubmitError").field("why", why).field("id", id).finish_non_exhaustive()
    }
}

/// The reasons of [`SubmitError`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SubmitErrorKind {
    /// Too many transfers are in flight.
    #[error("the queue is full")]
    QueueFull,
    /// The peer is not connected.
    #[error("the peer is not connected")]
    UnknownPeer,
    /// The id is in flight already.
    #[error("the transfer id is in use")]
    IdInUse,
    /// A target region is not registered here.
    #[error("target region {region} is not registered")]
    UnknownRegion {
        /// The region.
        region: RegionId,
    },
    /// A target block lies outside its region.
    #[error(transparent)]
    Blocks(#[from] strided::Error),
    /// More than the provider's limits allow.
    #[error("the transfer is larger than the limit: {what}")]
    TooLarge {
        /// Which limit.
        what: &'static str,
    },
}

/// Why an accepted transfer failed, or a peer is down.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TransferError {
    /// The peer has no such grant for this agent, or it ended.
    #[error("the peer does not grant this read")]
    NotGranted,
    /// The connection could not be made.
    #[error("cannot connect to {address}: {why}")]
    Connect {
        /// Where to.
        address: String,
        /// The system's words.
        why: String,
    },
    /// The connection broke.
    #[error("the connection to the peer is lost: {why}")]
    Lost {
        /// The system's words.
        why: String,
    },
    /// The peer is connected but silent.
    #[error("the peer did not answer within its heartbeat")]
    Silent,
    /// The peer sent what the protocol does not allow.
    #[error("the peer broke the protocol: {what}")]
    Protocol {
        /// What was wrong.
        what: &'static str,
    },
    /// An overdue transfer of the same peer was fenced.
    #[error("the transfer was fenced")]
    Fenced,
    /// This side disconnected the peer.
    #[error("the peer was disconnected")]
    Disconnected,
}

impl TransferError {
    /// What to do about it.
    #[must_use]
    pub fn class(&self) -> Class {
        match self {
            Self::NotGranted | Self::Protocol { .. } => Class::Protocol,
            Self::Fenced => Class::Retry,
            Self::Connect { .. } | Self::Lost { .. } | Self::Silent | Self::Disconnected => {
                Class::PeerLost
            }
        }
    }
}

/// What a failed call on a socket says about the connection.
pub(crate) fn lost(error: &io::Error) -> TransferError {
    TransferError::Lost { why: error.to_string() }
}

/// The other side has hung up.
pub(crate) fn hung_up() -> TransferError {
    TransferError::Lost { why: "the peer hung up".to_owned() }
}

/// The other side said what it must not.
pub(crate) fn broken(what: &'static str) -> TransferError {
    TransferError::Protocol { what }
}

/// Why a grant was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GrantError {
    /// The token is in use.
    #[error("the grant token is in use")]
    TokenInUse,
    /// A region is not registered here.
    #[error("region {region} is not registered")]
    UnknownRegion {
        /// The region.
        region: RegionId,
    },
    /// A block lies outside its region.
    #[error(transparent)]
    Blocks(#[from] strided::Error),
}
