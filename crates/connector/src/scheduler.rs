use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kv_layout::BlockTable;
use serde_json::Value;

use crate::class::Class;
use crate::digest::PromptDigest;
use crate::ids::{ClaimId, EngineEpoch, LeaseId, Nonce, Rank, RequestId};
use crate::io::Lease;
use crate::limits::{MAX_GROUPS, MAX_LEASE_BLOCKS};
use crate::params::{Address, HandoffParams, ParamsError};

/// The hand-off at one engine's scheduler: as P it grants leases and gathers their end over
/// the ranks, as D it reads parameters.
#[derive(Debug)]
pub struct Scheduler {
    engine: EngineEpoch,
    address: Address,
    /// The ranks of each live lease that have not freed it.
    live: BTreeMap<LeaseId, BTreeSet<Rank>>,
}

/// A finished prefill whose blocks somebody will fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// This engine's name for the request.
    pub request: RequestId,
    /// 64 random bits, drawn for this lease.
    pub nonce: Nonce,
    /// What the blocks hold.
    pub prompt: PromptDigest,
    /// The blocks, one table for each KV cache group.
    pub tables: Arc<[BlockTable]>,
}

/// A request whose KV waits at another engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemotePrefill {
    /// Names the hand-off for every rank of this engine.
    pub claim: ClaimId,
    /// Where to ask.
    pub address: Address,
    /// Tokens that P says it holds, any positive number: the caller looks whether its prompt has
    /// as many and computes the digest of these, and the digest in P's answer decides.
    pub tokens: u64,
}

/// Why no lease was granted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FinishError {
    /// The same request and nonce have a lease already.
    #[error("the request has a lease of this nonce already")]
    Duplicate,
    /// A prompt of no tokens: nothing that anybody could fetch.
    #[error("the prompt has no valid tokens")]
    NoTokens,
    /// More tables than [`MAX_GROUPS`] or more blocks than [`MAX_LEASE_BLOCKS`].
    #[error("{tables} tables of {blocks} blocks in all cannot be handed off")]
    Size {
        /// KV cache groups.
        tables: usize,
        /// Block ids over all groups.
        blocks: usize,
    },
}

impl FinishError {
    /// What to do about it.
    #[must_use]
    pub fn class(&self) -> Class {
        match self {
            Self::Duplicate | Self::NoTokens => Class::Bug,
            Self::Size { .. } => Class::Exhausted,
        }
    }
}

impl Scheduler {
    /// A scheduler without leases, whose workers answer at `address`.
    ///
    /// # Errors
    /// An address that a peer would refuse.
    pub fn new(engine: EngineEpoch, address: Address) -> Result<Self, ParamsError> {
        Ok(Self { engine, address: address.checked()?, live: BTreeMap::new() })
    }

    /// P: grants a lease: the promise for every worker, and the parameters for the router.
    ///
    /// # Errors
    /// Nothing was promised; the blocks may be used again.
    pub fn finish(&mut self, finished: Finished) -> Result<(Lease, HandoffParams), FinishError> {
        let Finished { request, nonce, prompt, tables } = finished;
        if prompt.valid == 0 {
            return Err(FinishError::NoTokens);
        }
        sendable(&tables)?;
        let id = LeaseId { engine: self.engine, request, nonce };
        if self.live.contains_key(&id) {
            return Err(FinishError::Duplicate);
        }
        let address = self.address.clone();
        let ranks = (0..).map(Rank).take(address.rank_count());
        self.live.insert(id.clone(), ranks.collect());
        let params = HandoffParams { lease: id.clone(), address, tokens: prompt.valid };
        Ok((Lease { id, prompt, tables }, params))
    }

    /// P: a worker reported [`Event::Freed`](crate::Event::Freed). True once, when the last
    /// rank did: the blocks may be used again.
    pub fn freed(&mut self, lease: &LeaseId, rank: Rank) -> bool {
        let Some(ranks) = self.live.get_mut(lease) else { return false };
        ranks.remove(&rank);
        ranks.is_empty() && self.live.remove(lease).is_some()
    }

    /// P: leases whose blocks are kept.
    #[must_use]
    pub fn leases(&self) -> usize {
        self.live.len()
    }

    /// D: reads the parameters of a request that this engine calls `request`.
    ///
    /// # Errors
    /// The request has nothing to fetch, or nothing that can be fetched.
    pub fn admit(&self, request: RequestId, params: &Value) -> Result<RemotePrefill, ParamsError> {
        let HandoffParams { lease, address, tokens } = HandoffParams::from_json(params)?;
        let claim = ClaimId { lease, engine: self.engine, request };
        Ok(RemotePrefill { claim, address, tokens })
    }
}

/// Refuses what no answer or read could carry, before anybody is told to ask for it.
fn sendable(tables: &[BlockTable]) -> Result<(), FinishError> {
    let blocks = tables.iter().map(|table| table.ids.len()).sum();
    let fits = blocks <= MAX_LEASE_BLOCKS && tables.len() <= MAX_GROUPS;
    if fits { Ok(()) } else { Err(FinishError::Size { tables: tables.len(), blocks }) }
}
