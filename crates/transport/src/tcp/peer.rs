use std::collections::HashMap;
use std::io::{self, Read};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, Scope};
use std::time::Instant;

use super::beat::{Beat, Pulse};
use super::dial::{Target, dial};
use super::frame::{FRAME_LEN, ToReader, ToSource};
use super::incoming::Incoming;
use super::link::{Link, broken, hung_up, lost};
use super::outbox::Outbox;
use super::stream::Stream;
use super::wire::Pieces;
use super::{MAX_OPEN_REQUEST_BYTES, MAX_OPEN_REQUESTS, TcpConfig};
use crate::ends::Remote;
use crate::events::Events;
use crate::sync::lock;
use crate::{Event, GrantToken, Outcome, PeerId, SubmitErrorKind, TransferError, TransferId};

/// Bytes of a transfer whose latency matters more than the time of its caller.
const URGENT: u64 = 256 << 10;

/// The reader's side of one connection.
pub(super) struct Peer {
    id: PeerId,
    events: Arc<Events>,
    link: Link,
    outbox: Outbox,
    inbox: Mutex<Inbox>,
    /// Counts signs of life of the source.
    life: AtomicU64,
}

/// What the source still owes.
#[derive(Default)]
struct Inbox {
    open: HashMap<u64, Arc<Incoming>>,
    request_bytes: usize,
    fencing: bool,
    closed: bool,
}

impl Remote for Peer {
    fn close(&self, why: TransferError) {
        self.link.close(why);
        self.outbox.close();
    }

    fn cancel(&self, id: TransferId) {
        if self.find(id.0).is_some_and(|incoming| incoming.cancel()) {
            self.outbox.push(&ToSource::Cancel { transfer: id.0 }.encode(), None, true);
        }
    }
}

impl Peer {
    pub(super) fn new(id: PeerId, events: Arc<Events>) -> Self {
        Self {
            id,
            events,
            link: Link::default(),
            outbox: Outbox::new(),
            inbox: Mutex::default(),
            life: AtomicU64::new(0),
        }
    }

    /// Starts a transfer.
    pub(super) fn submit(
        &self,
        incoming: Incoming,
        token: GrantToken,
        request: &[u8],
    ) -> Result<(), SubmitErrorKind> {
        let transfer = incoming.id.0;
        let len = u32::try_from(request.len())
            .map_err(|_| SubmitErrorKind::TooLarge { what: "request" })?;
        let (deadline, urgent) = (incoming.deadline, incoming.bytes() <= URGENT);
        self.enter(incoming)?;
        let frame = ToSource::Request { transfer, token: token.0, len }.encode();
        self.outbox.push(&[&frame, request].concat(), Some(deadline), urgent);
        Ok(())
    }

    fn enter(&self, incoming: Incoming) -> Result<(), SubmitErrorKind> {
        let mut inbox = lock(&self.inbox);
        if inbox.closed {
            return Err(SubmitErrorKind::UnknownPeer);
        }
        let request_bytes = inbox.request_bytes + incoming.request_bytes;
        if inbox.open.len() >= MAX_OPEN_REQUESTS || request_bytes > MAX_OPEN_REQUEST_BYTES {
            return Err(SubmitErrorKind::QueueFull);
        }
        inbox.request_bytes = request_bytes;
        inbox.open.insert(incoming.id.0, Arc::new(incoming));
        Ok(())
    }

    /// The life of the connection: connects, receives, and tells how all ended.
    pub(super) fn run(&self, target: Target, config: &TcpConfig) {
        thread::scope(|scope| {
            let why = match self.start(scope, target, config) {
                Ok(first) => self.receive(&first),
                Err(why) => why,
            };
            self.close(why);
        });
        self.finish();
    }

