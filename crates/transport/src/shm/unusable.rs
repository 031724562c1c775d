use std::fmt::Display;
use std::io;

use crate::{Class, TransferError};

/// Why the memory of a source cannot be read from this process.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unusable {
    /// The card belongs to another provider.
    #[error("a card of provider {found} was given to provider shm")]
    Provider {
        /// The card's.
        found: &'static str,
    },
    /// The card was not made by a source.
    #[error("{address:?} is not an address of shared memory")]
    Address {
        /// As the card has it.
        address: String,
    },
    /// Memory is shared within a host only.
    #[error("the source is on another host (boot id {theirs}, here {own}): use a network provider")]
    OtherHost {
        /// This host's boot id.
        own: String,
        /// The source's.
        theirs: String,
    },
    /// Nobody listens there that this process can see.
    #[error(
        "no socket {name} in this network namespace ({why}): the source has ended, or runs in \
         another network namespace; give both containers the same one"
    )]
    NoSocket {
        /// What it is called.
        name: String,
        /// The system's words.
        why: String,
    },
    /// Only processes of one user share memory.
    #[error("the source runs as user {theirs} and this process as user {own}: run both as one")]
    OtherUser {
        /// This process's user.
        own: u32,
        /// The source's.
        theirs: u32,
    },
    /// One side did not take the other for what it should be: another secret, another agent.
    #[error("the source and this side do not know each other: {why}")]
    Greeting {
        /// What is wrong.
        why: String,
    },
    /// The source's process has no number here, or another one.
    #[error(
        "the source's process is not visible here: there is no shared PID namespace; give both \
         containers the same one, or let the source keep its blocks in `SharedMemory`"
    )]
    NoSharedPids,
    /// The Yama security module forbids it.
    #[error(
        "reading the source's memory is forbidden by kernel.yama.ptrace_scope = {scope}: set it \
         to 0 or 1, or let the source keep its blocks in `SharedMemory`"
    )]
    PtraceScope {
        /// Its value.
        scope: u32,
    },
    /// Something else forbids it.
    #[error(
        "reading the source's memory is refused ({why}): the source is not dumpable, or a \
         seccomp filter or security module forbids process_vm_readv; allow it (in a container: \
         --cap-add SYS_PTRACE), or let the source keep its blocks in `SharedMemory`"
    )]
    Refused {
        /// The system's words.
        why: String,
    },
    /// What was read is not what the source shows.
    #[error(
        "the process that has the source's number is another one: its memory is not the source's"
    )]
    OtherMemory,
    /// The connection broke while it was made, or the source said nothing.
    #[error("the source was lost: {why}")]
    Lost {
        /// What was seen.
        why: TransferError,
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

impl Unusable {
    /// What to do about it.
    #[must_use]
    pub fn class(&self) -> Class {
        match self {
            Self::Provider { .. } => Class::Bug,
            Self::Address { .. } | Self::OtherMemory => Class::Protocol,
            Self::NoSocket { .. } | Self::Lost { .. } => Class::PeerLost,
            Self::System { .. } => Class::Exhausted,
            Self::OtherHost { .. }
            | Self::OtherUser { .. }
            | Self::Greeting { .. }
            | Self::NoSharedPids
            | Self::PtraceScope { .. }
            | Self::Refused { .. } => Class::Config,
        }
    }

    /// Turns the system's error into this one.
    pub(super) fn system<E: Display>(what: &'static str) -> impl FnOnce(E) -> Self {
        move |why| Self::System { what, why: why.to_string() }
    }

    /// Why reading another process's memory is refused: the system's answer alone does not tell.
    pub(super) fn refused(why: &io::Error) -> Self {
        let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
        let scope = scope.ok().and_then(|scope| scope.trim().parse().ok()).unwrap_or(0);
        // With 1 the source names its readers, so something else is in the way.
        if scope > 1 { Self::PtraceScope { scope } } else { Self::Refused { why: why.to_string() } }
    }
}

impl From<TransferError> for Unusable {
    fn from(why: TransferError) -> Self {
        Self::Lost { why }
    }
}
