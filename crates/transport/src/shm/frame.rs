//! The frames of a connection, of the form that those of `tcp` have. A request
//! and a show are followed by their bytes.

use super::frames::{Frame, pack, unpack};
use super::{MAX_REQUEST_BYTES, MAX_SHOW_BYTES};

/// What a reader says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ToSource {
    /// May I read what the `len` bytes that follow describe?
    Request { transfer: u64, token: u64, len: u32 },
    /// Nothing of a transfer that was allowed is read any more.
    Over { transfer: u64 },
    /// What was withdrawn is unmapped.
    Withdrawn { generation: u64 },
    /// Show something to measure with.
    Probe,
}

/// What a source says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ToReader {
    /// The `len` bytes that follow describe a registration, whose file may come along.
    Show { generation: u64, len: u32 },
    /// All registrations were shown; the word at this address of this process is the nonce.
    Here { pid: u32, address: u64, nonce: u64 },
    /// A registration has ended.
    Withdraw { generation: u64 },
    /// Whether a transfer may be read.
    Answer { transfer: u64, granted: bool },
    /// A transfer may not be read any more.
    Stop { transfer: u64 },
    /// Bytes to measure with, whose file comes along.
    Buffer { address: u64, len: u64 },
}

const REQUEST: u32 = 1;
const OVER: u32 = 2;
const WITHDRAWN: u32 = 3;
const PROBE: u32 = 4;
const SHOW: u32 = 5;
const HERE: u32 = 6;
const WITHDRAW: u32 = 7;
const ANSWER: u32 = 8;
const STOP: u32 = 9;
const BUFFER: u32 = 10;

impl ToSource {
    pub(super) fn encode(self) -> Frame {
        match self {
            Self::Request { transfer, token, len } => pack(REQUEST, len, transfer, token),
            Self::Over { transfer } => pack(OVER, 0, transfer, 0),
            Self::Withdrawn { generation } => pack(WITHDRAWN, 0, generation, 0),
            Self::Probe => pack(PROBE, 0, 0, 0),
        }
    }

    /// With the number of bytes that follow; `None` for what no reader says.
    pub(super) fn decode(frame: &Frame) -> Option<(Self, usize)> {
        let said = match unpack(frame)? {
            (REQUEST, len, transfer, token) => {
                let follow = limited(len, MAX_REQUEST_BYTES)?;
                return Some((Self::Request { transfer, token, len }, follow));
            }
            (OVER, 0, transfer, 0) => Self::Over { transfer },
            (WITHDRAWN, 0, generation, 0) => Self::Withdrawn { generation },
            (PROBE, 0, 0, 0) => Self::Probe,
            _ => return None,
        };
        Some((said, 0))
    }
}

impl ToReader {
    pub(super) fn encode(self) -> Frame {
        match self {
            Self::Show { generation, len } => pack(SHOW, len, generation, 0),
            Self::Here { pid, address, nonce } => pack(HERE, pid, address, nonce),
            Self::Withdraw { generation } => pack(WITHDRAW, 0, generation, 0),
            Self::Answer { transfer, granted } => pack(ANSWER, u32::from(granted), transfer, 0),
            Self::Stop { transfer } => pack(STOP, 0, transfer, 0),
            Self::Buffer { address, len } => pack(BUFFER, 0, address, len),
        }
    }

    /// With the number of bytes that follow; `None` for what no source says.
    pub(super) fn decode(frame: &Frame) -> Option<(Self, usize)> {
        let said = match unpack(frame)? {
            (SHOW, len, generation, 0) => {
                let follow = limited(len, MAX_SHOW_BYTES)?;
                return Some((Self::Show { generation, len }, follow));
            }
            (HERE, pid, address, nonce) => Self::Here { pid, address, nonce },
            (WITHDRAW, 0, generation, 0) => Self::Withdraw { generation },
            (ANSWER, granted @ 0..=1, transfer, 0) => {
                Self::Answer { transfer, granted: granted == 1 }
            }
            (STOP, 0, transfer, 0) => Self::Stop { transfer },
            (BUFFER, 0, address, len) => Self::Buffer { address, len },
            _ => return None,
        };
        Some((said, 0))
    }
}

fn limited(len: u32, most: usize) -> Option<usize> {
    usize::try_from(len).ok().filter(|&len| len <= most)
}

#[cfg(test)]
#[path = "frame_tests.rs"]
mod tests;