    fn start<'a>(
        &'a self,
        scope: &'a Scope<'a, '_>,
        target: Target,
        config: &'a TcpConfig,
    ) -> Result<Arc<Stream>, TransferError> {
        let spawned = |error: io::Error| lost(&error);
        let pulse = || thread::Builder::new().name("kv-pulse".to_owned());
        pulse().spawn_scoped(scope, || self.pulse(config)).map_err(spawned)?;
        let mut streams = dial(target, config, &self.link)?.into_iter();
        self.life.fetch_add(1, Ordering::Relaxed);
        let first = streams.next().ok_or_else(hung_up)?;
        for (number, stream) in streams.enumerate() {
            let receive = move || self.close(self.receive(&stream));
            let builder = thread::Builder::new().name(format!("kv-receive-{}", number + 1));
            builder.spawn_scoped(scope, receive).map_err(spawned)?;
        }
        self.outbox.attach(Arc::clone(&first));
        Ok(first)
    }

    /// Sends what the outbox could not, shows signs of life and watches for the source's, and
    /// looks after deadlines.
    fn pulse(&self, config: &TcpConfig) {
        let mut beat = Beat::new(config.heartbeat, config.missed_heartbeats);
        while self.outbox.wait(|| self.next_deadline().unwrap_or(beat.due()).min(beat.due())) {
            let now = Instant::now();
            self.fence_overdue(now);
            match beat.check(now, self.life.load(Ordering::Relaxed)) {
                Pulse::Early => {}
                Pulse::Due => self.outbox.push(&ToSource::Ping.encode(), None, true),
                Pulse::Dead => self.close(TransferError::Silent),
            }
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        lock(&self.inbox).open.values().map(|incoming| incoming.deadline).min()
    }

    /// What is overdue cannot be called back, so the connection is ended: then nothing of it
    /// can arrive any more.
    fn fence_overdue(&self, now: Instant) {
        let mut inbox = lock(&self.inbox);
        if inbox.fencing {
            return;
        }
        let overdue = inbox.open.values().filter(|incoming| incoming.deadline <= now);
        let mut overdue: Vec<TransferId> = overdue.map(|incoming| incoming.id).collect();
        if overdue.is_empty() {
            return;
        }
        inbox.fencing = true;
        overdue.sort_unstable();
        self.events.extend(overdue.into_iter().map(|id| Event::Overdue { id }));
        drop(inbox);
        self.close(TransferError::Fenced);
    }

    /// Receives from one stream until the connection is down, and says why it is.
    fn receive(&self, stream: &Stream) -> TransferError {
        let mut pieces = Pieces::new();
        let mut frame = [0; FRAME_LEN];
        let mut have = 0;
        loop {
            match self.receive_one(stream, &mut pieces, &mut frame, have) {
                Ok(next) => have = next,
                Err(why) => return why,
            }
        }
    }

    /// Receives one frame, of which `have` bytes are there already, and what belongs to it.
    /// Returns how many bytes of the next frame came along.
    fn receive_one(
        &self,
        mut stream: &Stream,
        pieces: &mut Pieces,
        frame: &mut [u8; FRAME_LEN],
        mut have: usize,
    ) -> Result<usize, TransferError> {
        while have < FRAME_LEN {
            match stream.read(&mut frame[have..]) {
                Ok(0) => return Err(hung_up()),
                Ok(len) => have += len,
                // Nothing whole came: no sign of life.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(lost(&error)),
            }
            self.life.fetch_add(1, Ordering::Relaxed);
        }
        match ToReader::decode(frame).ok_or(broken("an unknown frame"))? {
            ToReader::Ping => Ok(0),
            ToReader::End { transfer, portions, status } => {
                let incoming = self.find(transfer).ok_or(broken("the end of no transfer"))?;
                self.complete(&incoming, incoming.end(portions, status)?);
                Ok(0)
            }
            ToReader::Portion { transfer, index, len } => {
                let incoming = self.find(transfer).ok_or(broken("a portion of no transfer"))?;
                let portion = incoming.begin(index, len)?;
                let next = stream.receive(pieces, portion, frame, &self.life);
                let next = next.map_err(|error| lost(&error))?;
                self.complete(&incoming, incoming.arrived());
                Ok(next)
            }
        }
    }

    fn find(&self, transfer: u64) -> Option<Arc<Incoming>> {
        lock(&self.inbox).open.get(&transfer).map(Arc::clone)
    }

    fn complete(&self, incoming: &Incoming, outcome: Option<Outcome>) {
        let Some(outcome) = outcome else { return };
        let mut inbox = lock(&self.inbox);
        let open = inbox.open.remove(&incoming.id.0).is_some();
        if open {
            inbox.request_bytes -= incoming.request_bytes;
        }
        // Whoever hears of it asks for the next one, and wants the lock.
        drop(inbox);
        if open {
            self.events.push(Event::Completion { id: incoming.id, outcome });
        }
    }

    /// Tells the end of all that was open. By now no thread touches memory for this peer.
    fn finish(&self) {
        let why = self.link.down().unwrap_or_else(hung_up);
        tracing::debug!(peer = self.id.0, %why, "peer is down");
        let mut inbox = lock(&self.inbox);
        inbox.closed = true;
        let mut open: Vec<TransferId> = inbox.open.drain().map(|(_, open)| open.id).collect();
        open.sort_unstable();
        let failed = |id| Event::Completion { id, outcome: Outcome::Failed(why.clone()) };
        let fenced = inbox.fencing.then_some(Event::Fenced { peer: self.id });
        let down = Event::PeerDown { peer: self.id, why: why.clone() };
        self.events.extend(open.into_iter().map(failed).chain(fenced).chain([down]));
    }
}
