//! The providers of one agent behind one endpoint.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::epoll;
use strided::Blocks;

use crate::{
    AgentId, BindError, BoundRegion, Capabilities, Card, ConnectError, Endpoint, Event, GrantError,
    GrantToken, Memory, PeerId, RegisterError, Registration, SubmitError, SubmitErrorKind,
    Transfer, TransferId,
};

/// Endpoints of one agent, each of another provider, that look like one: memory is registered and
/// granted at all of them, and a peer is connected through the one that its card belongs to.
pub struct Several {
    endpoints: Vec<Box<dyn Endpoint>>,
    /// Readable while one of them has something to tell.
    ready: OwnedFd,
    registrations: HashMap<Registration, Vec<Registration>>,
    peers: Peers,
    /// Which endpoint has which transfer.
    transfers: HashMap<TransferId, usize>,
    revoking: HashMap<GrantToken, Revoking>,
}

/// A token that not every endpoint has reported revoked.
struct Revoking {
    /// Endpoints that have not.
    left: usize,
    /// Calls of `revoke` that wait for the report.
    asked: usize,
}

/// Peers by this endpoint's name for them, and by that of the endpoint that has them.
#[derive(Default)]
struct Peers {
    next: u64,
    inner: HashMap<PeerId, Place>,
    outer: HashMap<Place, PeerId>,
}

/// One of the endpoints, and what it calls a peer.
type Place = (usize, PeerId);

impl Several {
    /// Joins endpoints of the same agent, nothing of which has been used yet.
    ///
    /// # Errors
    /// [`BindError::Config`] without any, [`BindError::System`] without a file descriptor left.
    pub fn new(endpoints: Vec<Box<dyn Endpoint>>) -> Result<Self, BindError> {
        if endpoints.is_empty() {
            return Err(BindError::Config { setting: "endpoints", rule: "at least 1" });
        }
        let refused = BindError::system::<rustix::io::Errno>;
        let ready = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(refused("make an epoll"))?;
        for endpoint in &endpoints {
            let data = epoll::EventData::new_u64(0);
            epoll::add(&ready, endpoint.ready_fd(), data, epoll::EventFlags::IN)
                .map_err(refused("watch an endpoint"))?;
        }
        Ok(Self {
            endpoints,
            ready,
            registrations: HashMap::new(),
            peers: Peers::default(),
            transfers: HashMap::new(),
            revoking: HashMap::new(),
        })
    }

    /// How peers reach each of them, in the order in which they were given.
    #[must_use]
    pub fn cards(&self) -> Vec<Card> {
        self.endpoints.iter().map(|endpoint| endpoint.card()).collect()
    }

    /// What one of them tells, in the words of this endpoint.
    fn tell(&mut self, from: usize, event: Event, events: &mut Vec<Event>) {
        match event {
            Event::Completion { id, outcome } => {
                self.transfers.remove(&id);
                events.push(Event::Completion { id, outcome });
            }
            Event::PeerDown { peer, why } => {
                let peer = self.peers.remove((from, peer));
                events.extend(peer.map(|peer| Event::PeerDown { peer, why }));
            }
            Event::Fenced { peer } => {
                let peer = self.peers.outer.get(&(from, peer)).copied();
                events.extend(peer.map(|peer| Event::Fenced { peer }));
            }
            Event::Revoked { token } => self.revoked(token, events),
            overdue @ Event::Overdue { .. } => events.push(overdue),
        }
    }

    fn revoked(&mut self, token: GrantToken, events: &mut Vec<Event>) {
        let Some(revoking) = self.revoking.get_mut(&token) else { return };
        revoking.left -= 1;
        if revoking.left == 0 {
            events.extend(std::iter::repeat_n(Event::Revoked { token }, revoking.asked));
            self.revoking.remove(&token);
        }
    }
}

impl Peers {
    fn add(&mut self, place: Place) -> PeerId {
        let peer = PeerId(self.next);
        self.next += 1;
        self.inner.insert(peer, place);
        self.outer.insert(place, peer);
        peer
    }

    fn remove(&mut self, place: Place) -> Option<PeerId> {
        let peer = self.outer.remove(&place)?;
        self.inner.remove(&peer);
        Some(peer)
    }
}

impl Endpoint for Several {
    /// What is true of every one of them.
    fn capabilities(&self) -> Capabilities {
        let both = |one: Capabilities, other: Capabilities| Capabilities {
            one_sided: one.one_sided && other.one_sided,
            ordered: one.ordered && other.ordered,
            native_dims: one.native_dims.min(other.native_dims),
            fence: one.fence.max(other.fence),
        };
        let (first, others) = (self.endpoints[0].capabilities(), &self.endpoints[1..]);
        others.iter().map(|endpoint| endpoint.capabilities()).fold(first, both)
    }

