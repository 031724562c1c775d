use std::collections::HashMap;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::net::{Shutdown, shutdown};
use strided::{BlockCopy, Blocks};

use super::dial::Target;
use super::door::Door;
use super::incoming::Incoming;
use super::peer::Peer;
use super::{TcpConfig, request};
use crate::events::Events;
use crate::grants::Grants;
use crate::ledger::Ledger;
use crate::registry::Registry;
use crate::{
    AgentId, BindError, BoundRegion, Capabilities, Card, ConnectError, Endpoint, Event, Fence,
    GrantError, GrantToken, Memory, PeerId, RegisterError, Registration, SubmitError,
    SubmitErrorKind, Transfer, TransferError, TransferId,
};

const PROVIDER: &str = "tcp";

/// What stands for a timeout that is beyond the clock.
const FAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// An [`Endpoint`] over TCP. Dropping it ends every connection and joins every thread.
pub struct TcpEndpoint {
    config: TcpConfig,
    events: Arc<Events>,
    registry: Registry,
    ledger: Ledger,
    grants: Arc<Grants>,
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
    listener: Arc<TcpListener>,
    address: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

impl TcpEndpoint {
    /// Listens, and starts to serve.
    ///
    /// # Errors
    /// [`BindError::Config`] or [`BindError::NotLoopback`] for settings that cannot work,
    /// [`BindError::System`] when the system refuses.
    pub fn bind(config: TcpConfig) -> Result<Self, BindError> {
        config.check()?;
        let events = Arc::new(Events::new().map_err(BindError::system("make an eventfd"))?);
        let grants = Arc::new(Grants::new(Arc::clone(&events)));
        let entrance = Entrance::open(&config, Arc::clone(&grants))?;
        Ok(Self {
            ledger: Ledger::new(config.max_in_flight),
            config,
            events,
            registry: Registry::default(),
            grants,
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
        let deadline = now.checked_add(transfer.timeout).unwrap_or(now + FAR);
        let incoming = Incoming::new(transfer.id, Arc::clone(&target), deadline, request.len());
        connection.peer.submit(incoming, transfer.token, &request)?;
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
    fn open(config: &TcpConfig, grants: Arc<Grants>) -> Result<Self, BindError> {
        let listener = TcpListener::bind(config.listen).map_err(BindError::system("listen"))?;
        let address = listener.local_addr().map_err(BindError::system("listen"))?;
        let listener = Arc::new(listener);
        let door = Arc::new(Door::new(config.clone(), grants));
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

impl Drop for TcpEndpoint {
    fn drop(&mut self) {
        for connection in self.peers.values() {
            connection.peer.close(TransferError::Disconnected);
        }
        for (_, connection) in self.peers.drain() {
            let _ = connection.thread.join();
        }
    }
}

/// The address of a card, if it may be used by a side that has a secret or none.
fn address(card: &Card, has_secret: bool) -> Result<SocketAddr, ConnectError> {
    if card.provider != PROVIDER {
        return Err(ConnectError::Provider { own: PROVIDER, found: card.provider });
    }
    let unusable = |why: &str| {
        let (address, why) = (card.address.clone(), why.to_owned());
        ConnectError::Address { address, why }
    };
    let address: SocketAddr =
        card.address.parse().map_err(|_| unusable("not an IP address and port"))?;
    let ip = address.ip().to_canonical();
    if !has_secret && !ip.is_loopback() {
        return Err(ConnectError::NotLoopback { address: card.address.clone() });
    }
    if ip.is_unspecified() {
        return Err(unusable("it names no host"));
    }
    Ok(address)
}

impl Endpoint for TcpEndpoint {
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
        self.registry.register(&memory, regions)
    }

    fn deregister(&mut self, registration: Registration) -> Result<(), RegisterError> {
        if self.ledger.uses(registration) || self.grants.uses(registration) {
            return Err(RegisterError::InUse);
        }
        self.registry.deregister(registration)
    }

    fn connect(&mut self, card: &Card) -> Result<PeerId, ConnectError> {
        let target = Target {
            address: address(card, self.config.trust.secret.is_some())?,
            agent: card.agent,
        };
        let id = PeerId(self.next_peer);
        let peer = Arc::new(Peer::new(id, Arc::clone(&self.events)));
        let run = {
            let (peer, config) = (Arc::clone(&peer), self.config.clone());
            move || peer.run(target, &config)
        };
        let thread = thread::Builder::new().name("kv-receive-0".to_owned()).spawn(run);
        let thread = thread
            .map_err(|why| ConnectError::System { what: "start a thread", why: why.to_string() })?;
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
    }

    fn poll(&mut self, events: &mut Vec<Event>) {
        let told = self.events.take();
        events.extend(told.into_iter().filter(|event| self.settle(event)));
    }

    fn ready_fd(&self) -> BorrowedFd<'_> {
        self.events.ready_fd()
    }
}
