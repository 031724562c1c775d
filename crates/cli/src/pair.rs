//! Two engines, one process a rank: the parent plays both schedulers and the router.

mod child;
mod messages;
mod router;
mod shapes;
mod side;
pub(crate) mod worker;

pub(crate) use messages::{Account, Figures};
pub(crate) use router::{Accounts, Pair, Setup};
pub(crate) use shapes::Shapes;

use std::fmt;

use kvferry::StartError;
use kvferry::connector::{PromptDigest, PromptIdentity};

use crate::failure::{Code, Failure};

/// Which side a worker is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// Model id that all workers state.
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

fn from_start_error(why: StartError) -> Failure {
    let hint = match &why {
        StartError::NotLoopback { .. } => "give --listen an address such as 127.0.0.1:0 or [::1]:0",
        StartError::Listen { .. } => {
            "give --listen an address of this host with a free port; port 0 lets the system choose"
        }
        _ => return Failure::new(Code::Failed, why),
    };
    Failure::new(Code::Peer, why).hint(hint)
}
