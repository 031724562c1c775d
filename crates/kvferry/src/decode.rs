//! The decode side.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use connector::{ClaimId, Counts, Failure, Fetch, Offer, PromptDigest, RemotePrefill, RequestId};
use kv_layout::{BlockTable, CacheLayout, Plan, Span};
use serde_json::Value;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{oneshot, watch};

use crate::agent::{Agent, Command, Hold, Offers, Path, Read, Remote, RemoteRank};
use crate::trace::Trace;
use crate::{Config, Engine, FetchError, StartError};

/// The agent of one rank of a decode engine: claims and reads this rank's share of what prefill
/// engines offer. The ranks of one engine claim each request under the same name, and its
/// outcome is that of all of them: only where every rank has received may anybody see the
/// blocks.
pub struct Decode {
    agent: Arc<Agent>,
    /// This rank's.
    layout: Arc<CacheLayout>,
}

/// A claimed lease, kept alive until it is received or dropped.
pub struct Offered {
    agent: Arc<Agent>,
    layout: Arc<CacheLayout>,
    remote: Arc<Remote>,
    guard: Guard,
    trace: Trace,
    offers: Vec<Offer>,
    valid: u64,
    hits: Vec<u64>,
}

/// A claim on its way.
pub(crate) struct Asked {
    guard: Guard,
    trace: Trace,
    layout: Arc<CacheLayout>,
    valid: u64,
    offers: oneshot::Receiver<Offers>,
}

/// A claim that somebody still wants. Made before the claim is sent, so that it ends whenever
/// that somebody is dropped: while the answer is on its way, while it lies in the channel,
/// while blocks are read.
struct Guard {
    agent: Arc<Agent>,
    claim: ClaimId,
    ticket: u64,
    /// Says why the claim ended while it was only held, and ends once nothing can touch its
    /// blocks.
    gone: watch::Receiver<Option<Failure>>,
    /// The claim has ended by itself.
    over: bool,
}

impl Decode {
    /// Starts an agent. Must be called in a tokio runtime.
    ///
    /// # Errors
    /// [`StartError`]: the memory or the bounds cannot be used.
    pub fn start(config: &Config, engine: &Engine) -> Result<Self, StartError> {
        let agent = Arc::new(Agent::start(config, engine, None)?);
        Ok(Self { agent, layout: engine.layout()?.clone().into() })
    }

    /// Claims the blocks that `params` (the JSON of `kv_transfer_params`) lead to, for a
    /// request that this engine calls `request` and whose prompt is `prompt`. The request may
    /// still be queued: the claim is renewed for as long as the result lives. Requests of one
    /// lease that are claimed at the same time, the samples of one prompt, share one claim at P,
    /// which ends with the last of them; each is received or given up by itself.
    ///
    /// # Errors
    /// [`FetchError`], by whose fault it is. Nothing was read.
    ///
    /// # Cancel safety
    /// Where the future is dropped before it is ready, the claim is given up.
    pub async fn claim(
        &self,
        request: &str,
        params: &Value,
        prompt: PromptDigest,
    ) -> Result<Offered, FetchError> {
        let engine = self.agent.handshake.engine;
        let remote = RemotePrefill::from_params(engine, RequestId::new(request)?, params)?;
        let RemotePrefill { claim, address, .. } = remote;
        self.fetch(Fetch { claim, shared: None, prompt, address }).await
    }

    /// Claims what the scheduler of an engine of several ranks has ordered every rank to
    /// [fetch](connector::Order::Fetch): it says which requests share a claim, so that all
    /// ranks agree. Otherwise as [`claim`](Self::claim).
    ///
    /// # Errors
    /// [`FetchError`], by whose fault it is. Nothing was read.
    ///
    /// # Cancel safety
    /// Where the future is dropped before it is ready, the request is given up.
    pub async fn fetch(&self, fetch: Fetch) -> Result<Offered, FetchError> {
        self.ask(fetch).await?.offered().await
    }

