use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::net::{Shutdown, shutdown};
use strided::{BlockCopy, Blocks};

use super::address::{Address, PROVIDER};
use super::catalog::Catalog;
use super::desk::Asked;
use super::door::{Door, listen};
use super::open::Target;
use super::peer::Peer;
use super::{MAX_REGIONS, MAX_REGIONS_SHOWN, ShmConfig, Unusable};
use crate::events::Events;
use crate::grants::Grants;
use crate::ledger::Ledger;
use crate::registry::Registry;
use crate::tcp::request;
use crate::{
    AgentId, BindError, BoundRegion, Capabilities, Card, ConnectError, Endpoint, Event, Fence,
    GrantError, GrantToken, Memory, PeerId, RegisterError, Registration, SubmitError,
    SubmitErrorKind, Transfer, TransferError, TransferId,
};

/// What stands for a timeout that is beyond the clock.
const FAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// An [`Endpoint`] between processes of one user on one host. Dropping it ends every connection
/// and joins every thread.
pub struct ShmEndpoint {
    config: ShmConfig,
    events: Arc<Events>,
    registry: Registry,
    ledger: Ledger,
    grants: Arc<Grants>,
    catalog: Arc<Catalog>,
    peers: HashMap<PeerId, Connection>,
    next_peer: u64,
    entrance: Entrance,
}

struct Connection {
    peer: Arc<Peer>,
    thread: JoinHandle<()>,
}

/// The serving side.
struct Entrance {
    door: Arc<Door>,
    listener: Arc<UnixListener>,
    address: Address,
    thread: Option<JoinHandle<()>>,
}

impl ShmEndpoint {
    /// Listens, and starts to serve.
    ///
    /// # Errors
    /// [`BindError::Config`] for settings that cannot work, [`BindError::System`] when the
    /// system refuses.
    pub fn bind(config: ShmConfig) -> Result<Self, BindError> {
        config.check()?;
        let events = Arc::new(Events::new().map_err(BindError::system("make an eventfd"))?);
        let grants = Arc::new(Grants::new(Arc::clone(&events)));
        let catalog = Arc::new(Catalog::new()?);
        let entrance = Entrance::open(&config, Arc::clone(&grants), Arc::clone(&catalog))?;
        Ok(Self {
            ledger: Ledger::new(config.max_in_flight),
            config,
            events,
            registry: Registry::default(),
            grants,
            catalog,
            peers: HashMap::new(),
            next_peer: 0,
            entrance,
        })
    }

    fn start(&mut self, transfer: &Transfer) -> Result<(), SubmitErrorKind> {
        let connection = self.peers.get(&transfer.peer).ok_or(SubmitErrorKind::UnknownPeer)?;
        let target = self.ledger.admit(transfer, &self.registry)?;
        let request = request::encode(transfer.copies.iter().map(BlockCopy::source))
            .ok_or(SubmitErrorKind::TooLarge { what: "request" })?;
        let now = Instant::now();
        let asked = Asked {
            id: transfer.id,
            deadline: now.checked_add(transfer.timeout).unwrap_or(now + FAR),
            request_bytes: request.len(),
            target: Arc::clone(&target),
            sources: transfer.copies.iter().map(|copy| copy.source().clone()).collect(),
        };
        connection.peer.submit(asked, transfer.token, &request)?;
        self.ledger.enter(transfer.id, target);
        Ok(())
    }

    /// Forgets what a reported event has ended.
    fn settle(&mut self, event: &Event) -> bool {
        if let Event::PeerDown { peer, .. } = event
            && let Some(connection) = self.peers.remove(peer)
        {
            // The report is the last thing that the thread does.
            let _ = connection.thread.join();
        }
        self.ledger.report(event)
    }
}

