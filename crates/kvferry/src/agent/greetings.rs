//! Handshakes under way, the engines that they led to, and why others did not.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use connector::AgentEpoch;
use connector::params::Address;
use tokio::task::JoinSet;

use super::greeter::{Greeter, Meeting, Remote};
use crate::FetchError;

/// For longer than this, no request is answered with an old failure: the machine asks anew.
const REMEMBERED: Duration = Duration::from_secs(10);

/// What one greeting has led to.
pub(super) type Greeted = (Address, Result<Meeting, FetchError>);

/// Of a decode agent; a prefill agent greets nobody.
pub(super) struct Greetings {
    pub(super) greeter: Greeter,
    /// They end with the agent.
    tasks: JoinSet<Greeted>,
    engines: BTreeMap<Address, Arc<Remote>>,
    refused: BTreeMap<Address, (Instant, FetchError)>,
}

impl Greetings {
    pub(super) fn new(greeter: Greeter) -> Self {
        let (engines, refused) = (BTreeMap::new(), BTreeMap::new());
        Self { greeter, tasks: JoinSet::new(), engines, refused }
    }

    /// Begins to greet an engine.
    pub(super) fn greet(&mut self, address: Address) {
        let greeter = self.greeter.clone();
        self.tasks.spawn(async move {
            let greeted = greeter.greet(&address).await;
            (address, greeted)
        });
    }

    /// The next greeting that has come to its end; never, while there is none.
    pub(super) async fn next(&mut self) -> Greeted {
        loop {
            match self.tasks.join_next().await {
                Some(Ok(greeted)) => return greeted,
                // A greeting that panicked: its requests give up by themselves.
                Some(Err(why)) => tracing::error!(%why, "a greeting ended"),
                None => std::future::pending().await,
            }
        }
    }

    pub(super) fn known(&mut self, address: &Address, remote: Remote) {
        self.refused.remove(address);
        self.engines.insert(address.clone(), Arc::new(remote));
    }

    pub(super) fn refused(&mut self, address: &Address, why: FetchError) {
        self.refused.retain(|_, (since, _)| since.elapsed() < REMEMBERED);
        self.refused.insert(address.clone(), (Instant::now(), why));
    }

    /// A rank is gone, and the engines that it belongs to are to be greeted anew.
    pub(super) fn lost(&mut self, agent: AgentEpoch) {
        self.greeter.lost(agent);
        let of = |remote: &Remote| remote.ranks.iter().any(|rank| rank.peer.agent == agent);
        self.engines.retain(|_, remote| !of(remote));
    }

    pub(super) fn engine(&self, address: &Address) -> Option<Arc<Remote>> {
        self.engines.get(address).map(Arc::clone)
    }

    /// Why an engine could not be greeted.
    pub(super) fn why(&self, address: &Address) -> Option<FetchError> {
        self.refused.get(address).map(|(_, why)| why.clone())
    }
}
