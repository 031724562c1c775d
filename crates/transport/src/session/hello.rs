use std::ops::RangeInclusive;

use crate::AgentId;

/// Bytes of a hello.
pub const HELLO_LEN: usize = 64;

/// The protocol versions that this build speaks: 2 has frames of 64 bytes, and signs of life that
/// are answered.
pub const VERSIONS: RangeInclusive<u16> = 2..=2;

const MAGIC: [u8; 8] = *b"KVFERRY\0";

/// What an agent does on a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Role {
    /// Has KV and serves reads.
    Prefill,
    /// Wants KV and reads.
    Decode,
}

impl Role {
    /// The part of whoever talks to this one.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::Prefill => Self::Decode,
            Self::Decode => Self::Prefill,
        }
    }
}

/// What a socket carries after the hellos.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Channel {
    /// Messages of the hand-off protocol.
    Control,
    /// Blocks.
    Data,
}

/// What each side of a new socket says first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The protocol versions that the sender speaks.
    pub versions: RangeInclusive<u16>,
    /// The sender's part.
    pub role: Role,
    /// What the socket is for.
    pub channel: Channel,
    /// Which stream of its channel this socket is, from 0.
    pub stream: u16,
    /// How many streams the channel has.
    pub streams: u16,
    /// Drawn by the engine at its start.
    pub engine: u64,
    /// The agent, drawn at its start.
    pub agent: AgentId,
    /// Fresh for each channel of a dialler, and for each socket of a listener.
    pub random: [u8; 16],
    /// The sender proves that it has a secret, and wants the same of the other side. A
    /// [`Greeting`](super::Greeting) sets it.
    pub proves: bool,
}

/// Why a hello is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HelloError {
    /// Something else talks to this port.
    #[error("not a hello")]
    Magic,
    /// The range of versions is empty.
    #[error("the range of protocol versions {min} to {max} is empty")]
    Range {
        /// First of the range.
        min: u16,
        /// Last of the range.
        max: u16,
    },
    /// A role of a later version.
    #[error("unknown role {0}")]
    Role(u8),
    /// A channel of a later version.
    #[error("unknown channel {0}")]
    Channel(u8),
    /// A kind of proof of a later version.
    #[error("unknown kind of proof {0}")]
    Proof(u8),
    /// A stream that its channel does not have.
    #[error("stream {stream} of {streams}")]
    Stream {
        /// Which one it is.
        stream: u16,
        /// How many there are.
        streams: u16,
    },
    /// Both sides have no version in common.
    #[error("no common protocol version: this side speaks {own:?}, the other {theirs:?}")]
    Version {
        /// This side's.
        own: RangeInclusive<u16>,
        /// The other side's.
        theirs: RangeInclusive<u16>,
    },
}

impl Hello {
    /// The bytes on the wire.
    #[must_use]
    pub fn encode(&self) -> [u8; HELLO_LEN] {
        let mut bytes = [0; HELLO_LEN];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&self.versions.start().to_le_bytes());
        bytes[10..12].copy_from_slice(&self.versions.end().to_le_bytes());
        bytes[12] = match self.role {
            Role::Prefill => 1,
            Role::Decode => 2,
        };
        bytes[13] = match self.channel {
            Channel::Control => 1,
            Channel::Data => 2,
        };
        bytes[14..16].copy_from_slice(&self.stream.to_le_bytes());
        bytes[16..18].copy_from_slice(&self.streams.to_le_bytes());
        bytes[18] = u8::from(self.proves);
        bytes[24..32].copy_from_slice(&self.engine.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.agent.0.to_le_bytes());
        bytes[40..56].copy_from_slice(&self.random);
        bytes
    }

    /// Reads a hello of any version.
    ///
    /// # Errors
    /// Every variant of [`HelloError`] but [`HelloError::Version`].
    pub fn decode(bytes: &[u8; HELLO_LEN]) -> Result<Self, HelloError> {
        if bytes[..8] != MAGIC {
            return Err(HelloError::Magic);
        }
        let u16_at = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let (min, max) = (u16_at(8), u16_at(10));
        let (stream, streams) = (u16_at(14), u16_at(16));
        if min > max {
            return Err(HelloError::Range { min, max });
        }
        if stream >= streams {
            return Err(HelloError::Stream { stream, streams });
        }
        Ok(Self {
            versions: min..=max,
            role: role(bytes[12])?,
            channel: channel(bytes[13])?,
            stream,
            streams,
            engine: u64::from_le_bytes(part(bytes, 24)),
            agent: AgentId(u64::from_le_bytes(part(bytes, 32))),
            random: part(bytes, 40),
            proves: proves(bytes[18])?,
        })
    }

    /// The newest version that both sides speak.
    ///
    /// # Errors
    /// [`HelloError::Version`] when there is none.
    pub fn agree(&self, own: &RangeInclusive<u16>) -> Result<u16, HelloError> {
        let newest = *self.versions.end().min(own.end());
        let oldest = *self.versions.start().max(own.start());
        if newest < oldest {
            return Err(HelloError::Version { own: own.clone(), theirs: self.versions.clone() });
        }
        Ok(newest)
    }
}

fn role(byte: u8) -> Result<Role, HelloError> {
    match byte {
        1 => Ok(Role::Prefill),
        2 => Ok(Role::Decode),
        other => Err(HelloError::Role(other)),
    }
}

fn channel(byte: u8) -> Result<Channel, HelloError> {
    match byte {
        1 => Ok(Channel::Control),
        2 => Ok(Channel::Data),
        other => Err(HelloError::Channel(other)),
    }
}

fn proves(byte: u8) -> Result<bool, HelloError> {
    match byte {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(HelloError::Proof(other)),
    }
}

/// `N` bytes from `at` on, which lie inside a hello.
fn part<const N: usize>(bytes: &[u8; HELLO_LEN], at: usize) -> [u8; N] {
    std::array::from_fn(|index| bytes[at + index])
}
