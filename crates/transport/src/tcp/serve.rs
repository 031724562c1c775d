use std::io::{self, BufRead, BufReader, Write};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};

use super::TcpConfig;
use super::beat::{Beat, Pulse};
use super::frame::{FRAME_LEN, Status, ToReader, ToSource};
use super::link::{Link, broken, hung_up, lost};
use super::queue::{Outgoing, Rest, SendQueue, Work};
use super::stream::Stream;
use super::wire::{Pieces, Portion};
use super::{MAX_REQUEST_BYTES, request};
use crate::bell::sleep;
use crate::grants::Grants;
use crate::sync::lock;
use crate::{AgentId, GrantToken, TransferError};

/// How often a connection looks after what no message tells it: silence, stuck sends.
const TICK: Duration = Duration::from_millis(200);

/// Bytes of an answer that are sent without waking another thread.
const SMALL: u64 = 64 << 10;

/// The source's side of one connection.
pub(super) struct Served {
    pub(super) reader: AgentId,
    pub(super) link: Arc<Link>,
    pub(super) grants: Arc<Grants>,
    pub(super) queue: SendQueue,
    /// Held by whoever sends on the first stream.
    pub(super) turn: Mutex<()>,
}

impl Served {
    /// Serves until the connection is down, and all its senders have gone home.
    pub(super) fn run(&self, config: &TcpConfig) {
        let streams = self.link.streams();
        thread::scope(|scope| {
            let why = match self.start(scope, &streams, config) {
                Ok(requests) => requests.run(),
                Err(error) => lost(&error),
            };
            self.close(why);
        });
        tracing::debug!(reader = self.reader.0, why = ?self.link.down(), "reader is gone");
    }

    fn close(&self, why: TransferError) {
        self.link.close(why);
        self.queue.close();
    }

    fn start<'a>(
        &'a self,
        scope: &'a Scope<'a, '_>,
        streams: &'a [Arc<Stream>],
        config: &'a TcpConfig,
    ) -> io::Result<Requests<'a>> {
        for (number, stream) in streams.iter().enumerate() {
            let send = move || self.send(stream, number == 0, config.heartbeat);
            thread::Builder::new().name(format!("kv-send-{number}")).spawn_scoped(scope, send)?;
        }
        let first: &Stream = streams.first().ok_or(io::ErrorKind::NotConnected)?;
        first.socket().set_read_timeout(Some(TICK))?;
        Ok(Requests {
            served: self,
            stream: first,
            pieces: Pieces::new(),
            input: BufReader::with_capacity(64 << 10, first),
            care: Care {
                served: self,
                beat: Beat::new(config.heartbeat, config.missed_heartbeats),
                reads: 0,
                next_look: Instant::now() + TICK,
                cut_after: config.cut_after,
            },
        })
    }

    /// The life of a sender.
    fn send(&self, mut stream: &Stream, first: bool, idle: Duration) {
        let mut pieces = Pieces::new();
        loop {
            let work = self.queue.take(idle);
            let _turn = first.then(|| lock(&self.turn));
            let sent = match work {
                Work::Idle if first => stream.write_all(&ToReader::Ping.encode()),
                Work::Idle => Ok(()),
                Work::Closed => return,
                work => send(stream, &mut pieces, work, None),
            };
            if let Err(error) = sent {
                return self.close(lost(&error));
            }
        }
    }
}

/// Does a piece of work that sends something.
fn send(
    stream: &Stream,
    pieces: &mut Pieces,
    work: Work,
    wait: Option<&mut dyn FnMut() -> io::Result<()>>,
) -> io::Result<()> {
    let (transfer, index, outgoing, end) = match work {
        Work::Portion { transfer, index, outgoing, end } => (transfer, index, outgoing, end),
        Work::End(end) => return stream.send(pieces, &end.encode(), None, &[], wait),
        Work::Idle | Work::Closed => return Ok(()),
    };
    let portion = Portion::nth(&outgoing.scatter, index).ok_or(io::ErrorKind::InvalidInput)?;
    let head = ToReader::Portion { transfer, index, len: portion.len() }.encode();
    let end = end.map(ToReader::encode);
    let tail = end.as_ref().map_or(&[][..], |end| end);
    stream.send(pieces, &head, Some(portion), tail, wait)
}

