//! What can go wrong, by operation.

use std::sync::Arc;

use connector::handshake::Mismatch;
use connector::params::ParamsError;
use connector::{BoundsError, Class, Ended, Failure, FinishError, RequestIdError};
use kv_layout::PlanError;
use transport::session::TlsError;
use transport::{BindError, ConnectError, RegisterError};

use crate::Provider;
use crate::control::ControlError;

/// Why an agent did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Others than this host could connect, and nobody has to prove anything.
    #[error("{address} is not a loopback address: listening there needs a secret")]
    NotLoopback {
        /// The address.
        address: std::net::IpAddr,
    },
    /// Every address of this host is listened on, and none would be told to a peer.
    #[error("{address} leads no peer to this host: set `advertise` to its name or address")]
    Unspecified {
        /// The address.
        address: std::net::IpAddr,
    },
    /// `advertise` cannot be looked up.
    #[error("`advertise` of {host:?} is no host name or IP address: a port is none of it")]
    Advertise {
        /// The setting.
        host: String,
    },
    /// The control channel's address cannot be listened on.
    #[error("cannot listen on {address}: {why}")]
    Listen {
        /// The address.
        address: std::net::SocketAddr,
        /// The system's answer.
        why: std::io::Error,
    },
    /// The certificate is for another name or address.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The data endpoint did not open.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The engine's memory was not registered.
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// Reads would fail at once, or never.
    #[error("`read_timeout` of {read_timeout:?} must be more than zero and at most a day")]
    ReadTimeout {
        /// The setting.
        read_timeout: std::time::Duration,
    },
    /// The worker is none of its engine's.
    #[error("the engine has no rank {rank}: layouts of {ranks} ranks were given")]
    Rank {
        /// The worker's place.
        rank: u32,
        /// Layouts that were given.
        ranks: usize,
    },
    /// An engine of several ranks where one is expected.
    #[error("an engine of {ranks} ranks: start each of them as a `PrefillRank`")]
    SeveralRanks {
        /// How many.
        ranks: usize,
    },
    /// The bounds cannot work.
    #[error(transparent)]
    Bounds(#[from] BoundsError),
    /// The address is nothing to tell a peer.
    #[error(transparent)]
    Address(#[from] ParamsError),
    /// The system has no random numbers or no file descriptors.
    #[error("cannot start: {0}")]
    System(#[from] std::io::Error),
}

impl StartError {
    /// What to do about it.
    #[must_use]
    pub fn class(&self) -> Class {
        match self {
            Self::System(_) => Class::Exhausted,
            Self::Bounds(why) => why.class(),
            Self::Address(why) => why.class(),
            _ => Class::Config,
        }
    }
}

/// Why a finished prefill was not offered. Its blocks may be reused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OfferError {
    /// The request's name cannot be sent.
    #[error(transparent)]
    Request(#[from] RequestIdError),
    /// Not one table for each group of the engine's layout.
    #[error("{tables} block tables for the {groups} KV cache groups of the layout")]
    Tables {
        /// Tables that came.
        tables: usize,
        /// Groups of the layout.
        groups: usize,
    },
    /// Tables and layout make no blocks that could be read.
    #[error("the blocks cannot be granted: {0}")]
    Blocks(#[from] strided::Error),
    /// It cannot be leased.
    #[error(transparent)]
    Finish(#[from] FinishError),
    /// The system has no random numbers.
    #[error("cannot draw a nonce: {0}")]
    System(std::io::Error),
    /// The agent has stopped.
    #[error("the agent has stopped")]
    Stopped,
}

impl OfferError {
    /// What to do about it.
    #[must_use]
    pub fn class(&self) -> Class {
        match self {
            Self::Request(why) => why.class(),
            Self::Finish(why) => why.class(),
            Self::System(_) => Class::Exhausted,
            Self::Tables { .. } | Self::Blocks(_) | Self::Stopped => Class::Bug,
        }
    }
}

/// Why a request was not received. Nothing can touch its blocks any more.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    /// The request's name cannot be sent.
    #[error(transparent)]
    Request(#[from] RequestIdError),
    /// The parameters name nothing that can be fetched.
    #[error("kv_transfer_params: {0}")]
    Params(#[from] ParamsError),
    /// The peer's control channel cannot be opened.
    #[error("cannot reach the prefill engine at {address}: {why}")]
    Control {
        /// Where it should be.
        address: String,
        /// What went wrong.
        why: Arc<ControlError>,
    },
    /// The way to the peer leaves this host, and nobody has to prove anything.
    #[error("{address} is not a loopback address: connecting there needs a secret")]
    NotLoopback {
        /// The address.
        address: String,
    },
    /// The way to the peer is not on the [allow-list](crate::AllowList).
    #[error("{address} is at {found}, which is not on the list of allowed addresses")]
    NotAllowed {
        /// As it was given.
        address: String,
        /// Where that leads.
        found: std::net::IpAddr,
    },
    /// An address such as 0.0.0.0.
    #[error("{address} names no host: the prefill engine must advertise one")]
    Nowhere {
        /// The address.
        address: String,
    },
    /// The peer sends this side to another host for its blocks.
    #[error(
        "the prefill engine at {peer} has its blocks on another host, {card}: only a list of \
         allowed addresses can permit that"
    )]
    Elsewhere {
        /// Where it is reached.
        peer: std::net::SocketAddr,
        /// Where it says that its blocks are.
        card: std::net::SocketAddr,
    },
    /// The wanted provider does not work between the two.
    #[error("the prefill engine cannot be read by {wanted}: {why}")]
    Provider {
        /// The setting.
        wanted: Provider,
        /// What is in the way.
        why: String,
        /// What to do about it.
        class: Class,
    },
    /// No provider in common.
    #[error("the prefill engine offers no transport that this side has")]
    NoProvider,
    /// The peer's data endpoint cannot be connected to.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The peer keeps another model.
    #[error(transparent)]
    Mismatch(#[from] Mismatch),
    /// The two layouts do not pair.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A block of the request would be written twice.
    #[error(transparent)]
    Overlap(#[from] kv_layout::Overlap),
    /// The plan reads from a rank that nothing was claimed from.
    #[error("the plan reads from rank {rank}, which was not asked")]
    Unclaimed {
        /// The prefill engine's rank.
        rank: usize,
    },
    /// The hand-off failed.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// The same request is being fetched already.
    #[error("the request is under way already")]
    UnderWay,
    /// Nothing of the request is to be read at this rank, and that is right.
    #[error("there is nothing to read at this rank")]
    Nothing,
    /// It was given up as wished.
    #[error("the request was given up")]
    Released,
    /// The agent has stopped.
    #[error("the agent has stopped")]
    Stopped,
}

impl FetchError {
    /// What the engine's [scheduler](connector::Scheduler::ended) must be told of this rank.
    #[must_use]
    pub fn ended(&self) -> Ended {
        match self {
            Self::Nothing => Ended::Nothing,
            Self::Released => Ended::Released,
            Self::Failed(failure) => Ended::Failed(failure.clone()),
            other => match other.class() {
                Class::PeerLost => Ended::Failed(Failure::Handshake),
                class => Ended::Failed(Failure::Local(class)),
            },
        }
    }

    /// What to do about it.
    #[must_use]
    pub fn class(&self) -> Class {
        match self {
            Self::Request(why) => why.class(),
            Self::Params(why) => why.class(),
            Self::Failed(why) => why.class(),
            Self::Mismatch(why) => why.class(),
            Self::Control { why, .. } => why.class(),
            Self::Provider { class, .. } => *class,
            Self::Released | Self::Nothing => Class::Retry,
            Self::Stopped | Self::UnderWay | Self::Unclaimed { .. } | Self::Overlap(_) => {
                Class::Bug
            }
            Self::Elsewhere { .. } => Class::Protocol,
            Self::NotLoopback { .. }
            | Self::NotAllowed { .. }
            | Self::Nowhere { .. }
            | Self::NoProvider
            | Self::Connect(_)
            | Self::Plan(_) => Class::Config,
        }
    }
}
