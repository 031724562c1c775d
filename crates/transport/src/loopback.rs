//! Endpoints of one process, joined without a network: for tests and simulation.
//!
//! A transfer is copied inside the reader's [`poll`](Endpoint::poll), in the order of
//! submission; no thread and no clock takes part, so nothing is ever overdue and a run with
//! the same calls gives the same events.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};

use strided::{BlockCopy, Blocks};

use crate::events::Events;
use crate::grants::Grants;
use crate::ledger::Ledger;
use crate::registry::Registry;
use crate::scatter::Scatter;
use crate::sync::lock;
use crate::{
    AgentId, BindError, BoundRegion, Capabilities, Card, ConnectError, Endpoint, Event, Fence,
    GrantError, GrantToken, Memory, Outcome, PeerId, RegisterError, Registration, SubmitError,
    SubmitErrorKind, Transfer, TransferError, TransferId,
};

const PROVIDER: &str = "loopback";

/// What joins the endpoints of a process; clones are the same net.
#[derive(Clone, Default)]
pub struct LoopbackNet {
    seats: Arc<Mutex<HashMap<AgentId, Seat>>>,
}

/// What others see of an endpoint.
struct Seat {
    grants: Arc<Grants>,
    events: Arc<Events>,
}

impl LoopbackNet {
    /// A net without endpoints.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an endpoint, which leaves the net when it is dropped. At most `max_in_flight`
    /// transfers wait in it.
    ///
    /// # Errors
    /// [`BindError::AgentTaken`], or [`BindError::System`] without a file descriptor left.
    pub fn endpoint(
        &self,
        agent: AgentId,
        max_in_flight: usize,
    ) -> Result<LoopbackEndpoint, BindError> {
        let mut seats = lock(&self.seats);
        if seats.contains_key(&agent) {
            return Err(BindError::AgentTaken { agent });
        }
        let events = Arc::new(Events::new().map_err(BindError::system("make an eventfd"))?);
        let grants = Arc::new(Grants::new(Arc::clone(&events)));
        let seat = Seat { grants: Arc::clone(&grants), events: Arc::clone(&events) };
        seats.insert(agent, seat);
        Ok(LoopbackEndpoint {
            agent,
            net: self.clone(),
            registry: Registry::default(),
            ledger: Ledger::new(max_in_flight),
            grants,
            events,
            peers: BTreeMap::new(),
            next_peer: 0,
            waiting: VecDeque::new(),
        })
    }

    fn grants_of(&self, agent: AgentId) -> Option<Arc<Grants>> {
        lock(&self.seats).get(&agent).map(|seat| Arc::clone(&seat.grants))
    }
}

/// One agent of a [`LoopbackNet`].
pub struct LoopbackEndpoint {
    agent: AgentId,
    net: LoopbackNet,
    registry: Registry,
    ledger: Ledger,
    grants: Arc<Grants>,
    events: Arc<Events>,
    peers: BTreeMap<PeerId, AgentId>,
    next_peer: u64,
    waiting: VecDeque<Waiting>,
}

struct Waiting {
    id: TransferId,
    peer: PeerId,
    token: GrantToken,
    copies: Vec<BlockCopy>,
    target: Arc<Scatter>,
}

impl LoopbackEndpoint {
    fn admit(&self, transfer: &Transfer) -> Result<Arc<Scatter>, SubmitErrorKind> {
        if !self.peers.contains_key(&transfer.peer) {
            return Err(SubmitErrorKind::UnknownPeer);
        }
        self.ledger.admit(transfer, &self.registry)
    }

    /// Copies one transfer; the grant is held for just that long.
    fn copy(&self, transfer: &Waiting) -> Outcome {
        let agent = self.peers.get(&transfer.peer);
        let Some(grants) = agent.and_then(|&agent| self.net.grants_of(agent)) else {
            return Outcome::Failed(lost());
        };
        let sources: Vec<Blocks> =
            transfer.copies.iter().map(|copy| copy.source().clone()).collect();
        match grants.open(self.agent, transfer.token, &sources) {
            None => Outcome::Failed(TransferError::NotGranted),
            Some((_permit, source)) => {
                source.copy_to(&transfer.target);
                Outcome::Done
            }
        }
    }

