//! Peers with an open control channel.

use std::collections::BTreeMap;

use connector::AgentEpoch;
use tokio::sync::watch;
use transport::PeerId;

use super::{Fresh, Link, Path};

/// Control channels that one agent has open at a time.
const MAX_NEIGHBOURS: usize = 4096;

#[derive(Default)]
pub(super) struct Neighbours {
    near: BTreeMap<AgentEpoch, Neighbour>,
    /// D: how they are read, for whoever looks without asking.
    paths: watch::Sender<Vec<Path>>,
}

pub(super) struct Neighbour {
    pub(super) link: Link,
    /// D: its data endpoint.
    pub(super) data: Option<PeerId>,
}

/// What to do with a channel that a decode agent has begun to use.
pub(super) enum Admission {
    New,
    /// The agent has lost the one that it had.
    InPlaceOf(AgentEpoch),
    Refused,
}

impl Neighbours {
    pub(super) fn get(&self, agent: AgentEpoch) -> Option<&Neighbour> {
        self.near.get(&agent)
    }

    /// Whether this is the channel to an agent.
    pub(super) fn has(&self, agent: AgentEpoch, link: u64) -> bool {
        self.near.get(&agent).is_some_and(|near| near.link.id == link)
    }

    /// Channels of one agent may become known in another order than it has opened them in: the
    /// last one counts.
    pub(super) fn admission(&self, fresh: &Fresh) -> Admission {
        let agent = fresh.peer.agent;
        match self.near.get(&agent) {
            Some(near) if near.link.id > fresh.id => Admission::Refused,
            Some(_) => Admission::InPlaceOf(agent),
            None if self.near.len() < MAX_NEIGHBOURS => Admission::New,
            None => {
                tracing::warn!(agent = agent.0, "too many decode agents: one is turned away");
                Admission::Refused
            }
        }
    }

    /// D: with its data endpoint, and how it is read.
    pub(super) fn add(&mut self, fresh: Fresh, data: Option<PeerId>, path: Option<Path>) {
        let agent = fresh.peer.agent;
        self.near.insert(agent, Neighbour { link: fresh.start(), data });
        if let Some(path) = path {
            self.paths.send_modify(|paths| paths.push(path));
        }
    }

    /// How they are read, now and later.
    pub(super) fn paths(&self) -> watch::Receiver<Vec<Path>> {
        self.paths.subscribe()
    }

    pub(super) fn remove(&mut self, agent: AgentEpoch) -> Option<Neighbour> {
        self.paths.send_if_modified(|paths| {
            let before = paths.len();
            paths.retain(|path| path.agent != agent.0);
            paths.len() < before
        });
        self.near.remove(&agent)
    }

    /// Whose data endpoint this is.
    pub(super) fn with_data(&self, peer: PeerId) -> Option<AgentEpoch> {
        let of = |(_, near): &(&AgentEpoch, &Neighbour)| near.data == Some(peer);
        self.near.iter().find(of).map(|(&agent, _)| agent)
    }
}