    /// That of the first.
    fn card(&self) -> Card {
        self.endpoints[0].card()
    }

    fn register(
        &mut self,
        memory: Arc<dyn Memory>,
        regions: &[BoundRegion],
    ) -> Result<Registration, RegisterError> {
        let mut all = Vec::new();
        for index in 0..self.endpoints.len() {
            match self.endpoints[index].register(Arc::clone(&memory), regions) {
                Ok(one) => all.push(one),
                Err(why) => {
                    for (endpoint, one) in self.endpoints.iter_mut().zip(all) {
                        endpoint.deregister(one)?;
                    }
                    return Err(why);
                }
            }
        }
        let name = all[0];
        self.registrations.insert(name, all);
        Ok(name)
    }

    /// Where one of them still uses it, those before it do not any more: the same call, later,
    /// ends what is left.
    fn deregister(&mut self, registration: Registration) -> Result<(), RegisterError> {
        let all = self.registrations.get_mut(&registration).ok_or(RegisterError::Unknown)?;
        for (endpoint, one) in self.endpoints.iter_mut().zip(all) {
            match endpoint.deregister(*one) {
                Ok(()) | Err(RegisterError::Unknown) => {}
                Err(why) => return Err(why),
            }
        }
        self.registrations.remove(&registration);
        Ok(())
    }

    fn connect(&mut self, card: &Card) -> Result<PeerId, ConnectError> {
        let own = self.card().provider;
        let mut providers = self.endpoints.iter().map(|endpoint| endpoint.card().provider);
        let index = providers.position(|provider| provider == card.provider);
        let index = index.ok_or(ConnectError::Provider { own, found: card.provider })?;
        let peer = self.endpoints[index].connect(card)?;
        Ok(self.peers.add((index, peer)))
    }

    fn disconnect(&mut self, peer: PeerId) {
        if let Some(&(index, inner)) = self.peers.inner.get(&peer) {
            self.endpoints[index].disconnect(inner);
        }
    }

    fn submit(&mut self, mut transfer: Transfer) -> Result<(), SubmitError> {
        let outer = transfer.peer;
        let refused = |why, transfer| Err(SubmitError { why, transfer: Box::new(transfer) });
        let Some(&(index, inner)) = self.peers.inner.get(&outer) else {
            return refused(SubmitErrorKind::UnknownPeer, transfer);
        };
        if self.transfers.contains_key(&transfer.id) {
            return refused(SubmitErrorKind::IdInUse, transfer);
        }
        let id = transfer.id;
        transfer.peer = inner;
        let submitted = self.endpoints[index].submit(transfer);
        match submitted {
            Ok(()) => {
                self.transfers.insert(id, index);
                Ok(())
            }
            Err(SubmitError { why, mut transfer }) => {
                transfer.peer = outer;
                Err(SubmitError { why, transfer })
            }
        }
    }

    fn cancel(&mut self, id: TransferId) {
        if let Some(&index) = self.transfers.get(&id) {
            self.endpoints[index].cancel(id);
        }
    }

    fn grant(
        &mut self,
        reader: AgentId,
        token: GrantToken,
        blocks: Vec<Blocks>,
    ) -> Result<(), GrantError> {
        if self.revoking.contains_key(&token) {
            return Err(GrantError::TokenInUse);
        }
        for index in 0..self.endpoints.len() {
            if let Err(why) = self.endpoints[index].grant(reader, token, blocks.clone()) {
                // What they report of it is of no interest to anybody.
                self.endpoints[..index].iter_mut().for_each(|endpoint| endpoint.revoke(token));
                return Err(why);
            }
        }
        Ok(())
    }

    fn revoke(&mut self, token: GrantToken) {
        let left = self.endpoints.len();
        let revoking = self.revoking.entry(token).or_insert(Revoking { left, asked: 0 });
        revoking.asked += 1;
        // Asked once, each reports once.
        if revoking.asked == 1 {
            self.endpoints.iter_mut().for_each(|endpoint| endpoint.revoke(token));
        }
    }

    fn poll(&mut self, events: &mut Vec<Event>) {
        let mut told = Vec::new();
        for index in 0..self.endpoints.len() {
            self.endpoints[index].poll(&mut told);
            told.drain(..).for_each(|event| self.tell(index, event, events));
        }
    }

    fn ready_fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }
}
