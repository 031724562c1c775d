//! The frames of the control channel: a length of 32 bits, little-endian, then a [`Message`]
//! in bincode with integers of fixed width. The only place where bincode stands.
//!
//! [`MAX_FRAME`] is twice the ids of the largest lease
//! ([`MAX_LEASE_BLOCKS`](crate::limits::MAX_LEASE_BLOCKS)): a prompt of 1,000,000 tokens at 16
//! tokens a block in 32 groups.

use bincode::config::{Configuration, Fixint, Limit, LittleEndian};
use bincode::error::{DecodeError, EncodeError};

use crate::class::Class;
use crate::message::Message;

/// Bytes of one message, without its length: 16 MiB.
pub const MAX_FRAME: usize = 16 << 20;

/// Bytes of the length in front of a message.
pub const PREFIX: usize = 4;

/// A frame of no bytes: no message, only a sign of life.
pub const BEAT: [u8; PREFIX] = [0; PREFIX];

const CONFIG: Configuration<LittleEndian, Fixint, Limit<MAX_FRAME>> =
    bincode::config::legacy().with_limit::<MAX_FRAME>();

/// Why a message could not be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// A message longer than [`MAX_FRAME`]. Nothing of it was kept.
    #[error("a message of {bytes} bytes is longer than the {MAX_FRAME} allowed")]
    TooLarge {
        /// Its length.
        bytes: usize,
    },
    /// Bytes that are no message.
    #[error("the frame is no message")]
    Malformed(#[source] DecodeError),
    /// A message with bytes after its end.
    #[error("{bytes} bytes follow the message in its frame")]
    Trailing {
        /// How many.
        bytes: usize,
    },
    /// The message cannot be written.
    #[error("the message cannot be encoded")]
    Encode(#[source] EncodeError),
}

impl CodecError {
    /// What to do about it.
    #[must_use]
    pub fn class(&self) -> Class {
        match self {
            Self::TooLarge { .. } => Class::Exhausted,
            Self::Malformed(_) | Self::Trailing { .. } => Class::Protocol,
            Self::Encode(_) => Class::Bug,
        }
    }
}

/// Writes one frame. The same message always gives the same bytes.
///
/// # Errors
/// [`CodecError::TooLarge`].
pub fn encode(message: &Message) -> Result<Vec<u8>, CodecError> {
    let mut frame = vec![0; PREFIX];
    bincode::serde::encode_into_std_write(message, &mut frame, CONFIG)
        .map_err(CodecError::Encode)?;
    let bytes = frame.len() - PREFIX;
    let length = u32::try_from(limited(bytes)?).map_err(|_| CodecError::TooLarge { bytes })?;
    frame[..PREFIX].copy_from_slice(&length.to_le_bytes());
    Ok(frame)
}

/// Reads the frame at the head of `buffer`: the message and how many bytes to drop, or `None`
/// while the frame is not complete.
///
/// # Errors
/// The connection must be closed: where the next frame starts is unknown.
pub fn decode(buffer: &[u8]) -> Result<Option<(Message, usize)>, CodecError> {
    let Some((prefix, rest)) = buffer.split_first_chunk::<PREFIX>() else { return Ok(None) };
    let bytes = usize::try_from(u32::from_le_bytes(*prefix)).unwrap_or(usize::MAX);
    let Some(frame) = rest.get(..limited(bytes)?) else { return Ok(None) };
    let (message, used) =
        bincode::serde::borrow_decode_from_slice(frame, CONFIG).map_err(CodecError::Malformed)?;
    match bytes - used {
        0 => Ok(Some((message, PREFIX + bytes))),
        bytes => Err(CodecError::Trailing { bytes }),
    }
}

fn limited(bytes: usize) -> Result<usize, CodecError> {
    if bytes > MAX_FRAME { Err(CodecError::TooLarge { bytes }) } else { Ok(bytes) }
}
