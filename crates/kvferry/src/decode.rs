//! The decode side.

mod remotes;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use connector::params::Address;
use connector::{ClaimId, Counts, Failure, Offer, PromptDigest, Rank, RequestId, Scheduler, Start};
use kv_layout::{BlockTable, CacheLayout, Holding, Span, Target, plan};
use serde_json::Value;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::oneshot;
use transport::session::Role;

use crate::agent::{Agent, Command, Read};
use crate::{Config, Engine, FetchError, StartError};
use remotes::{Remote, Remotes};

/// A decode agent: claims and reads what prefill engines offer.
pub struct Decode {
    agent: Arc<Agent>,
    scheduler: Scheduler,
    remotes: Remotes,
    layout: Arc<CacheLayout>,
}

/// A claimed lease, kept alive until it is received or dropped.
pub struct Offered {
    agent: Arc<Agent>,
    layout: Arc<CacheLayout>,
    remote: Arc<Remote>,
    /// `None` once somebody else has taken over its end.
    claim: Option<ClaimId>,
    offer: Offer,
    valid: u64,
}

impl Decode {
    /// Starts an agent. Must be called in a tokio runtime.
    ///
    /// # Errors
    /// [`StartError`]: the memory or the bounds cannot be used.
    pub fn start(config: &Config, engine: &Engine) -> Result<Self, StartError> {
        let agent = Arc::new(Agent::start(config, engine, Role::Decode, None)?);
        let nowhere = Address {
            engine_id: engine.name.clone(),
            host: config.listen.ip().to_string(),
            // A decode agent is never asked; the port only has to be one.
            port: config.listen.port().max(1),
            tp_size: 1,
        };
        let scheduler = Scheduler::new(agent.handshake.engine, nowhere)?;
        let layout = Arc::new(engine.layout.clone());
        Ok(Self { agent, scheduler, remotes: Remotes::default(), layout })
    }

    /// Claims the blocks that `params` (the JSON of `kv_transfer_params`) lead to, for a
    /// request that this engine calls `request` and whose prompt is `prompt`. The request may
    /// still be queued: the claim is renewed for as long as the result lives.
    ///
    /// # Errors
    /// [`FetchError`], by whose fault it is. Nothing was read.
    pub async fn claim(
        &self,
        request: &str,
        params: &Value,
        prompt: PromptDigest,
    ) -> Result<Offered, FetchError> {
        let prefill = self.scheduler.admit(RequestId::new(request)?, params)?;
        let claim = prefill.claim;
        let remote = self.remotes.get(&self.agent, &prefill.address, claim.lease.engine).await?;
        if claim.lease.engine != remote.engine {
            // An earlier life promised it; this one can only say that it knows nothing of it.
            return Err(Failure::Unknown.into());
        }
        let sources = BTreeMap::from([(remote.agent, BTreeSet::from([Rank(0)]))]);
        let start = Start { claim: claim.clone(), prompt, sources };
        let (reply, offers) = oneshot::channel();
        let sent = self.agent.commands.send(Command::Claim { start, reply }).await;
        sent.map_err(|_| FetchError::Stopped)?;
        let offers = offers.await.map_err(|_| FetchError::Stopped)??;
        let offer = offers.into_iter().next().ok_or(FetchError::Stopped)?;
        Ok(Offered {
            agent: Arc::clone(&self.agent),
            layout: Arc::clone(&self.layout),
            remote,
            claim: Some(claim),
            offer,
            valid: prompt.valid,
        })
    }

    /// What the agent holds now; all 0 once it has stopped.
    pub async fn counts(&self) -> Counts {
        self.agent.counts().await.unwrap_or_default()
    }
}

impl Offered {
    /// Reads into the blocks of `tables` (one table for each KV cache group of this engine)
    /// what a computation from position `resume_at` on needs, and commits. Gives the bytes
    /// that moved.
    ///
    /// The blocks belong to the hand-off until this returns: await it to its end. To give up
    /// early, drop the value before.
    ///
    /// # Errors
    /// [`FetchError`]. The blocks hold nothing of use, and nothing can touch them any more.
    pub async fn receive(
        mut self,
        tables: &[BlockTable],
        resume_at: u64,
    ) -> Result<u64, FetchError> {
        let source = Holding { layout: &self.remote.layout, tables: &self.offer.tables };
        let target = Target { ranks: &[self.layout.as_ref()], rank: 0, tables, hits: &[] };
        let plan = plan(&[source], target, Span { valid: self.valid, resume_at })?;
        let bytes = plan.bytes();
        let copies = plan.reads.into_iter().flatten().collect();
        let Some(claim) = self.claim.take() else { return Err(FetchError::Stopped) };
        let read = Read { peer: self.offer.peer, token: self.offer.token, copies };
        let (reply, ended) = oneshot::channel();
        let command = Command::Read { claim, reads: vec![read], reply };
        self.agent.commands.send(command).await.map_err(|_| FetchError::Stopped)?;
        match ended.await.map_err(|_| FetchError::Stopped)? {
            Ok(()) => Ok(bytes),
            Err(Some(failure)) => Err(failure.into()),
            Err(None) => Err(FetchError::Released),
        }
    }
}

impl Drop for Offered {
    fn drop(&mut self) {
        let Some(claim) = self.claim.take() else { return };
        // At once, where there is room: also outside of the runtime.
        let Err(TrySendError::Full(abort)) = self.agent.commands.try_send(Command::Abort(claim))
        else {
            return;
        };
        let agent = Arc::clone(&self.agent);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { agent.commands.send(abort).await });
        }
    }
}
