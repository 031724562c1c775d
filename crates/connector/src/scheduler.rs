use std::collections::VecDeque;
use std::sync::Arc;

use kv_layout::BlockTable;
use serde_json::Value;

use crate::class::Class;
use crate::digest::PromptDigest;
use crate::ids::{ClaimId, EngineEpoch, LeaseId, Nonce, Rank, RequestId};
use crate::io::{Failure, Fetch, Lease};
use crate::limits::{MAX_GROUPS, MAX_LEASE_BLOCKS, MAX_RANKS};
use crate::loads::{Allocation, Ended, Loads, Sum, Vote};
use crate::orders::{Order, Word};
use crate::params::{Address, HandoffParams, ParamsError};
use crate::promises::Promises;

/// The hand-off at one engine's scheduler: as P it grants leases and gathers their end over
/// the ranks, as D it has requests fetched and gathers how that ended. Routes only.
///
/// What it decides comes out of [`poll_order`](Self::poll_order), for every worker and in this
/// order, as the metadata of a step carries it, and [`poll_outcome`](Self::poll_outcome), for
/// the engine.
#[derive(Debug)]
pub struct Scheduler {
    engine: EngineEpoch,
    /// Where its ranks answer, if it hands anything off.
    address: Option<Address>,
    ranks: u32,
    promises: Promises,
    loads: Loads,
    orders: VecDeque<Order>,
    outcomes: VecDeque<Outcome>,
    strays: u64,
}

/// What the engine must know of its requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// P: the blocks of this lease may be used again, on every rank.
    Freed(LeaseId),
    /// D: the blocks of this request hold what they should, on every rank. Only now may anybody
    /// see them.
    Received(RequestId),
    /// D: this request was not received. Nothing can touch its blocks any more, and none of them
    /// may enter a prefix cache.
    Failed {
        /// The request.
        request: RequestId,
        /// Why, by the first rank that said so.
        failure: Failure,
        /// The last token from which it can be computed with what was there before; `None`
        /// where it had no blocks yet.
        recompute_from: Option<u64>,
    },
    /// D: this request had blocks when it was given up: they may be used again.
    Released(RequestId),
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
    /// The engine only fetches.
    #[error("this engine hands nothing off: it was started without an address")]
    NoAddress,
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

/// A request of this name is being fetched already; that one is not affected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the request is under way already")]
pub struct UnderWay;

impl RemotePrefill {
    /// Reads the parameters of a request that the decode engine `engine` calls `request`.
    ///
    /// # Errors
    /// The request has nothing to fetch, or nothing that can be fetched.
    pub fn from_params(
        engine: EngineEpoch,
        request: RequestId,
        params: &Value,
    ) -> Result<Self, ParamsError> {
        let HandoffParams { lease, address, tokens } = HandoffParams::from_json(params)?;
        Ok(Self { claim: ClaimId { lease, engine, request }, address, tokens })
    }
}

impl FinishError {
    /// What to do about it.
    #[must_use]
    pub fn class(&self) -> Class {
        match self {
            Self::Duplicate | Self::NoTokens => Class::Bug,
            Self::Size { .. } => Class::Exhausted,
            Self::NoAddress => Class::Config,
        }
    }
}

impl Scheduler {
    /// A scheduler without leases and requests, whose workers answer at `address`.
    ///
    /// # Errors
    /// An address that a peer would refuse.
    pub fn new(engine: EngineEpoch, address: Address) -> Result<Self, ParamsError> {
        let address = address.checked()?;
        // Checked just now: at most `MAX_RANKS`.
        let ranks = u32::try_from(address.rank_count()).unwrap_or(MAX_RANKS);
        Ok(Self { address: Some(address), ..Self::of_decode(engine, ranks) })
    }

    /// Of an engine that only fetches, with so many ranks.
    #[must_use]
    pub fn of_decode(engine: EngineEpoch, ranks: u32) -> Self {
        Self {
            engine,
            promises: Promises::default(),
            loads: Loads::new((0..ranks).map(Rank)),
            address: None,
            ranks,
            orders: VecDeque::new(),
            outcomes: VecDeque::new(),
            strays: 0,
        }
    }

    /// P: grants a lease for a prefill that came to its end; one that was aborted or failed has
    /// nothing to hand off. Gives the parameters for the router.
    ///
    /// # Errors
    /// Nothing was promised; the blocks may be used again.
    pub fn finish(&mut self, finished: Finished) -> Result<HandoffParams, FinishError> {
        let Finished { request, nonce, prompt, tables } = finished;
        if prompt.valid == 0 {
            return Err(FinishError::NoTokens);
        }
        let address = self.address.clone().ok_or(FinishError::NoAddress)?;
        sendable(&tables)?;
        let id = LeaseId { engine: self.engine, request, nonce };
        if !self.promises.make(&id, (0..self.ranks).map(Rank)) {
            return Err(FinishError::Duplicate);
        }
        let params = HandoffParams { lease: id.clone(), address, tokens: prompt.valid };
        self.orders.push_back(Order::Keep(Lease { id, prompt, tables }));
        Ok(params)
    }

