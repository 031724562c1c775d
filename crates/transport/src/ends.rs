//! What an endpoint keeps that has a thread for each of its peers, and one that accepts.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::net::{Shutdown, shutdown};
use strided::{BlockCopy, Blocks};

use crate::events::Events;
use crate::grants::Grants;
use crate::ledger::Ledger;
use crate::registry::Registry;
use crate::scatter::Scatter;
use crate::tcp::request;
use crate::{
    AgentId, BindError, ConnectError, Event, GrantError, GrantToken, PeerId, RegisterError,
    Registration, SubmitError, SubmitErrorKind, Transfer, TransferError, TransferId,
};

/// What stands for a timeout that is beyond the clock.
const FAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// A peer that is read from.
pub(crate) trait Remote: Send + Sync + 'static {
    /// Ends the connection: the thread of the peer tells what follows from it, and ends. The first
    /// reason stays.
    fn close(&self, why: TransferError);

    /// Ends a transfer as soon as may be, if this peer has it.
    fn cancel(&self, id: TransferId);
}

/// An endpoint but for its provider: memory, grants, transfers and peers. Dropping it ends every
/// connection and joins every thread.
pub(crate) struct Ends<P: Remote> {
    pub(crate) events: Arc<Events>,
    pub(crate) registry: Registry,
    pub(crate) grants: Arc<Grants>,
    ledger: Ledger,
    peers: HashMap<PeerId, Connection<P>>,
    next_peer: u64,
}

struct Connection<P> {
    peer: Arc<P>,
    thread: JoinHandle<()>,
}

/// A transfer that may begin.
pub(crate) struct Admitted<'a> {
    pub(crate) transfer: &'a Transfer,
    pub(crate) target: Arc<Scatter>,
    /// What is to be read, as the source is asked for it.
    pub(crate) request: Vec<u8>,
    pub(crate) deadline: Instant,
}

impl<P: Remote> Ends<P> {
    pub(crate) fn new(max_in_flight: usize) -> Result<Self, BindError> {
        let events = Arc::new(Events::new().map_err(BindError::system("make an eventfd"))?);
        let grants = Arc::new(Grants::new(Arc::clone(&events)));
        let (registry, ledger) = (Registry::default(), Ledger::new(max_in_flight));
        Ok(Self { events, registry, grants, ledger, peers: HashMap::new(), next_peer: 0 })
    }

    /// Makes a peer, and gives its life to a thread of that name.
    pub(crate) fn connect(
        &mut self,
        name: &str,
        make: impl FnOnce(PeerId, Arc<Events>) -> io::Result<P>,
        live: impl FnOnce(&P) + Send + 'static,
    ) -> Result<PeerId, ConnectError> {
        let system =
            |what| move |why: io::Error| ConnectError::System { what, why: why.to_string() };
        let id = PeerId(self.next_peer);
        let peer = make(id, Arc::clone(&self.events)).map_err(system("make an eventfd"))?;
        let peer = Arc::new(peer);
        let run = {
            let peer = Arc::clone(&peer);
            move || live(&peer)
        };
        let thread = thread::Builder::new().name(name.to_owned()).spawn(run);
        let thread = thread.map_err(system("start a thread"))?;
        self.next_peer += 1;
        self.peers.insert(id, Connection { peer, thread });
        Ok(id)
    }

    /// Checks a transfer, and lets its peer `begin` it.
    pub(crate) fn submit(
        &mut self,
        transfer: Transfer,
        begin: impl FnOnce(&P, Admitted<'_>) -> Result<(), SubmitErrorKind>,
    ) -> Result<(), SubmitError> {
        let begun = self.start(&transfer, begin);
        begun.map_err(|why| SubmitError { why, transfer: Box::new(transfer) })
    }

    fn start(
        &mut self,
        transfer: &Transfer,
        begin: impl FnOnce(&P, Admitted<'_>) -> Result<(), SubmitErrorKind>,
    ) -> Result<(), SubmitErrorKind> {
        let connection = self.peers.get(&transfer.peer).ok_or(SubmitErrorKind::UnknownPeer)?;
        let target = self.ledger.admit(transfer, &self.registry)?;
        let request = request::encode(transfer.copies.iter().map(BlockCopy::source))
            .ok_or(SubmitErrorKind::TooLarge { what: "request" })?;
        let now = Instant::now();
        let deadline = now.checked_add(transfer.timeout).unwrap_or(now + FAR);
        let target_of_peer = Arc::clone(&target);
        let admitted = Admitted { transfer, target: target_of_peer, request, deadline };
        begin(&connection.peer, admitted)?;
        self.ledger.enter(transfer.id, target);
        Ok(())
    }

    pub(crate) fn peer(&self, peer: PeerId) -> Option<&P> {
        self.peers.get(&peer).map(|connection| &*connection.peer)
    }

    pub(crate) fn deregister(&mut self, registration: Registration) -> Result<(), RegisterError> {
        if self.ledger.uses(registration) || self.grants.uses(registration) {
            return Err(RegisterError::InUse);
        }
        self.registry.deregister(registration)
    }

    pub(crate) fn disconnect(&mut self, peer: PeerId) {
        if let Some(connection) = self.peers.get(&peer) {
            connection.peer.close(TransferError::Disconnected);
        }
    }

    pub(crate) fn cancel(&mut self, id: TransferId) {
        for connection in self.peers.values() {
            connection.peer.cancel(id);
        }
    }

    pub(crate) fn grant(
        &mut self,
        reader: AgentId,
        token: GrantToken,
        blocks: &[Blocks],
    ) -> Result<(), GrantError> {
        self.grants.grant(&self.registry, reader, token, blocks)
    }

    pub(crate) fn poll(&mut self, events: &mut Vec<Event>) {
        let told = self.events.take();
        events.extend(told.into_iter().filter(|event| self.settle(event)));
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

    pub(crate) fn ready_fd(&self) -> BorrowedFd<'_> {
        self.events.ready_fd()
    }
}

impl<P: Remote> Drop for Ends<P> {
    fn drop(&mut self) {
        for connection in self.peers.values() {
            connection.peer.close(TransferError::Disconnected);
        }
        for (_, connection) in self.peers.drain() {
            let _ = connection.thread.join();
        }
    }
}

/// Where readers come in.
pub(crate) trait Door<L>: Send + Sync + 'static {
    /// Accepts until [`close`](Self::close), and returns when every thread has ended.
    fn run(&self, listener: &L);

    /// Ends every connection, and lets no more in.
    fn close(&self);
}

/// A door with the thread that minds it, until it is dropped.
pub(crate) struct Entrance<D: Door<L>, L: AsFd> {
    door: Arc<D>,
    listener: Arc<L>,
    thread: Option<JoinHandle<()>>,
}

impl<D: Door<L>, L: AsFd + Send + Sync + 'static> Entrance<D, L> {
    pub(crate) fn open(door: D, listener: L) -> Result<Self, BindError> {
        let (door, listener) = (Arc::new(door), Arc::new(listener));
        let run = {
            let (door, listener) = (Arc::clone(&door), Arc::clone(&listener));
            move || door.run(&listener)
        };
        let thread = thread::Builder::new().name("kv-accept".to_owned()).spawn(run);
        let thread = Some(thread.map_err(BindError::system("start a thread"))?);
        Ok(Self { door, listener, thread })
    }
}

impl<D: Door<L>, L: AsFd> Drop for Entrance<D, L> {
    fn drop(&mut self) {
        self.door.close();
        // Wakes the thread that accepts.
        let _ = shutdown(&self.listener, Shutdown::Both);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
