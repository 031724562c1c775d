use std::io::{self, BufRead, BufReader, Write};
use std::sync::Arc;
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use super::TcpConfig;
use super::beat::{Beat, Pulse};
use super::frame::{FRAME_LEN, Status, ToReader, ToSource};
use super::link::{Link, broken, hung_up, lost};
use super::queue::{Outgoing, Rest, SendQueue, Work};
use super::stream::Stream;
use super::wire::{Pieces, Portion};
use super::{MAX_REQUEST_BYTES, request};
use crate::grants::Grants;
use crate::{AgentId, GrantToken, TransferError};

/// How often a connection looks after what no message tells it: silence, stuck sends.
const TICK: Duration = Duration::from_millis(200);

/// The source's side of one connection.
pub(super) struct Served {
    pub(super) reader: AgentId,
    pub(super) link: Arc<Link>,
    pub(super) grants: Arc<Grants>,
    pub(super) queue: SendQueue,
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
            input: BufReader::with_capacity(64 << 10, first),
            beat: Beat::new(config.heartbeat, config.missed_heartbeats),
            reads: 0,
            next_look: Instant::now() + TICK,
            cut_after: config.cut_after,
        })
    }

    /// The life of a sender.
    fn send(&self, mut stream: &Stream, pings: bool, idle: Duration) {
        let mut pieces = Pieces::new();
        loop {
            let sent = match self.queue.take(idle) {
                Work::Portion { transfer, index, outgoing, end } => {
                    send_portion(stream, &mut pieces, transfer, index, &outgoing, end)
                }
                Work::End(end) => stream.write_all(&end.encode()),
                Work::Idle if pings => stream.write_all(&ToReader::Ping.encode()),
                Work::Idle => Ok(()),
                Work::Closed => return,
            };
            if let Err(error) = sent {
                return self.close(lost(&error));
            }
        }
    }
}

fn send_portion(
    stream: &Stream,
    pieces: &mut Pieces,
    transfer: u64,
    index: u64,
    outgoing: &Outgoing,
    end: Option<ToReader>,
) -> io::Result<()> {
    let portion = Portion::nth(&outgoing.scatter, index).ok_or(io::ErrorKind::InvalidInput)?;
    let head = ToReader::Portion { transfer, index, len: portion.len() }.encode();
    match end {
        None => stream.send(pieces, &head, portion, &[]),
        Some(end) => stream.send(pieces, &head, portion, &end.encode()),
    }
}

/// What a reader says, as it arrives.
struct Requests<'a> {
    served: &'a Served,
    input: BufReader<&'a Stream>,
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
        let rest = match served.grants.open(served.reader, GrantToken(token), &blocks) {
            Some((permit, scatter)) => Rest::Send(Arc::new(Outgoing { scatter, permit })),
            None => Rest::End(Status::NotGranted),
        };
        served.queue.push(transfer, len, rest).ok_or(broken("too many open requests"))
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
                    self.reads += 1;
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => {}
                    _ => return Err(lost(&error)),
                },
            }
            self.look_after()?;
        }
        Ok(())
    }

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