    /// P: a worker reported [`Event::Freed`](crate::Event::Freed).
    pub fn freed(&mut self, lease: &LeaseId, rank: Rank) {
        if self.promises.freed(lease, rank) {
            self.outcomes.push_back(Outcome::Freed(lease.clone()));
        }
    }

    /// P: leases whose blocks are kept.
    #[must_use]
    pub fn leases(&self) -> usize {
        self.promises.len()
    }

    /// D: reads the parameters of a request that this engine calls `request`.
    ///
    /// # Errors
    /// The request has nothing to fetch, or nothing that can be fetched.
    pub fn admit(&self, request: RequestId, params: &Value) -> Result<RemotePrefill, ParamsError> {
        RemotePrefill::from_params(self.engine, request, params)
    }

    /// D: has a request claimed by every rank, while it may still be queued. `prompt` is what
    /// this engine knows the first `tokens` tokens of it to be. Requests of one lease that are
    /// under way at the same time, the samples of one prompt, share one claim at P.
    ///
    /// # Errors
    /// [`UnderWay`].
    pub fn fetch(&mut self, remote: RemotePrefill, prompt: PromptDigest) -> Result<(), UnderWay> {
        let RemotePrefill { claim, address, .. } = remote;
        let shared = Some(self.loads.begin(&claim).ok_or(UnderWay)?);
        self.orders.push_back(Order::Fetch(Fetch { claim, shared, prompt, address }));
        Ok(())
    }

    /// D: the engine has given blocks to a request, which are to be filled. They belong to the
    /// hand-off until the request's outcome is known.
    pub fn allocate(&mut self, request: &RequestId, blocks: Allocation) {
        let blocks = Arc::new(blocks);
        if let Some(claim) = self.loads.allocate(request, Arc::clone(&blocks)) {
            self.orders.push_back(Order::Read { claim, blocks });
        }
    }

    /// D: the engine does not want a request any more: it was aborted or rejected, or its own
    /// prefix cache has everything. P may free its blocks. Where the request had blocks, its
    /// outcome says when they may be used again.
    pub fn release(&mut self, request: &RequestId) {
        if let Some(claim) = self.loads.release(request) {
            self.orders.push_back(Order::Abort(claim));
        }
    }

    /// A worker spoke.
    pub fn hear(&mut self, rank: Rank, word: Word) {
        match word {
            Word::Freed { lease, .. } => self.freed(&lease, rank),
            Word::Ended { claim, how } => self.ended(rank, &claim, how),
        }
    }

    /// D: a worker reported the last event of a request.
    pub fn ended(&mut self, rank: Rank, claim: &ClaimId, how: Ended) {
        match self.loads.ended(rank, claim, how) {
            Vote::Counted => {}
            Vote::First(claim) => self.orders.push_back(Order::Abort(claim)),
            Vote::Stray => self.strays += 1,
            Vote::Last(request, sum) => self.outcomes.extend(outcome(request, sum)),
        }
    }

    /// A worker of this engine is gone, and its memory with it: what it kept is freed, and what
    /// it had received is lost, whatever it had said.
    pub fn worker_lost(&mut self, rank: Rank) {
        let freed = self.promises.worker_lost(rank);
        self.outcomes.extend(freed.into_iter().map(Outcome::Freed));
        for claim in self.loads.lost(rank) {
            self.ended(rank, &claim, Ended::Failed(Failure::PeerLost));
        }
    }

    /// The engine is about to take its memory away, and gives every worker
    /// [`Input::Withdraw`](crate::Input::Withdraw) after the orders that it has given before:
    /// no request that is under way will be received, not even one of which every rank but the
    /// last had its share.
    pub fn withdraw(&mut self) {
        self.loads.withdraw();
    }

    /// D: requests whose outcome is not known.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.loads.len()
    }

    /// Total: words of workers about requests that did not wait for them.
    #[must_use]
    pub fn strays(&self) -> u64 {
        self.strays
    }

    /// The next thing that every worker must be told.
    pub fn poll_order(&mut self) -> Option<Order> {
        self.orders.pop_front()
    }

    /// The next thing that the engine must know.
    pub fn poll_outcome(&mut self) -> Option<Outcome> {
        self.outcomes.pop_front()
    }
}

fn outcome(request: RequestId, sum: Sum) -> Option<Outcome> {
    match sum {
        Sum::Received => Some(Outcome::Received(request)),
        Sum::Released => Some(Outcome::Released(request)),
        Sum::Unheard => None,
        Sum::Failed { failure, recompute_from } => {
            Some(Outcome::Failed { request, failure, recompute_from })
        }
    }
}

/// Refuses what no answer or read could carry, before anybody is told to ask for it.
///
/// # Errors
/// [`FinishError::Size`].
pub fn sendable(tables: &[BlockTable]) -> Result<(), FinishError> {
    let blocks = tables.iter().map(|table| table.ids.len()).sum();
    let fits = blocks <= MAX_LEASE_BLOCKS && tables.len() <= MAX_GROUPS;
    if fits { Ok(()) } else { Err(FinishError::Size { tables: tables.len(), blocks }) }
}
