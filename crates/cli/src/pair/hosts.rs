//! Two engines on two hosts: the link between the parents, over which the parameters of each
//! hand-off travel as a router would carry them. The ranks talk to each other by themselves.
//!
//! Both greet as agents do, and prove the same secret; then each says JSON, one object a line.
//! Whoever has nothing to say shows that it runs by an empty line.

mod dial;
mod door;
mod ear;
mod greet;
mod link;
mod remote;
mod serve;

pub(crate) use dial::dial;
pub(crate) use door::Door;
pub(crate) use link::{Link, Socket};
pub(crate) use remote::Remote;
pub(crate) use serve::serve;

use std::time::Duration;

use kv_layout::EngineShape;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::messages::Account;

/// Each step up to the first words of both sides takes this long at most.
const GREETING: Duration = Duration::from_secs(5);

/// From the parent of the decode engine.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "snake_case")]
enum Ask {
    /// The first word: prompts of so many tokens will be asked for.
    Begin { tokens: u64 },
    /// Compute a prompt.
    Prompt { request: u64, tokens: u64 },
    /// Nothing more will be asked for: account and end.
    Finish,
}

/// From the parent of the prefill engine.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "snake_case")]
enum Answer {
    /// The prompts fit; this is the engine that computes them.
    Welcome { shape: EngineShape },
    /// Where a prompt's KV cache waits.
    Offered { request: u64, params: Value },
    /// The last word.
    Finished { account: Account },
}

/// Requests that were served to another host, and what is left of them.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Served {
    pub(crate) requests: u64,
    pub(crate) account: Account,
}

#[cfg(test)]
mod tests;