    /// The first half of [`fetch`](Self::fetch): when it returns, the claim comes before
    /// whatever this agent is told from then on.
    pub(crate) async fn ask(&self, fetch: Fetch) -> Result<Asked, FetchError> {
        let (valid, mut trace) = (fetch.prompt.valid, Trace::begin(&fetch));
        let permit = self.agent.commands.reserve().await.map_err(|_| FetchError::Stopped);
        let permit = permit.inspect_err(|why| trace.ended(Some(why)))?;
        let (guard, hold) = Guard::new(Arc::clone(&self.agent), fetch.claim.clone());
        let (reply, offers) = oneshot::channel();
        permit.send(Command::Claim { fetch, hold, reply });
        Ok(Asked { guard, trace, layout: Arc::clone(&self.layout), valid, offers })
    }

    /// Ends every request, as an engine must before it takes its memory away (sleep): returns
    /// when nothing is written into it any more. What is [claimed](Self::claim) after that fails.
    pub async fn withdraw(&self) {
        self.agent.withdraw().await;
    }

    /// The memory is there again, at the same place, and requests are fetched again.
    pub async fn restore(&self) {
        self.agent.restore().await;
    }

    /// How each rank of a prefill engine is read that this agent has met and not lost.
    #[must_use]
    pub fn paths(&self) -> Vec<Path> {
        self.agent.paths.borrow().clone()
    }

    /// The same, with a sign when it changes.
    pub(crate) fn watch_paths(&self) -> watch::Receiver<Vec<Path>> {
        self.agent.paths.clone()
    }

    /// What the agent holds now; all 0 once it has stopped.
    pub async fn counts(&self) -> Counts {
        self.agent.counts().await.unwrap_or_default()
    }
}

impl Asked {
    /// As [`Offered::settled`].
    pub(crate) fn settled(&self) -> impl Future<Output = ()> + Send + use<> {
        self.guard.settled()
    }

    /// The second half: waits for the answers.
    pub(crate) async fn offered(self) -> Result<Offered, FetchError> {
        let Self { guard, mut trace, layout, valid, offers } = self;
        let offered = offers.await.map_err(|_| FetchError::Stopped).flatten();
        let (remote, offers) = offered.inspect_err(|why| trace.ended(Some(why)))?;
        trace.claimed();
        let agent = Arc::clone(&guard.agent);
        Ok(Offered { agent, layout, remote, guard, trace, offers, valid, hits: Vec::new() })
    }
}

impl Offered {
    /// Leaves out what this engine has already: so many tokens from position 0 on, one number
    /// for each KV cache group, whose blocks the tables of [`receive`](Self::receive) may leave
    /// out at the front. Blocks of a prefix cache are thus never written.
    #[must_use]
    pub fn after(mut self, hits: &[u64]) -> Self {
        self.hits = hits.to_vec();
        self
    }

    /// Reads into the blocks of `tables` (one table for each KV cache group of this rank)
    /// what a computation from position `resume_at` on needs, and commits. Gives the bytes
    /// that moved.
    ///
    /// The blocks belong to the hand-off until this returns.
    ///
    /// # Errors
    /// [`FetchError`]. The blocks hold nothing of use, and nothing can touch them any more.
    ///
    /// # Cancel safety
    /// Where the future is dropped before it is ready, the claim is given up and the reads are
    /// stopped, but not at once: the blocks must not be reused before
    /// [`settled`](Self::settled), asked for beforehand, has returned.
    pub async fn receive(
        mut self,
        tables: &[BlockTable],
        resume_at: u64,
    ) -> Result<u64, FetchError> {
        let received = self.read(tables, resume_at).await;
        self.trace.ended(received.as_ref().err());
        received
    }