/// What a reader says, as it arrives.
struct Requests<'a> {
    served: &'a Served,
    /// The first one, on which a reader speaks.
    stream: &'a Stream,
    pieces: Pieces,
    input: BufReader<&'a Stream>,
    care: Care<'a>,
}

/// What has to be looked after while a reader says nothing.
struct Care<'a> {
    served: &'a Served,
    beat: Beat,
    reads: u64,
    next_look: Instant,
    cut_after: Duration,
}

impl Requests<'_> {
    /// Answers until the connection is down, and says why it is.
    fn run(mut self) -> TransferError {
        loop {
            if let Err(why) = self.next() {
                return why;
            }
        }
    }

    fn next(&mut self) -> Result<(), TransferError> {
        let mut frame = [0; FRAME_LEN];
        self.fill(&mut frame)?;
        match ToSource::decode(&frame).ok_or(broken("an unknown frame"))? {
            ToSource::Request { transfer, token, len } => self.request(transfer, token, len),
            ToSource::Cancel { transfer } => {
                self.served.queue.cancel(transfer);
                Ok(())
            }
            ToSource::Ping => Ok(()),
        }
    }

    fn request(&mut self, transfer: u64, token: u64, len: u32) -> Result<(), TransferError> {
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        if len > MAX_REQUEST_BYTES {
            return Err(broken("a request beyond the limit"));
        }
        let mut bytes = vec![0; len];
        self.fill(&mut bytes)?;
        let blocks = request::decode(&bytes).ok_or(broken("a malformed request"))?;
        let served = self.served;
        match served.grants.open(served.reader, GrantToken(token), &blocks) {
            Some((permit, scatter)) => {
                let small = scatter.bytes() <= SMALL;
                let rest = Rest::Send(Arc::new(Outgoing { scatter, permit }));
                // An encrypted stream has no way to wait and look after the connection.
                let here = small && self.stream.seal().is_none();
                match served.turn.try_lock() {
                    Ok(turn) if here => self.answer(turn, transfer, len, rest),
                    _ => served.queue.push(transfer, len, rest),
                }
            }
            None => served.queue.push(transfer, len, Rest::End(Status::NotGranted)),
        }
    }

    /// Sends a small answer from this thread, if nothing else waits: to wake a sender takes longer
    /// than to send it.
    fn answer(
        &mut self,
        turn: MutexGuard<'_, ()>,
        transfer: u64,
        len: usize,
        rest: Rest,
    ) -> Result<(), TransferError> {
        let work = self.served.queue.push_or_take(transfer, len, rest)?;
        let Some(work) = work else { return Ok(()) };
        let Self { stream, pieces, care, .. } = self;
        // Nobody else would look after the connection meanwhile.
        let mut wait = || {
            let mut fds = [PollFd::new(stream.socket(), PollFlags::OUT)];
            sleep(&mut fds, Some(TICK))?;
            care.look_after().map_err(io::Error::other)
        };
        let sent = send(stream, pieces, work, Some(&mut wait));
        drop(turn);
        sent.map_err(|why| lost(&why))
    }

    /// Reads exactly `bytes`, looking after the connection while it waits.
    fn fill(&mut self, mut bytes: &mut [u8]) -> Result<(), TransferError> {
        while !bytes.is_empty() {
            match self.input.fill_buf() {
                Ok([]) => return Err(hung_up()),
                Ok(there) => {
                    let len = there.len().min(bytes.len());
                    let (now, later) = bytes.split_at_mut(len);
                    now.copy_from_slice(&there[..len]);
                    bytes = later;
                    self.input.consume(len);
                    self.care.reads += 1;
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => {}
                    _ => return Err(lost(&error)),
                },
            }
            self.care.look_after()?;
        }
        Ok(())
    }
}

impl Care<'_> {
    fn look_after(&mut self) -> Result<(), TransferError> {
        let now = Instant::now();
        if now < self.next_look {
            return Ok(());
        }
        self.next_look = now + TICK;
        if self.served.queue.stuck_for(self.cut_after) {
            return Err(TransferError::Lost { why: "a send outlived its grant".to_owned() });
        }
        match self.beat.check(now, self.reads) {
            Pulse::Dead => Err(TransferError::Silent),
            Pulse::Early | Pulse::Due => Ok(()),
        }
    }
}
