//! The control channel: a greeting, a handshake body, then frames.

mod frames;
mod open;

pub(crate) use frames::{BEAT, Inbound, Outbound};
pub(crate) use open::{Dialled, Opened, accept, dial};

use std::time::Duration;

use connector::Class;
use transport::session::GreetingError;

use crate::greet::GreetError;

/// A peer says who it is within this time or is dropped; its name is resolved and its socket
/// connected within the same time each.
pub(crate) const HANDSHAKE: Duration = Duration::from_secs(5);

/// Why a control channel could not be opened or broke.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// The network's answer.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// The peer did not say who it is in time.
    #[error("no handshake within {} s", HANDSHAKE.as_secs())]
    Slow,
    /// Something on the way to the peer did not end in time.
    #[error("no {what} within {} s", HANDSHAKE.as_secs())]
    Late {
        /// What was waited for.
        what: &'static str,
    },
    /// The channel stands, and nothing comes over it.
    #[error("the peer shows no sign of life")]
    Silent,
    /// The hello and the body name two different peers.
    #[error("{what} is {hello:#x} in the hello and {body:#x} in the handshake")]
    Identity {
        /// `engine` or `agent`.
        what: &'static str,
        /// What the hello says.
        hello: u64,
        /// What the body says.
        body: u64,
    },
    /// The rank that answers is not the one that was asked for.
    #[error("it is rank {rank} of {ranks}, not rank {index} of {count}")]
    Place {
        /// Which rank it is.
        rank: u32,
        /// Of how many.
        ranks: u32,
        /// Which it should be.
        index: usize,
        /// Of how many.
        count: usize,
    },
    /// The ranks of one engine are of two of its lives: it is just starting anew.
    #[error("the engine of this rank is {other:#x}, and {first:#x} that of rank 0")]
    Lives {
        /// The engine epoch of rank 0.
        first: u64,
        /// That of another rank.
        other: u64,
    },
    /// The peer keeps another model.
    #[error(transparent)]
    Mismatch(#[from] connector::handshake::Mismatch),
    /// The peer is not who it should be, or does not prove that it is.
    #[error(transparent)]
    Greeting(#[from] GreetingError),
    /// The handshake body is not acceptable.
    #[error(transparent)]
    Handshake(#[from] connector::handshake::HandshakeError),
    /// A frame that is no message.
    #[error(transparent)]
    Frame(#[from] connector::codec::CodecError),
}

impl From<GreetError> for ControlError {
    fn from(why: GreetError) -> Self {
        match why {
            GreetError::Io(why) => Self::Io(why),
            GreetError::Greeting(why) => Self::Greeting(why),
        }
    }
}

impl ControlError {
    /// What to do about it.
    pub(crate) fn class(&self) -> Class {
        match self {
            Self::Identity { .. } | Self::Place { .. } | Self::Handshake(_) | Self::Frame(_) => {
                Class::Protocol
            }
            Self::Greeting(why) if why.class() == transport::Class::Config => Class::Config,
            _ => Class::PeerLost,
        }
    }
}

#[cfg(test)]
#[path = "control/open_tests.rs"]
mod tests;