    /// Ends what waits for a peer, and the peer.
    fn drop_peer(&mut self, peer: PeerId, why: &TransferError) {
        self.peers.remove(&peer);
        let (ended, waiting) = self.waiting.drain(..).partition(|waiting| waiting.peer == peer);
        self.waiting = waiting;
        let ended: VecDeque<Waiting> = ended;
        let failed = |waiting: Waiting| Event::Completion {
            id: waiting.id,
            outcome: Outcome::Failed(why.clone()),
        };
        self.events.extend(ended.into_iter().map(failed));
        self.events.push(Event::PeerDown { peer, why: why.clone() });
    }

    fn drop_lost_peers(&mut self) {
        let gone = |agent: &AgentId| self.net.grants_of(*agent).is_none();
        let lost_peers: Vec<PeerId> =
            self.peers.iter().filter(|(_, agent)| gone(agent)).map(|(&peer, _)| peer).collect();
        for peer in lost_peers {
            self.drop_peer(peer, &lost());
        }
    }
}

fn lost() -> TransferError {
    TransferError::Lost { why: "the agent has left".to_owned() }
}

impl Endpoint for LoopbackEndpoint {
    fn capabilities(&self) -> Capabilities {
        Capabilities { one_sided: true, ordered: true, native_dims: 4, fence: Fence::Nothing }
    }

    fn card(&self) -> Card {
        Card { provider: PROVIDER, agent: self.agent, address: String::new() }
    }

    fn register(
        &mut self,
        memory: Arc<dyn Memory>,
        regions: &[BoundRegion],
    ) -> Result<Registration, RegisterError> {
        self.registry.register(&memory, regions)
    }

    fn deregister(&mut self, registration: Registration) -> Result<(), RegisterError> {
        if self.ledger.uses(registration) || self.grants.uses(registration) {
            return Err(RegisterError::InUse);
        }
        self.registry.deregister(registration)
    }

    fn connect(&mut self, card: &Card) -> Result<PeerId, ConnectError> {
        if card.provider != PROVIDER {
            return Err(ConnectError::Provider { own: PROVIDER, found: card.provider });
        }
        self.next_peer += 1;
        let peer = PeerId(self.next_peer);
        self.peers.insert(peer, card.agent);
        // If the agent is not there, `poll` has that to tell.
        self.events.wake();
        Ok(peer)
    }

    fn disconnect(&mut self, peer: PeerId) {
        if self.peers.contains_key(&peer) {
            self.drop_peer(peer, &TransferError::Disconnected);
        }
    }

    fn submit(&mut self, transfer: Transfer) -> Result<(), SubmitError> {
        let target = match self.admit(&transfer) {
            Ok(target) => target,
            Err(why) => return Err(SubmitError { why, transfer: Box::new(transfer) }),
        };
        let Transfer { id, peer, token, copies, .. } = transfer;
        self.ledger.enter(id, Arc::clone(&target));
        self.waiting.push_back(Waiting { id, peer, token, copies, target });
        self.events.wake();
        Ok(())
    }

    fn cancel(&mut self, id: TransferId) {
        let Some(at) = self.waiting.iter().position(|waiting| waiting.id == id) else { return };
        self.waiting.remove(at);
        self.events.push(Event::Completion { id, outcome: Outcome::Cancelled });
    }

    fn grant(
        &mut self,
        reader: AgentId,
        token: GrantToken,
        blocks: Vec<Blocks>,
    ) -> Result<(), GrantError> {
        self.grants.grant(&self.registry, reader, token, &blocks)
    }

    fn revoke(&mut self, token: GrantToken) {
        self.grants.revoke(token);
    }

    fn poll(&mut self, events: &mut Vec<Event>) {
        self.drop_lost_peers();
        while let Some(transfer) = self.waiting.pop_front() {
            let outcome = self.copy(&transfer);
            self.events.push(Event::Completion { id: transfer.id, outcome });
        }
        let told = self.events.take();
        events.extend(told.into_iter().filter(|event| self.ledger.report(event)));
    }

    fn ready_fd(&self) -> BorrowedFd<'_> {
        self.events.ready_fd()
    }
}

impl Drop for LoopbackEndpoint {
    fn drop(&mut self) {
        let mut seats = lock(&self.net.seats);
        seats.remove(&self.agent);
        // The others have a lost peer to tell of, perhaps.
        for seat in seats.values() {
            seat.events.wake();
        }
    }
}
