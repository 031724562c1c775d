//! One rank of a prefill engine.

use std::net::SocketAddr;
use std::sync::Arc;

use connector::params::RankAddress;
use connector::{Counts, Lease, LeaseId, Why};
use kv_layout::{BlockTable, CacheLayout};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::accept::accept;
use crate::agent::{self, AbortOnDrop, Agent, Command, FreedLease};
use crate::{Config, Engine, OfferError, StartError};

/// The agent of one rank of a prefill engine: keeps the rank's blocks of every lease that the
/// engine's [scheduler](connector::Scheduler) grants until they are read.
pub struct PrefillRank {
    agent: Arc<Agent>,
    layout: CacheLayout,
    address: SocketAddr,
    advertised: RankAddress,
    _accepting: AbortOnDrop,
}

/// Reports the leases whose blocks at one rank will be read no more.
pub struct FreedLeases(mpsc::UnboundedReceiver<FreedLease>);

/// Room for one lease at a rank.
pub(super) struct Room<'a>(mpsc::Permit<'a, Command>);

impl PrefillRank {
    /// Starts to listen. Must be called in a tokio runtime.
    ///
    /// # Errors
    /// [`StartError`]: the address, the memory or the bounds cannot be used.
    pub async fn start(
        config: &Config,
        engine: &Engine,
    ) -> Result<(Self, FreedLeases), StartError> {
        config.check()?;
        let address = config.listen;
        let listener = TcpListener::bind(address).await;
        let listener = listener.map_err(|why| StartError::Listen { address, why })?;
        let address = listener.local_addr()?;
        let advertised = config.advertised(address)?;
        config.certified(&advertised, address)?;
        let (freed, leases) = mpsc::unbounded_channel();
        let agent = Arc::new(Agent::start(config, engine, Some(freed))?);
        let accepting = AbortOnDrop(tokio::spawn(accept(listener, Arc::clone(&agent))));
        let layout = engine.layout()?.clone();
        let rank = Self { agent, layout, address, advertised, _accepting: accepting };
        Ok((rank, FreedLeases(leases)))
    }

    /// Where the control channel listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where peers reach the control channel: what the scheduler's address names for this rank.
    #[must_use]
    pub fn advertised(&self) -> &RankAddress {
        &self.advertised
    }

    /// Keeps the blocks of a lease: they must not change before [`FreedLeases::next`] names it.
    /// The tables are this rank's own, one for each KV cache group.
    ///
    /// # Errors
    /// [`OfferError`]: nothing is kept, and whoever claims the lease here will be told that it
    /// is unknown.
    ///
    /// # Cancel safety
    /// Where the future is dropped before it is ready, nothing is kept.
    pub async fn keep(&self, lease: Lease) -> Result<(), OfferError> {
        let room = self.room(&lease.tables).await?;
        room.keep(lease);
        Ok(())
    }

    /// Waits for room for a lease of these tables, which are checked.
    pub(super) async fn room(&self, tables: &[BlockTable]) -> Result<Room<'_>, OfferError> {
        let (given, groups) = (tables.len(), self.layout.groups.len());
        if given != groups {
            return Err(OfferError::Tables { tables: given, groups });
        }
        connector::sendable(tables)?;
        agent::granted(&self.layout, tables)?;
        self.agent.commands.reserve().await.map(Room).map_err(|_| OfferError::Stopped)
    }

    /// Ends every lease, as an engine must before it takes its memory away (sleep): returns when
    /// nothing is sent from it any more. What is [kept](Self::keep) after that is freed at once.
    pub async fn withdraw(&self) {
        self.agent.withdraw().await;
    }

    /// The memory is there again, at the same place, and leases are kept again.
    pub async fn restore(&self) {
        self.agent.restore().await;
    }

    /// What the agent holds now; all 0 once it has stopped.
    pub async fn counts(&self) -> Counts {
        self.agent.counts().await.unwrap_or_default()
    }

    pub(super) fn epoch(&self) -> connector::EngineEpoch {
        self.agent.handshake.engine
    }

    #[cfg(test)]
    pub(super) fn commands(&self) -> &mpsc::Sender<Command> {
        &self.agent.commands
    }
}

impl Room<'_> {
    pub(super) fn keep(self, lease: Lease) {
        self.0.send(Command::Lease(lease));
    }
}

impl FreedLeases {
    /// The next lease whose blocks at this rank will be read no more, and why; `None` once the
    /// agent has stopped. Ranks that share block ids reuse them when
    /// [every rank](connector::Scheduler::freed) has said so.
    pub async fn next(&mut self) -> Option<(LeaseId, Why)> {
        self.0.recv().await
    }
}
