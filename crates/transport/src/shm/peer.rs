use std::io;
use std::sync::{Arc, Mutex};
use std::thread::{self, Scope};
use std::time::Instant;

use super::ShmConfig;
use super::copy::{Fault, Hands};
use super::desk::{Asked, Desk, Ended, Job};
use super::frame::ToSource;
use super::open::{Target, open};
use super::outbox::Outbox;
use super::process::Source;
use super::reading::Reading;
use crate::ends::Remote;
use crate::error::hung_up;
use crate::events::Events;
use crate::portion::Portion;
use crate::sync::lock;
use crate::{Event, GrantToken, Outcome, PeerId, SubmitErrorKind, TransferError, TransferId};

/// The reader's side of one connection.
pub(super) struct Peer {
    id: PeerId,
    events: Arc<Events>,
    pub(super) outbox: Outbox,
    pub(super) desk: Desk,
    down: Mutex<Option<TransferError>>,
}

impl Remote for Peer {
    fn close(&self, why: TransferError) {
        lock(&self.down).get_or_insert(why);
        self.desk.close();
        self.outbox.close();
    }

    fn cancel(&self, id: TransferId) {
        self.tell(self.desk.cancel(id.0));
    }
}

impl Peer {
    pub(super) fn new(id: PeerId, events: Arc<Events>) -> io::Result<Self> {
        let (outbox, desk) = (Outbox::new()?, Desk::new());
        Ok(Self { id, events, outbox, desk, down: Mutex::default() })
    }

    /// Starts a transfer.
    pub(super) fn submit(
        &self,
        asked: Asked,
        token: GrantToken,
        request: &[u8],
    ) -> Result<(), SubmitErrorKind> {
        let transfer = asked.id.0;
        let len = u32::try_from(request.len())
            .map_err(|_| SubmitErrorKind::TooLarge { what: "request" })?;
        let early = self.desk.enter(asked)?;
        let frame = ToSource::Request { transfer, token: token.0, len }.encode();
        self.outbox.push([&frame, request].concat(), None);
        if early {
            self.outbox.bell().ring();
        }
        Ok(())
    }

    /// Why the connection is down, if it is.
    pub(super) fn down(&self) -> Option<TransferError> {
        lock(&self.down).clone()
    }

    /// Reports a transfer that has ended, and then lets the source know: whoever waits for it
    /// comes first.
    pub(super) fn tell(&self, ended: Option<Ended>) {
        let Some(Ended { id, outcome, allowed }) = ended else { return };
        self.events.push(Event::Completion { id, outcome });
        if allowed {
            self.outbox.push(ToSource::Over { transfer: id.0 }.encode().to_vec(), None);
        }
    }

    /// The life of the connection: connects, copies, and tells how all ended.
    pub(super) fn run(&self, target: &Target, config: &ShmConfig) {
        let look = || self.look();
        match open(target, config, &self.outbox, &look) {
            Ok(opened) => {
                self.outbox.open();
                thread::scope(|scope| {
                    let (reading, source) = Reading::new(self, opened, config.copiers);
                    self.close(reading.run(scope, source));
                });
            }
            Err(why) => {
                let (address, why) = (target.address.to_string(), why.to_string());
                self.close(TransferError::Connect { address, why });
            }
        }
        self.finish();
    }

    /// Looks after deadlines while the connection is made.
    fn look(&self) -> io::Result<Option<Instant>> {
        self.fence_overdue(Instant::now());
        match self.down() {
            Some(why) => Err(io::Error::other(why)),
            None => Ok(self.desk.next_deadline()),
        }
    }

    /// What is overdue waits for a source that does not answer, or is being copied. The
    /// connection is ended: then nothing of it is touched any more.
    pub(super) fn fence_overdue(&self, now: Instant) {
        let overdue = self.desk.overdue(now);
        if !overdue.is_empty() {
            self.events.extend(overdue.into_iter().map(|id| Event::Overdue { id }));
            self.close(TransferError::Fenced);
        }
    }

    /// Starts a thread that helps until the connection is down.
    pub(super) fn start_helper<'a>(
        &'a self,
        scope: &'a Scope<'a, '_>,
        source: &Arc<Source>,
    ) -> io::Result<()> {
        let source = Arc::clone(source);
        let help = move || {
            let mut hands = Hands::new();
            while let Some(job) = self.desk.help() {
                self.copy(&mut hands, &source, job);
            }
        };
        thread::Builder::new().name("kv-copy".to_owned()).spawn_scoped(scope, help).map(drop)
    }

    /// Copies a portion, and sees that it came from the source. Gives its bytes.
    pub(super) fn copy(&self, hands: &mut Hands, source: &Source, job: Job) -> u64 {
        let transfer = job.transfer;
        let near = Portion::nth(&job.target, job.index);
        let Some((near, far)) = near.zip(Portion::nth(&job.source, job.index)) else { return 0 };
        let bytes = u64::from(near.len());
        let copied = hands.copy(source.process.as_ref(), near, far);
        let copied = copied.and_then(|()| source.is_there().map_err(Fault::Source));
        // What it holds of the source's memory goes before the source hears that it is over.
        drop(job);
        let failed = copied.err().map(|fault| match fault {
            Fault::Unmapped => TransferError::Protocol { what: "memory that is not there" },
            Fault::Source(why) => {
                self.close(why.clone());
                why
            }
        });
        self.tell(self.desk.done(transfer, failed.map(Outcome::Failed)));
        bytes
    }

    /// Tells the end of all that was open. By now no thread touches memory for this peer.
    fn finish(&self) {
        let why = self.down().unwrap_or_else(hung_up);
        tracing::debug!(peer = self.id.0, %why, "peer is down");
        let (open, fenced) = self.desk.drain();
        let failed = |id| Event::Completion { id, outcome: Outcome::Failed(why.clone()) };
        let fenced = fenced.then_some(Event::Fenced { peer: self.id });
        let down = Event::PeerDown { peer: self.id, why: why.clone() };
        self.events.extend(open.into_iter().map(failed).chain(fenced).chain([down]));
    }
}
