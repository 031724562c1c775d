//! What the two processes say over the pipe: one JSON object a line. The decode worker's
//! process also plays the router that carries the parameters.

use kvferry::Counts;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// To the prefill worker.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "snake_case")]
pub(super) enum ToPrefill {
    /// Compute the KV cache of a prompt of so many tokens.
    Prefill { request: u64, tokens: u64 },
    /// Wait until everything is read, then account and end.
    Finish,
}

/// From the prefill worker.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "snake_case")]
pub(super) enum FromPrefill {
    /// It listens and can be asked.
    Ready,
    /// A prompt's KV cache waits.
    Offered { request: u64, params: Value },
    /// The last words.
    Finished { account: Account },
    /// The last words when something failed.
    Failed { message: String, hint: Option<String>, exit_code: u8 },
}

/// What a worker holds when all is done.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Account {
    /// Blocks that were never given back.
    pub(crate) leaked_blocks: usize,
    pub(crate) leases: usize,
    pub(crate) claims: usize,
    pub(crate) tokens: usize,
    pub(crate) receives: usize,
    pub(crate) peak_resident_bytes: u64,
}

impl Account {
    pub(super) fn new(engine: &sim::Engine, counts: Counts) -> Self {
        Self {
            leaked_blocks: engine.capacity() - engine.free_blocks(),
            leases: counts.leases,
            claims: counts.claims,
            tokens: counts.tokens,
            receives: counts.receives,
            peak_resident_bytes: crate::process::peak_resident_bytes(),
        }
    }

    /// Whether nothing is left.
    pub(crate) fn is_clean(&self) -> bool {
        let Self { leaked_blocks, leases, claims, tokens, receives, .. } = *self;
        [leaked_blocks, leases, claims, tokens, receives].iter().all(|&left| left == 0)
    }
}
