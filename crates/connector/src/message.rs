//! What two workers say to each other on the control channel.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kv_layout::BlockTable;
use serde::{Deserialize, Serialize};

use crate::digest::PromptDigest;
use crate::ids::{AgentEpoch, ClaimId, Rank, ReadToken};
use crate::limits::{MAX_GROUPS, MAX_RANKS, at_most};

/// One frame of the control channel. It names both workers and, in the claim, both engines,
/// the request and the nonce: what was meant for an earlier life is recognised as such.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Who says it.
    pub from: AgentEpoch,
    /// Whom it is meant for.
    pub to: AgentEpoch,
    /// What it is about.
    pub claim: ClaimId,
    /// What it says.
    pub body: Body,
}

/// The two directions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Body {
    /// From D to P.
    Request(Request),
    /// From P to D.
    Answer(Answer),
}

/// What D asks of P. Each is safe to say twice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// D will read.
    Claim {
        /// The rank that asks.
        rank: Rank,
        /// Every rank of D that will read this rank of P. Empty: nobody will, free it.
        #[serde(deserialize_with = "ranks")]
        readers: BTreeSet<Rank>,
    },
    /// D still means to read.
    Renew,
    /// This reader has read everything: do the blocks still count?
    Done,
    /// Nobody of D will read, or read on.
    Release,
    /// One of several requests that this reader reads the blocks for has all of them: do they
    /// still count? The claim goes on for the others.
    Check {
        /// Names this question in its answer: it counts for what was read before it was asked.
        number: u64,
    },
}

/// What P answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// The lease is not known yet; another answer follows without a further request.
    Pending,
    /// The claim lives, and this is what to read.
    Granted(Grant),
    /// The claim lives on.
    Renewed {
        /// Time until it lapses unless renewed.
        left: Duration,
    },
    /// The blocks were intact until this reader was done: its reads count.
    Alive,
    /// The claim has ended as D wished.
    Released,
    /// The claim or its lease has ended otherwise: nothing read under it counts.
    Over,
    /// There is no such lease here.
    Unknown,
    /// The blocks were intact until this was asked, and the claim is as it was.
    Intact {
        /// That of the [`Check`](Request::Check).
        number: u64,
    },
}

/// P's answer to a claim, the authority for everything that parameters only hint at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The permission to show when reading; good for the claiming worker alone.
    pub token: ReadToken,
    /// What the blocks hold.
    pub prompt: PromptDigest,
    /// Time until the claim lapses unless renewed.
    pub left: Duration,
    /// The blocks, one table for each KV cache group of P.
    #[serde(deserialize_with = "tables")]
    pub tables: Arc<[BlockTable]>,
}

const READERS: usize = MAX_RANKS as usize;

fn ranks<'de, D: serde::Deserializer<'de>>(from: D) -> Result<BTreeSet<Rank>, D::Error> {
    at_most::<D, Rank, _, READERS>(from)
}

fn tables<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Arc<[BlockTable]>, D::Error> {
    at_most::<D, BlockTable, _, MAX_GROUPS>(from)
}
