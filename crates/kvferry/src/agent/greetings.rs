//! Handshakes under way, the engines that they led to, and why others did not.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use connector::AgentEpoch;
use connector::params::{Address, RankAddress};
use tokio::task::{Id, JoinError, JoinSet};

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
    /// What each of them greets.
    greeted: Vec<(Id, Address)>,
    engines: BTreeMap<Place, Arc<Remote>>,
    refused: BTreeMap<Place, (Instant, FetchError)>,
}

/// An engine is where its ranks answer, whatever else parameters call it.
type Place = Vec<RankAddress>;

fn place(address: &Address) -> Place {
    address.ranks().cloned().collect()
}

impl Greetings {
    pub(super) fn new(greeter: Greeter) -> Self {
        let (engines, refused) = (BTreeMap::new(), BTreeMap::new());
        Self { greeter, tasks: JoinSet::new(), greeted: Vec::new(), engines, refused }
    }

    /// Begins to greet an engine.
    pub(super) fn greet(&mut self, address: Address) {
        let (greeter, at) = (self.greeter.clone(), address.clone());
        let task = self.tasks.spawn(async move {
            let greeted = greeter.greet(&at).await;
            (at, greeted)
        });
        self.greeted.push((task.id(), address));
    }

    /// The next greeting that has come to its end, however it did; never, while there is none.
    pub(super) async fn next(&mut self) -> Greeted {
        let Some(ended) = self.tasks.join_next_with_id().await else {
            return std::future::pending().await;
        };
        let id = ended.as_ref().map_or_else(JoinError::id, |(id, _)| *id);
        let at = self.greeted.iter().position(|(task, _)| *task == id);
        let address = at.map(|at| self.greeted.swap_remove(at).1);
        match (ended, address) {
            (Ok((_, greeted)), _) => greeted,
            // It panicked: those who wait for it are told all the same.
            (Err(why), Some(address)) => {
                tracing::error!(%why, "a greeting ended");
                (address, Err(FetchError::Stopped))
            }
            (Err(_), None) => std::future::pending().await,
        }
    }

    pub(super) fn known(&mut self, address: &Address, remote: Remote) {
        let place = place(address);
        self.refused.remove(&place);
        self.engines.insert(place, Arc::new(remote));
    }

    /// The machine does not know these ranks any more; what is being read keeps its own.
    pub(super) fn forget(&mut self, ranks: &Place) {
        self.engines.remove(ranks);
    }

    pub(super) fn refused(&mut self, address: &Address, why: FetchError) {
        self.refused.retain(|_, (since, _)| since.elapsed() < REMEMBERED);
        self.refused.insert(place(address), (Instant::now(), why));
    }

    /// A rank is gone, and the engines that it belongs to are to be greeted anew.
    pub(super) fn lost(&mut self, agent: AgentEpoch) {
        self.greeter.lost(agent);
        let of = |remote: &Remote| remote.ranks.iter().any(|rank| rank.peer.agent == agent);
        self.engines.retain(|_, remote| !of(remote));
    }

    pub(super) fn engine(&self, address: &Address) -> Option<Arc<Remote>> {
        self.engines.get(&place(address)).map(Arc::clone)
    }

    /// Why an engine could not be greeted.
    pub(super) fn why(&self, address: &Address) -> Option<FetchError> {
        self.refused.get(&place(address)).map(|(_, why)| why.clone())
    }
}