impl Entrance {
    fn open(
        config: &ShmConfig,
        grants: Arc<Grants>,
        catalog: Arc<Catalog>,
    ) -> Result<Self, BindError> {
        let address = Address::new(config.agent).map_err(BindError::system("find an address"))?;
        let listener = listen(address.name()).map_err(BindError::system("listen"))?;
        let listener = Arc::new(listener);
        let door = Arc::new(Door::new(config.clone(), grants, catalog));
        let run = {
            let (door, listener) = (Arc::clone(&door), Arc::clone(&listener));
            move || door.run(&listener)
        };
        let thread = thread::Builder::new().name("kv-accept".to_owned()).spawn(run);
        let thread = Some(thread.map_err(BindError::system("start a thread"))?);
        Ok(Self { door, listener, address, thread })
    }
}

impl Drop for Entrance {
    fn drop(&mut self) {
        self.door.close();
        // Wakes the thread that accepts.
        let _ = shutdown(&self.listener, Shutdown::Both);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Drop for ShmEndpoint {
    fn drop(&mut self) {
        for connection in self.peers.values() {
            connection.peer.close(TransferError::Disconnected);
        }
        for (_, connection) in self.peers.drain() {
            let _ = connection.thread.join();
        }
    }
}

/// The address of a card, if it is one of this host.
fn address(card: &Card) -> Result<Address, ConnectError> {
    Address::of(card).map_err(|why| match why {
        Unusable::Provider { found } => ConnectError::Provider { own: PROVIDER, found },
        other => ConnectError::Address { address: card.address.clone(), why: other.to_string() },
    })
}

impl Endpoint for ShmEndpoint {
    fn capabilities(&self) -> Capabilities {
        Capabilities { one_sided: false, ordered: false, native_dims: 4, fence: Fence::Peer }
    }

    fn card(&self) -> Card {
        let address = self.entrance.address.to_string();
        Card { provider: PROVIDER, agent: self.config.agent, address }
    }

    fn register(
        &mut self,
        memory: Arc<dyn Memory>,
        regions: &[BoundRegion],
    ) -> Result<Registration, RegisterError> {
        let most = MAX_REGIONS_SHOWN.min(MAX_REGIONS.saturating_sub(self.catalog.regions()));
        if regions.len() > most {
            return Err(RegisterError::TooMany { regions: regions.len(), most });
        }
        let registration = self.registry.register(&memory, regions)?;
        self.catalog.add(registration.generation, memory, regions);
        Ok(registration)
    }

    fn deregister(&mut self, registration: Registration) -> Result<(), RegisterError> {
        if self.ledger.uses(registration) || self.grants.uses(registration) {
            return Err(RegisterError::InUse);
        }
        self.registry.deregister(registration)?;
        // Connections keep the memory alive until their readers have let go of it.
        self.catalog.remove(registration.generation);
        Ok(())
    }

    fn connect(&mut self, card: &Card) -> Result<PeerId, ConnectError> {
        let system =
            |what| move |why: std::io::Error| ConnectError::System { what, why: why.to_string() };
        let target = Target { address: address(card)?, agent: card.agent };
        let id = PeerId(self.next_peer);
        let peer = Peer::new(id, Arc::clone(&self.events)).map_err(system("make an eventfd"))?;
        let peer = Arc::new(peer);
        let run = {
            let (peer, config) = (Arc::clone(&peer), self.config.clone());
            move || peer.run(&target, &config)
        };
        let thread = thread::Builder::new().name("kv-read".to_owned()).spawn(run);
        let thread = thread.map_err(system("start a thread"))?;
        self.next_peer += 1;
        self.peers.insert(id, Connection { peer, thread });
        Ok(id)
    }

    fn disconnect(&mut self, peer: PeerId) {
        if let Some(connection) = self.peers.get(&peer) {
            connection.peer.close(TransferError::Disconnected);
        }
    }

    fn submit(&mut self, transfer: Transfer) -> Result<(), SubmitError> {
        self.start(&transfer).map_err(|why| SubmitError { why, transfer: Box::new(transfer) })
    }

    fn cancel(&mut self, id: TransferId) {
        for connection in self.peers.values() {
            connection.peer.cancel(id);
        }
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
        self.catalog.ring();
    }

    fn poll(&mut self, events: &mut Vec<Event>) {
        let told = self.events.take();
        events.extend(told.into_iter().filter(|event| self.settle(event)));
    }

    fn ready_fd(&self) -> BorrowedFd<'_> {
        self.events.ready_fd()
    }
}
