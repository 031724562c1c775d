//! What the reader and the source say to each other over their link.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::usage::Usage;
use super::workload::Workload;

/// What failures call the two sides.
pub(super) const SOURCE: &str = "source";
pub(super) const READER: &str = "reader";

/// From the reader.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "snake_case")]
pub(super) enum Ask {
    /// The first word, which no other command begins with: the providers of this side.
    Bench { providers: Vec<String> },
    /// Fill a pool and let it be read; what was there before may go.
    Prepare(Wanted),
    /// What has the process used, up to now?
    Usage,
    /// Nothing more will be asked for.
    Finish,
}

/// What is to be read next.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Wanted {
    pub(super) workload: Workload,
    pub(super) seed: u64,
    /// Whether plain sockets are to be served.
    pub(super) plain: bool,
    /// Whether the bare memory is to be read by this host's other process.
    pub(super) bare: bool,
    /// Who reads over which provider.
    pub(super) readers: Vec<Reader>,
}

/// The agent of an endpoint on the reader's side.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Reader {
    pub(super) provider: String,
    pub(super) agent: u64,
}

/// From the source.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "snake_case")]
pub(super) enum Answer {
    /// These of the reader's providers are here, too.
    Welcome {
        providers: Vec<String>,
    },
    /// The pool can be read: in the order of the readers, by plain sockets, and by the kernel.
    Ready {
        cards: Vec<CardWords>,
        plain: Option<Plain>,
        bare: Option<Bare>,
    },
    Usage(Usage),
    /// The last word.
    Finished,
}

/// A card of [`kvferry::transport`].
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct CardWords {
    pub(super) agent: u64,
    pub(super) address: String,
}

/// Where plain sockets are served, and what they say first.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Plain {
    pub(super) address: SocketAddr,
    pub(super) pass: u64,
}

/// Where the pool lies in the memory of the source's process.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Bare {
    pub(super) process: u32,
    pub(super) base: u64,
}
