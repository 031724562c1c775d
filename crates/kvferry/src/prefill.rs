//! The prefill side.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use connector::handshake::Mismatch;
use connector::params::{Address, HandoffParams};
use connector::{Counts, Finished, LeaseId, Nonce, PromptDigest, Rank, RequestId, Scheduler, Why};
use kv_layout::{BlockTable, CacheLayout};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use transport::session::Role;

use crate::agent::{self, AbortOnDrop, Agent, Command, FreedLease};
use crate::control::ControlError;
use crate::{Config, Engine, OfferError, StartError, control};

/// Channels that may be shaking hands at a time; more wait to be accepted.
const MAX_STRANGERS: usize = 64;

/// A prefill agent: keeps the blocks of finished prefills until they are read.
pub struct Prefill {
    agent: Arc<Agent>,
    scheduler: Arc<Mutex<Scheduler>>,
    layout: CacheLayout,
    address: SocketAddr,
    _accepting: AbortOnDrop,
}

/// Reports the requests whose blocks may be reused.
pub struct Freed {
    leases: mpsc::UnboundedReceiver<FreedLease>,
    scheduler: Arc<Mutex<Scheduler>>,
}

/// A request whose blocks may be reused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FreedRequest {
    /// As it was [offered](Prefill::offer).
    pub request: RequestId,
    /// Tells two offers of one request apart: that of the lease in the offer's parameters.
    pub nonce: Nonce,
    /// Why it is free.
    pub why: Why,
}

impl Prefill {
    /// Starts to listen. Must be called in a tokio runtime.
    ///
    /// # Errors
    /// [`StartError`]: the address, the memory or the bounds cannot be used.
    pub async fn start(config: &Config, engine: &Engine) -> Result<(Self, Freed), StartError> {
        let address = config.listen;
        if !address.ip().is_loopback() {
            return Err(StartError::NotLoopback { address: address.ip() });
        }
        let listener = TcpListener::bind(address).await;
        let listener = listener.map_err(|why| StartError::Listen { address, why })?;
        let address = listener.local_addr()?;
        let (freed, leases) = mpsc::unbounded_channel();
        let agent = Arc::new(Agent::start(config, engine, Role::Prefill, Some(freed))?);
        let place = Address {
            engine_id: engine.name.clone(),
            host: address.ip().to_string(),
            port: address.port(),
            tp_size: 1,
        };
        let scheduler = Scheduler::new(agent.handshake.engine, place)?;
        let scheduler = Arc::new(Mutex::new(scheduler));
        let accepting = AbortOnDrop(tokio::spawn(accept(listener, Arc::clone(&agent))));
        let freed = Freed { leases, scheduler: Arc::clone(&scheduler) };
        let layout = engine.layout.clone();
        Ok((Self { agent, scheduler, layout, address, _accepting: accepting }, freed))
    }

    /// Where the control channel listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Promises to keep the blocks of a finished prefill, and gives the parameters that lead a
    /// decode engine to them. `tables` has one table for each KV cache group; the blocks must
    /// not change before [`Freed::next`] names the request.
    ///
    /// # Errors
    /// [`OfferError`]: nothing was promised.
    ///
    /// # Cancel safety
    /// Where the future is dropped before it is ready, nothing was promised.
    pub async fn offer(
        &self,
        request: &str,
        prompt: PromptDigest,
        tables: &[BlockTable],
    ) -> Result<HandoffParams, OfferError> {
        let (given, groups) = (tables.len(), self.layout.groups.len());
        if given != groups {
            return Err(OfferError::Tables { tables: given, groups });
        }
        agent::granted(&self.layout, tables)?;
        let nonce = Nonce(agent::random_u64().map_err(OfferError::System)?);
        let request = RequestId::new(request)?;
        let finished = Finished { request, nonce, prompt, tables: tables.into() };
        // The last point at which this future can be dropped comes before the promise.
        let permit = self.agent.commands.reserve().await.map_err(|_| OfferError::Stopped)?;
        let (lease, params) = lock(&self.scheduler).finish(finished)?;
        permit.send(Command::Lease(lease));
        Ok(params)
    }

    /// What the agent holds now; all 0 once it has stopped.
    pub async fn counts(&self) -> Counts {
        self.agent.counts().await.unwrap_or_default()
    }
}

impl Freed {
    /// The next request whose blocks may be reused; `None` once the agent has stopped.
    pub async fn next(&mut self) -> Option<FreedRequest> {
        loop {
            let (lease, why) = self.leases.recv().await?;
            if lock(&self.scheduler).freed(&lease, Rank(0)) {
                let LeaseId { request, nonce, .. } = lease;
                return Some(FreedRequest { request, nonce, why });
            }
        }
    }
}

/// The scheduler is whole between any two of its calls, whoever panicked.
fn lock(scheduler: &Mutex<Scheduler>) -> std::sync::MutexGuard<'_, Scheduler> {
    scheduler.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn accept(listener: TcpListener, agent: Arc<Agent>) {
    let strangers = Arc::new(Semaphore::new(MAX_STRANGERS));
    // They end with this task: none keeps the agent alive.
    let mut greetings = JoinSet::new();
    loop {
        while greetings.try_join_next().is_some() {}
        let Ok(permit) = Arc::clone(&strangers).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, from)) => {
                let agent = Arc::clone(&agent);
                greetings.spawn(async move {
                    greet(stream, from, &agent).await;
                    drop(permit);
                });
            }
            Err(why) => {
                // Out of descriptors, most likely: others must end before more can come.
                tracing::warn!(%why, "cannot accept");
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        }
    }
}

async fn greet(stream: TcpStream, from: SocketAddr, agent: &Agent) {
    let opened = match agent.hello() {
        Ok(hello) => control::accept(stream, &hello, &agent.handshake).await,
        Err(why) => Err(why.into()),
    };
    match opened {
        Ok(opened) => {
            tracing::info!(%from, agent = opened.theirs.agent.0, "decode agent connected");
            agent::attach(&agent.commands, opened, None).await;
        }
        Err(ControlError::Mismatch(Mismatch { field, ours, theirs })) => {
            tracing::warn!(%from, %field, %ours, %theirs, "a decode agent does not match");
        }
        Err(why) => tracing::info!(%from, %why, "a stranger was turned away"),
    }
}

#[cfg(test)]
#[path = "prefill_tests.rs"]
mod tests;
