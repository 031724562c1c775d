use std::io::{self, BufRead, BufReader};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::ioctl_fionread;

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

/// How often a connection looks for sends that are stuck, while there are any.
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
        let first: &Stream = streams.first().ok_or(io::ErrorKind::NotConnected)?;
        for (number, stream) in streams.iter().enumerate() {
            let turn = (number == 0).then_some(&self.turn);
            let idle = turn.and(first.seal()).map(|_| config.heartbeat);
            let send = move || self.send(stream, turn, idle);
            thread::Builder::new().name(format!("kv-send-{number}")).spawn_scoped(scope, send)?;
        }
        first.socket().set_read_timeout(Some(config.heartbeat))?;
        Ok(Requests {
            served: self,
            stream: first,
            pieces: Pieces::new(),
            input: BufReader::with_capacity(64 << 10, first),
            care: Care {
                served: self,
                beat: Beat::new(config.heartbeat, config.missed_heartbeats),
                reads: 0,
                unread: 0,
                next_look: Instant::now(),
                busy: false,
                heartbeat: config.heartbeat,
                cut_after: config.cut_after,
            },
        })
    }

    /// The life of a sender. The first stream has its `turn`, and is where signs of life are owed
    /// after each `idle` time, if one is given.
    fn send(&self, stream: &Stream, turn: Option<&Mutex<()>>, idle: Option<Duration>) {
        let mut pieces = Pieces::new();
        loop {
            let work = self.queue.take(idle);
            let _turn = turn.map(lock);
            let sent = match work {
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
        Work::Idle => return stream.send(pieces, &ToReader::Ping.encode(), None, &[], wait),
        Work::Closed => return Ok(()),
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
    /// Bytes that lay in the socket when it was last looked at.
    unread: u64,
    next_look: Instant,
    /// Something may be in the hands of a sender.
    busy: bool,
    heartbeat: Duration,
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
            ToSource::Ping => self.ping(),
        }
    }

    /// Answers a sign of life, unless the stream is busy, which is one. Under TLS a sender sees to
    /// that, for an encrypted stream has no way to wait and look after the connection.
    fn ping(&mut self) -> Result<(), TransferError> {
        if self.stream.seal().is_some() {
            return Ok(());
        }
        match self.served.turn.try_lock() {
            Ok(turn) => self.send(turn, Work::Idle),
            Err(_) => Ok(()),
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
        let Some((permit, scatter)) = served.grants.open(served.reader, GrantToken(token), &blocks)
        else {
            return served.queue.push(transfer, len, Rest::End(Status::NotGranted));
        };
        // To wake a sender takes longer than to send it, if there is nothing else to do.
        let here = scatter.bytes() <= SMALL
            && self.stream.seal().is_none()
            && self.input.buffer().is_empty();
        let rest = Rest::Send(Arc::new(Outgoing { scatter, permit }));
        if let Some(turn) = here.then(|| served.turn.try_lock().ok()).flatten() {
            if let Some(work) = served.queue.push_or_take(transfer, len, rest)? {
                return self.send(turn, work);
            }
        } else {
            served.queue.push(transfer, len, rest)?;
        }
        self.care.begin(self.stream)
    }

    /// Sends something small from this thread, which looks after the connection while it waits for
    /// room: nobody else would.
    fn send(&mut self, turn: MutexGuard<'_, ()>, work: Work) -> Result<(), TransferError> {
        let Self { stream, pieces, care, .. } = self;
        let mut wait = || {
            care.begin(stream).and_then(|()| care.overhear(stream)).map_err(io::Error::other)?;
            let mut fds = [PollFd::new(stream.socket(), PollFlags::OUT)];
            sleep(&mut fds, Some(TICK))?;
            care.look_after(stream).map_err(io::Error::other)
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
            self.care.look_after(self.stream)?;
        }
        Ok(())
    }
}

impl Care<'_> {
    /// Something is being sent, which may get stuck: from now on a look is due each tick.
    fn begin(&mut self, stream: &Stream) -> Result<(), TransferError> {
        if !self.busy {
            self.busy = true;
            self.next_look = Instant::now() + TICK;
            stream.socket().set_read_timeout(Some(TICK)).map_err(|why| lost(&why))?;
        }
        Ok(())
    }

    /// What a reader says while nobody listens is a sign of life all the same.
    fn overhear(&mut self, stream: &Stream) -> Result<(), TransferError> {
        let unread = ioctl_fionread(stream.socket()).map_err(|why| lost(&why.into()))?;
        if unread != std::mem::replace(&mut self.unread, unread) {
            self.reads += 1;
        }
        Ok(())
    }

    fn look_after(&mut self, stream: &Stream) -> Result<(), TransferError> {
        let now = Instant::now();
        if now < self.next_look {
            return Ok(());
        }
        if self.served.queue.stuck_for(self.cut_after) {
            return Err(TransferError::Lost { why: "a send outlived its grant".to_owned() });
        }
        if self.busy && self.served.queue.is_idle() {
            self.busy = false;
            stream.socket().set_read_timeout(Some(self.heartbeat)).map_err(|why| lost(&why))?;
        }
        let pulse = self.beat.check(now, self.reads);
        self.next_look = if self.busy { now + TICK } else { self.beat.due() };
        match pulse {
            Pulse::Dead => Err(TransferError::Silent),
            Pulse::Early | Pulse::Due => Ok(()),
        }
    }
}
