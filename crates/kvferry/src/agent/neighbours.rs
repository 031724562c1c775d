//! Peers with an open control channel.

use std::collections::BTreeMap;

use connector::AgentEpoch;
use transport::PeerId;

use super::{Fresh, Link, Path};

/// Control channels that one agent has open at a time.
const MAX_NEIGHBOURS: usize = 4096;

#[derive(Default)]
pub(super) struct Neighbours(BTreeMap<AgentEpoch, Neighbour>);

pub(super) struct Neighbour {
    pub(super) link: Link,
    /// D: its data endpoint.
    pub(super) data: Option<PeerId>,
    /// D: how it is read.
    path: Option<Path>,
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
        self.0.get(&agent)
    }

    /// Whether this is the channel to an agent.
    pub(super) fn has(&self, agent: AgentEpoch, link: u64) -> bool {
        self.0.get(&agent).is_some_and(|near| near.link.id == link)
    }

    /// Channels of one agent may become known in another order than it has opened them in: the
    /// last one counts.
    pub(super) fn admission(&self, fresh: &Fresh) -> Admission {
        let agent = fresh.peer.agent;
        match self.0.get(&agent) {
            Some(near) if near.link.id > fresh.id => Admission::Refused,
            Some(_) => Admission::InPlaceOf(agent),
            None if self.0.len() < MAX_NEIGHBOURS => Admission::New,
            None => {
                tracing::warn!(agent = agent.0, "too many decode agents: one is turned away");
                Admission::Refused
            }
        }
    }

    pub(super) fn add(&mut self, fresh: Fresh, data: Option<PeerId>, path: Option<Path>) {
        let agent = fresh.peer.agent;
        self.0.insert(agent, Neighbour { link: fresh.start(), data, path });
    }

    pub(super) fn paths(&self) -> Vec<Path> {
        self.0.values().filter_map(|near| near.path.clone()).collect()
    }

    pub(super) fn remove(&mut self, agent: AgentEpoch) -> Option<Neighbour> {
        self.0.remove(&agent)
    }

    /// Whose data endpoint this is.
    pub(super) fn with_data(&self, peer: PeerId) -> Option<AgentEpoch> {
        let of = |(_, near): &(&AgentEpoch, &Neighbour)| near.data == Some(peer);
        self.0.iter().find(of).map(|(&agent, _)| agent)
    }
}
