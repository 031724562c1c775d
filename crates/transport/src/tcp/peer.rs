use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{self, Scope};
use std::time::Instant;

use super::TcpConfig;
use super::beat::{Beat, Pulse};
use super::dial::{Target, dial};
use super::ears::Ears;
use super::first::First;
use super::frame::{ToReader, ToSource};
use super::inbox::Inbox;
use super::incoming::Incoming;
use super::link::{Link, broken, hung_up, lost};
use super::outbox::Outbox;
use super::receiver::{Came, Receiver};
use super::stream::Stream;
use super::wire::Pieces;
use crate::ends::Remote;
use crate::events::Events;
use crate::sync::lock;
use crate::{Event, GrantToken, Outcome, PeerId, SubmitErrorKind, TransferError, TransferId};

/// Bytes of a transfer whose latency matters more than the time of its caller.
const URGENT: u64 = 256 << 10;

/// Frames that a caller takes at once; of more, the thread of the stream takes care.
const FRAMES: usize = 64;

/// The reader's side of one connection.
pub(super) struct Peer {
    id: PeerId,
    events: Arc<Events>,
    ears: Arc<Ears>,
    link: Link,
    outbox: Outbox,
    inbox: Mutex<Inbox>,
    /// Once the connection is made, and if it is not encrypted.
    first: OnceLock<First>,
    /// Counts signs of life of the source.
    life: AtomicU64,
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
    pub(super) fn new(id: PeerId, events: Arc<Events>, ears: Arc<Ears>) -> Self {
        Self {
            id,
            events,
            ears,
            link: Link::default(),
            outbox: Outbox::new(),
            inbox: Mutex::default(),
            first: OnceLock::new(),
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
        lock(&self.inbox).enter(incoming)?;
        let frame = ToSource::Request { transfer, token: token.0, len }.encode();
        self.outbox.push(&[&frame, request].concat(), Some(deadline), urgent);
        if urgent {
            self.listen();
        }
        Ok(())
    }

    /// The life of the connection: connects, receives, and tells how all ended.
    pub(super) fn run(&self, target: Target, config: &TcpConfig) {
        thread::scope(|scope| {
            let why = match self.start(scope, target, config) {
                Ok(first) => self.receive_first(first),
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
            let receive = move || self.close(self.receive(Receiver::new(stream)));
            let builder = thread::Builder::new().name(format!("kv-receive-{}", number + 1));
            builder.spawn_scoped(scope, receive).map_err(spawned)?;
        }
        if first.seal().is_none() {
            let (stream, failed) = (Arc::clone(&first), |why| lost(&why));
            self.ears.add(self.id, &stream).map_err(failed)?;
            let _ = self.first.set(First::new(stream).map_err(failed)?);
        }
        self.outbox.attach(Arc::clone(&first));
        Ok(first)
    }

    /// Sends what the outbox could not, shows signs of life and watches for the source's, and
    /// looks after deadlines.
    fn pulse(&self, config: &TcpConfig) {
        let mut beat = Beat::new(config.heartbeat, config.missed_heartbeats);
        while self.outbox.wait(|| self.alarm(beat.due())) {
            self.hear();
            let now = Instant::now();
            self.fence_overdue(now);
            match beat.check(now, self.life.load(Ordering::Relaxed)) {
                Pulse::Early => {}
                Pulse::Due => self.outbox.push(&ToSource::Ping.encode(), None, true),
                Pulse::Dead => self.close(TransferError::Silent),
            }
        }
    }

    /// When the pulse has to look again; what it has sent by now is waited for.
    fn alarm(&self, beat: Instant) -> Instant {
        self.summon();
        lock(&self.inbox).next_deadline().unwrap_or(beat).min(beat)
    }

    /// What is overdue cannot be called back, so the connection is ended: then nothing of it
    /// can arrive any more.
    fn fence_overdue(&self, now: Instant) {
        let mut inbox = lock(&self.inbox);
        if inbox.fencing {
            return;
        }
        let overdue = inbox.overdue(now);
        if overdue.is_empty() {
            return;
        }
        inbox.fencing = true;
        self.events.extend(overdue.into_iter().map(|id| Event::Overdue { id }));
        drop(inbox);
        self.close(TransferError::Fenced);
    }

    /// Has the caller of the endpoint woken by what is owed, or the thread if it is more than a
    /// caller takes.
    fn listen(&self) {
        let Some(first) = self.first.get() else { return };
        let inbox = lock(&self.inbox);
        let (nothing, much) = (inbox.is_empty(), inbox.wants_thread());
        drop(inbox);
        if much {
            self.summon();
        } else if !nothing {
            self.ears.listen(self.id, &first.stream);
        }
    }

    /// Calls the thread of the first stream to its turn, if it is away.
    fn summon(&self) {
        let Some(first) = self.first.get() else { return };
        let mut inbox = lock(&self.inbox);
        if inbox.wants_thread() && std::mem::take(&mut inbox.away) {
            drop(inbox);
            first.ring();
        }
    }

    /// Receives on the first stream what has come whole, and never waits for more.
    pub(super) fn hear(&self) {
        let Some(first) = self.first.get() else { return };
        if lock(&self.inbox).wants_thread() {
            return;
        }
        // Whoever is at it listens afterwards.
        let Some(mut receiver) = first.free_receiver() else { return };
        let heard = self.take_whole(&mut receiver);
        drop(receiver);
        match heard {
            Ok(all) => {
                lock(&self.inbox).in_part |= !all;
                self.listen();
            }
            Err(why) => self.close(why),
        }
    }

    /// Whether nothing is left that has come.
    fn take_whole(&self, receiver: &mut Receiver) -> Result<bool, TransferError> {
        let mut pieces = Pieces::new();
        for _ in 0..FRAMES {
            match receiver.look(&self.life)? {
                Came::Nothing => return Ok(true),
                Came::Part => return Ok(false),
                Came::Whole => self.receive_one(receiver, &mut pieces)?,
            }
        }
        Ok(false)
    }

    /// The life of the first stream's thread.
    fn receive_first(&self, stream: Arc<Stream>) -> TransferError {
        let Some(first) = self.first.get() else { return self.receive(Receiver::new(stream)) };
        let mut pieces = Pieces::new();
        loop {
            if let Err(why) = self.await_turn(first) {
                return lost(&why);
            }
            let mut receiver = first.receiver();
            while lock(&self.inbox).wants_thread() || receiver.has_frame() {
                if let Err(why) = self.receive_one(&mut receiver, &mut pieces) {
                    return why;
                }
                lock(&self.inbox).in_part = false;
            }
        }
    }

    /// Sleeps while the caller of the endpoint receives.
    fn await_turn(&self, first: &First) -> io::Result<()> {
        while !lock(&self.inbox).takes_turn() {
            self.listen();
            if first.sleep()? {
                lock(&self.inbox).in_part = true;
            }
        }
        Ok(())
    }

    /// The life of every other stream's thread, and of the first one's where it is encrypted:
    /// receives until the connection is down, and says why it is.
    fn receive(&self, mut receiver: Receiver) -> TransferError {
        let mut pieces = Pieces::new();
        loop {
            if let Err(why) = self.receive_one(&mut receiver, &mut pieces) {
                return why;
            }
        }
    }

    /// Receives one frame and what belongs to it.
    fn receive_one(
        &self,
        receiver: &mut Receiver,
        pieces: &mut Pieces,
    ) -> Result<(), TransferError> {
        let (incoming, outcome) = match receiver.frame(&self.life)? {
            ToReader::Ping => return Ok(()),
            ToReader::End { transfer, portions, status } => {
                let incoming = self.find(transfer).ok_or(broken("the end of no transfer"))?;
                let outcome = incoming.end(portions, status)?;
                (incoming, outcome)
            }
            ToReader::Portion { transfer, index, len } => {
                let incoming = self.find(transfer).ok_or(broken("a portion of no transfer"))?;
                receiver.portion(pieces, incoming.begin(index, len)?, &self.life)?;
                let outcome = incoming.arrived();
                (incoming, outcome)
            }
        };
        self.complete(&incoming, outcome);
        Ok(())
    }

    fn find(&self, transfer: u64) -> Option<Arc<Incoming>> {
        lock(&self.inbox).find(transfer)
    }

    fn complete(&self, incoming: &Incoming, outcome: Option<Outcome>) {
        let Some(outcome) = outcome else { return };
        // Whoever hears of it asks for the next one, and wants the lock.
        let open = lock(&self.inbox).remove(incoming);
        if open {
            self.events.push(Event::Completion { id: incoming.id, outcome });
        }
    }

    /// Tells the end of all that was open. By now no thread touches memory for this peer, except
    /// one that polls, which hears of this afterwards.
    fn finish(&self) {
        let why = self.link.down().unwrap_or_else(hung_up);
        tracing::debug!(peer = self.id.0, %why, "peer is down");
        let mut inbox = lock(&self.inbox);
        let open = inbox.close();
        let failed = |id| Event::Completion { id, outcome: Outcome::Failed(why.clone()) };
        let fenced = inbox.fencing.then_some(Event::Fenced { peer: self.id });
        let down = Event::PeerDown { peer: self.id, why: why.clone() };
        self.events.extend(open.into_iter().map(failed).chain(fenced).chain([down]));
    }
}