    async fn read(&mut self, tables: &[BlockTable], resume_at: u64) -> Result<u64, FetchError> {
        self.trace.placed();
        self.layout.check_distinct(tables)?;
        let plan = self.plan(tables, resume_at)?;
        self.trace.planned(&plan);
        let bytes = plan.bytes();
        let reads = self.reads(plan)?;
        let (reply, ended) = oneshot::channel();
        let permit = self.agent.commands.reserve().await.map_err(|_| FetchError::Stopped)?;
        let claim = self.guard.claim.clone();
        permit.send(Command::Read { claim, reads, reply });
        self.trace.posted();
        let ended = ended.await.map_err(|_| FetchError::Stopped)?;
        self.guard.over = true;
        match ended {
            Ok(()) => Ok(bytes),
            Err(Some(failure)) => Err(failure.into()),
            Err(None) => Err(FetchError::Released),
        }
    }

    fn plan(&self, tables: &[BlockTable], resume_at: u64) -> Result<Plan, FetchError> {
        let sources: Vec<&[BlockTable]> =
            self.remote.ranks.iter().map(|rank| self.source(rank)).collect();
        let span = Span { valid: self.valid, resume_at };
        Ok(self.remote.planner.plan(&sources, tables, &self.hits, span)?)
    }

    fn offer(&self, rank: &RemoteRank) -> Option<&Offer> {
        self.offers.iter().find(|offer| offer.peer == rank.peer.agent)
    }

    fn source<'a>(&'a self, rank: &'a RemoteRank) -> &'a [BlockTable] {
        self.offer(rank).map_or(&rank.no_blocks[..], |offer| &offer.tables[..])
    }

    /// What to read from each rank that has offered something. The plan reads no other, since
    /// the same shapes decided whom to claim from; where it did, bytes would be left out.
    fn reads(&self, plan: Plan) -> Result<Vec<Read>, FetchError> {
        let mut reads = Vec::new();
        for ((index, rank), copies) in self.remote.ranks.iter().enumerate().zip(plan.reads) {
            match self.offer(rank) {
                Some(offer) => reads.push(Read { peer: offer.peer, token: offer.token, copies }),
                None if copies.is_empty() => {}
                None => return Err(FetchError::Unclaimed { rank: index }),
            }
        }
        Ok(reads)
    }

    /// Waits until the claim has ended, however that came, and nothing can touch the blocks of
    /// [`receive`](Self::receive) any more. It holds nothing: ask for it before `receive`, and
    /// await it where the future of that is dropped.
    pub fn settled(&self) -> impl Future<Output = ()> + Send + use<> {
        self.guard.settled()
    }

    /// Waits until the claim has ended by itself, although nothing was read yet: the prefill
    /// engine is lost, say, while the request still waits for blocks. It holds nothing.
    pub fn lapsed(&self) -> impl Future<Output = FetchError> + Send + use<> {
        let mut gone = self.guard.gone.clone();
        async move {
            let ended = gone.wait_for(Option::is_some).await;
            let failure = ended.ok().and_then(|failure| failure.clone());
            failure.map_or(FetchError::Stopped, FetchError::Failed)
        }
    }
}

impl Guard {
    fn new(agent: Arc<Agent>, claim: ClaimId) -> (Self, Hold) {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let ticket = NEXT.fetch_add(1, Ordering::Relaxed);
        let (held, gone) = watch::channel(None);
        (Self { agent, claim, ticket, gone, over: false }, Hold { ticket, gone: held })
    }

    /// Ends once nothing can touch the blocks.
    fn settled(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut gone = self.gone.clone();
        async move { while gone.changed().await.is_ok() {} }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        let (claim, ticket) = (self.claim.clone(), self.ticket);
        // At once, where there is room: also outside of the runtime.
        let abort = Command::Abort { claim, ticket };
        if let Err(TrySendError::Full(abort)) = self.agent.commands.try_send(abort) {
            let commands = self.agent.commands.clone();
            self.agent.runtime.spawn(async move { commands.send(abort).await });
        }
    }
}
