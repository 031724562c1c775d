//! P's side of the data channels: who may read what, checked while it is read.

use std::sync::Arc;

use connector::{AgentEpoch, Input, ReadFailure, ReadToken};
use kv_layout::BlockTable;

use super::World;
use super::endpoint::{Copied, Read};
use super::engine::Agent;
use super::events::{What, Who};
use super::oracle::Oracle;
use super::setup::MS;

/// What one reader may read.
#[derive(Debug)]
pub(crate) struct Granted {
    reader: AgentEpoch,
    tables: Arc<[BlockTable]>,
    cut: bool,
}

impl Agent {
    /// P: whether a worker may read anything here.
    pub(crate) fn may_be_read_by(&self, reader: AgentEpoch) -> bool {
        self.granted.values().any(|granted| granted.reader == reader && !granted.cut)
    }
}

impl World {
    pub(crate) fn grant(
        &mut self,
        who: Who,
        reader: AgentEpoch,
        token: ReadToken,
        tables: Arc<[BlockTable]>,
    ) {
        let granted = Granted { reader, tables, cut: false };
        let Some(agent) = self.agent_mut(who) else { return };
        if agent.granted.insert(token, granted).is_some() {
            self.broken(Oracle::Tokens, None, || format!("{who:?} gives {token:?} twice"));
        }
    }

    /// Cuts what is sent under a token; the last bytes take their time.
    pub(crate) fn revoke(&mut self, who: Who, token: ReadToken) {
        let granted = self.agent_mut(who).and_then(|agent| agent.granted.get_mut(&token));
        let fresh = granted.is_some_and(|granted| !std::mem::replace(&mut granted.cut, true));
        if !fresh {
            self.broken(Oracle::Tokens, None, || format!("{who:?} revokes {token:?} in vain"));
        }
        let served = self
            .endpoints
            .of(|read| read.what.source == who && read.what.token == token && read.serving);
        let delay = if served.is_empty() { MS / 100 } else { self.between(MS / 10, 20 * MS) };
        for id in served {
            if let Some(read) = self.endpoints.reads.get_mut(&id) {
                read.ends.get_or_insert(ReadFailure::Refused);
            }
            let after = delay + self.delay();
            self.queue.push(self.now + after, What::Broken { read: id });
        }
        self.queue.push(self.now + delay, What::Revoked { who, token });
    }

    pub(crate) fn revoked(&mut self, who: Who, token: ReadToken) {
        let Some(agent) = self.agent_mut(who) else { return };
        agent.granted.remove(&token);
        let reads = self.endpoints.reads.values_mut();
        let of = |read: &&mut Read| read.what.source == who && read.what.token == token;
        reads.filter(of).for_each(|read| read.serving = false);
        self.input(who, Input::Revoked(token));
    }

    /// P's side looks at each read while it sends.
    pub(crate) fn may_read(&self, granted: Option<&Granted>, read: &Read) -> bool {
        let Some(granted) = granted else { return false };
        let reader = self.agent(read.d).map(|agent| agent.peer.agent);
        let allowed = |copied: &Copied| {
            granted.tables.get(copied.group).is_some_and(|t| t.ids.contains(&copied.from))
        };
        !granted.cut && Some(granted.reader) == reader && read.what.copies.iter().all(allowed)
    }
}
