//! What the parent and a worker say over the pipe: one JSON object a line.

use std::time::Duration;

use kvferry::Counts;
use kvferry::connector::LeaseId;
use kvferry::connector::params::RankAddress;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::ways::Ways;
use crate::failure::{Code, Failure};

/// To a worker.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "snake_case")]
pub(super) enum ToWorker {
    /// P: compute this rank's KV cache of a prompt of so many tokens, and keep it for a lease.
    Prefill { request: u64, tokens: u64, lease: LeaseId },
    /// D: fetch this rank's KV cache of a prompt.
    Receive { request: u64, tokens: u64, params: Value },
    /// D: the request is over, or given up.
    Dismiss { request: u64 },
    /// Say that you run.
    Ping,
    /// Wait until everything is given back, then account and end.
    Finish,
}

/// From a worker.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "snake_case")]
pub(super) enum FromWorker {
    /// It can be asked; as P, peers reach it at this address. Its pool has so many blocks.
    Ready { address: Option<RankAddress>, blocks: usize },
    /// It runs. Said every now and then, and when asked, so that silence means something.
    Here,
    /// P: the rank's KV cache of a prompt waits.
    Kept { request: u64 },
    /// P: nobody reads the rank's blocks of a lease any more.
    Freed { lease: LeaseId },
    /// D: the rank's KV cache of a prompt is there, every byte of it checked.
    Received { request: u64, figures: Figures },
    /// D: the request's blocks were checked once more and given back.
    Dismissed { request: u64 },
    /// What was asked of it for a request failed.
    Refused { request: u64, failure: Told },
    /// The last words.
    Finished { account: Account },
    /// The last words when something failed.
    Failed(Told),
}

/// A failure as it is told to the parent.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Told {
    message: String,
    hint: Option<String>,
    exit_code: u8,
}

impl From<Failure> for Told {
    fn from(Failure { code, message, hint }: Failure) -> Self {
        Self { message, hint, exit_code: code as u8 }
    }
}

impl From<Told> for Failure {
    fn from(Told { message, hint, exit_code }: Told) -> Self {
        Self { code: Code::from_number(exit_code), message, hint }
    }
}

/// What one hand-off took.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Figures {
    /// Bytes that moved.
    pub(crate) bytes: u64,
    /// Time that the hand-off took, from the parameters to the commit, less the time that the
    /// request waited for blocks.
    pub(crate) latency: Duration,
    /// The share of it after the claim: planning, reading, commit.
    pub(crate) reading: Duration,
    pub(crate) ways: Ways,
}

impl Figures {
    /// With another rank's, which read side by side with this one.
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            bytes: self.bytes + other.bytes,
            latency: self.latency.max(other.latency),
            reading: self.reading.max(other.reading),
            ways: self.ways.and(other.ways),
        }
    }
}

/// What a worker, or all workers of a side, hold when all is done.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Account {
    pub(crate) ranks: usize,
    /// Blocks that were never given back.
    pub(crate) leaked_blocks: usize,
    pub(crate) leases: usize,
    pub(crate) claims: usize,
    pub(crate) tokens: usize,
    pub(crate) receives: usize,
    /// Of the process that had most.
    pub(crate) peak_resident_bytes: u64,
}

impl Account {
    pub(super) fn new(engine: &sim::Engine, counts: Counts) -> Self {
        Self {
            ranks: 1,
            leaked_blocks: engine.capacity() - engine.free_blocks(),
            leases: counts.leases,
            claims: counts.claims,
            tokens: counts.tokens,
            receives: counts.receives,
            peak_resident_bytes: crate::process::peak_resident_bytes(),
        }
    }

    /// With another rank's.
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            ranks: self.ranks + other.ranks,
            leaked_blocks: self.leaked_blocks + other.leaked_blocks,
            leases: self.leases + other.leases,
            claims: self.claims + other.claims,
            tokens: self.tokens + other.tokens,
            receives: self.receives + other.receives,
            peak_resident_bytes: self.peak_resident_bytes.max(other.peak_resident_bytes),
        }
    }

    /// Whether nothing is left.
    pub(crate) fn is_clean(&self) -> bool {
        let Self { leaked_blocks, leases, claims, tokens, receives, .. } = *self;
        [leaked_blocks, leases, claims, tokens, receives].iter().all(|&left| left == 0)
    }
}
