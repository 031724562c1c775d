use std::time::Duration;

use libfabric_sys::{LoadError, Version};

use super::Work;
use crate::Class;

/// Why a driver was not opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// A setting that cannot work.
    #[error("{setting} must be {rule}")]
    Config {
        /// Which one.
        setting: &'static str,
        /// What it must be.
        rule: &'static str,
    },
    /// There is no library that can be used.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// With this library the provider would do without the card's RDMA, and say nothing.
    #[error("{provider} needs libfabric {least} or later, and this is {found}")]
    TooOld {
        /// The provider.
        provider: String,
        /// What is here.
        found: Version,
        /// What it needs.
        least: Version,
    },
    /// The library has nothing of that name that could be used here.
    #[error(
        "libfabric {version} offers no {provider} here{}: {why}",
        at.as_ref().map(|at| format!(" at {at}")).unwrap_or_default()
    )]
    NotOffered {
        /// Its version.
        version: Version,
        /// What was asked for.
        provider: String,
        /// The address that was asked for.
        at: Option<String>,
        /// Its words.
        why: String,
    },
    /// The library refused.
    #[error("libfabric cannot {what}: {why}")]
    Refused {
        /// What it refused.
        what: &'static str,
        /// Its words.
        why: String,
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

/// Why memory was not registered or not deregistered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// There are no bytes to register.
    #[error("there are no bytes to register")]
    Empty,
    /// It has more parts than peers can be told of.
    #[error("{parts} parts of memory, where {most} are the most")]
    TooMany {
        /// How many there would be.
        parts: u64,
        /// How many there may be.
        most: u64,
    },
    /// Memory of a device, where it was not spoken of when the driver was opened.
    #[error("the driver was not opened for memory of devices")]
    NoDevices,
    /// The card or the library refused; often a limit on locked memory.
    #[error("{bytes} bytes cannot be registered: {why}")]
    Refused {
        /// How many.
        bytes: u64,
        /// Its words.
        why: String,
    },
    /// Works still use it.
    #[error("the memory is in use")]
    InUse,
    /// The library does not end it: peers may still reach the memory, which is kept for good.
    #[error("libfabric does not end the registration: {why}")]
    StillOpen {
        /// Its words.
        why: String,
    },
    /// It was not registered here, or is not any more.
    #[error("there is no such registration")]
    Unknown,
    /// The driver has ended.
    #[error("the driver has ended")]
    Gone,
}

/// Why a peer is not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PeerError {
    /// These bytes are no address of this fabric.
    #[error("no address of this fabric: {why}")]
    Address {
        /// What is wrong with them.
        why: &'static str,
    },
    /// The library refused.
    #[error("libfabric does not take the address: {why}")]
    Refused {
        /// Its words.
        why: String,
    },
    /// The driver has ended.
    #[error("the driver has ended")]
    Gone,
}

/// Why a move is not part of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// Bytes that the local memory does not have.
    #[error("local bytes up to {end} of a memory of {len}")]
    Local {
        /// First byte behind them.
        end: u64,
        /// Bytes of the memory.
        len: u64,
    },
    /// Bytes that the remote memory does not have.
    #[error("remote bytes up to {end} of a memory of {len}")]
    Remote {
        /// First byte behind them.
        end: u64,
        /// Bytes of the memory.
        len: u64,
    },
    /// More operations than one plan may have.
    #[error("more than {most} operations")]
    TooMany {
        /// How many there may be.
        most: usize,
    },
}

/// Why a work was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WorkErrorKind {
    /// A work of that name is open, or its end was not yet polled.
    #[error("a work of this name is open")]
    IdInUse,
    /// Too many works are open.
    #[error("the queue is full")]
    QueueFull,
    /// It has more operations than a counter can tell apart.
    #[error("{operations} operations, where {most} can be counted")]
    TooMany {
        /// How many it has.
        operations: usize,
        /// How many there may be.
        most: usize,
    },
    /// The card's writes carry no word, or too short a one.
    #[error("this fabric cannot count writes")]
    NoCounting,
    /// The driver has ended.
    #[error("the driver has ended")]
    Gone,
}

/// A work that was not accepted, and why.
#[derive(Debug, thiserror::Error)]
#[error("{why}")]
pub struct RejectedWork {
    /// The reason.
    pub why: WorkErrorKind,
    /// The work, untouched.
    pub work: Box<Work>,
}

/// Why an accepted work failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WorkError {
    /// The peer is not known, or not any more.
    #[error("the peer is not known")]
    NoPeer,
    /// Local memory is not registered any more.
    #[error("local memory is not registered")]
    NoMemory,
    /// An operation failed.
    #[error("an operation failed: {why} ({code})")]
    Operation {
        /// The library's number for it.
        code: i32,
        /// Its words.
        why: String,
    },
    /// The endpoint was closed.
    #[error("the work was fenced")]
    Fenced,
    /// The endpoint cannot be used any more; a fence may mend it.
    #[error("the endpoint is broken: {why}")]
    Broken {
        /// What was seen.
        why: String,
    },
}

impl WorkError {
    /// What to do about it.
    #[must_use]
    pub fn class(&self) -> Class {
        match self {
            Self::NoPeer | Self::Operation { .. } => Class::PeerLost,
            Self::NoMemory => Class::Bug,
            Self::Fenced | Self::Broken { .. } => Class::Retry,
        }
    }
}

/// Why a fence did not do all that it should.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FenceError {
    /// The endpoint may still be open: no work has ended whose operations were in flight, and
    /// local memory may be written. No later fence mends that, and what the endpoint may touch is
    /// kept for good.
    #[error("libfabric does not close the endpoint: {why}")]
    StillOpen {
        /// Its words.
        why: String,
    },
    /// It is closed and everything has ended, but there is no new one.
    #[error("the endpoint is closed and cannot be opened anew: {why}")]
    NotReopened {
        /// Its words.
        why: String,
    },
    /// The library is still closing the endpoint: nothing has ended, and local memory may be
    /// written. What ends later is told of as ever; another fence gives the new address.
    #[error("libfabric has not closed the endpoint after {waited:?}")]
    Late {
        /// How long was waited for it.
        waited: Duration,
    },
    /// The driver has ended, and closed its endpoint as it did.
    #[error("the driver has ended")]
    Gone,
}

/// Why a counter is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CounterError {
    /// All are in use.
    #[error("all counters are in use")]
    Exhausted,
    /// It is not in use, or not any more.
    #[error("the counter is not in use")]
    Unknown,
    /// It was told another number before.
    #[error("the counter waits for {before} writes already")]
    Told {
        /// That number.
        before: u32,
    },
    /// Nothing can be counted so far.
    #[error("a counter waits for 1 to 65536 writes, not for {total}")]
    Total {
        /// What was asked for.
        total: u32,
    },
    /// Writes came that the announced ones cannot be.
    #[error("there were writes beyond the announced {total}")]
    Overrun {
        /// How many were announced.
        total: u32,
    },
}
