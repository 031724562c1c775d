//! Two engines, one process a rank: the parent, or one on each of two hosts, plays both schedulers
//! and the router.

mod child;
mod errors;
mod hosts;
mod loss;
mod messages;
mod prefill;
mod router;
mod shapes;
mod side;
mod ways;
pub(crate) mod worker;

pub(crate) use hosts::{Door, Link, Remote, Served, Socket, dial, serve};
pub(crate) use loss::FirstLoss;
pub(crate) use messages::{Account, Figures, Told};
pub(crate) use prefill::Prefill;
pub(crate) use router::{Accounts, Pair};
pub(crate) use shapes::{Shape, Shapes};
pub(crate) use side::Common;
pub(crate) use ways::Ways;

use std::fmt;

use clap::ValueEnum;
use kvferry::connector::{PromptDigest, PromptIdentity};

/// Which side a worker is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Role {
    Prefill,
    Decode,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Prefill => "prefill",
            Self::Decode => "decode",
        })
    }
}

/// What stands for the model in the digest of a prompt.
const MODEL: &str = "kvferry/pattern";

/// The prompt of a request, as everybody knows it without asking each other.
fn prompt(request: u64, tokens: u64) -> PromptDigest {
    let first = sim::pattern::seed(request, 0, 0, 0);
    let ids: Vec<u32> = (0..tokens).map(|i| token_id(first.wrapping_add(i))).collect();
    PromptIdentity { tokens: &ids, model: MODEL, ..PromptIdentity::default() }.digest()
}

/// A token id of a vocabulary of 2^17.
fn token_id(number: u64) -> u32 {
    u32::try_from(number % (1 << 17)).unwrap_or(0)
}

/// The decode engine computes the last token of a prompt itself.
fn resume_at(tokens: u64) -> u64 {
    tokens.saturating_sub(1)
}
