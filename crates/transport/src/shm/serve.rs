use std::collections::HashMap;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};

use super::MAX_WAITING;
use super::catalog::{Catalog, Exhibit};
use super::frame::{ToReader, ToSource};
use super::input::Input;
use super::outbox::Outbox;
use crate::bell::sleep;
use crate::error::{broken, lost};
use crate::grants::{Grants, Permit};
use crate::scatter::Scatter;
use crate::tcp::{MAX_OPEN_REQUEST_BYTES, MAX_OPEN_REQUESTS, request};
use crate::{AgentId, GrantToken, Memory, TransferError};

/// The source's side of one connection.
pub(super) struct Served<'a> {
    pub(super) reader: AgentId,
    pub(super) cut_after: Duration,
    pub(super) grants: &'a Arc<Grants>,
    pub(super) catalog: &'a Catalog,
    pub(super) socket: &'a UnixStream,
    pub(super) outbox: &'a Outbox,
}

/// What the reader knows, and what it reads.
#[derive(Default)]
pub(super) struct Given {
    input: Input,
    open: HashMap<u64, Open>,
    request_bytes: usize,
    shown: HashMap<u64, Shown>,
    /// Of the catalog, as it was shown; `None` before.
    version: Option<u64>,
    /// A probe asked for it, and may still read it.
    buffer: Option<Arc<dyn Memory>>,
}

/// A read that was allowed. The memory stays registered until it is over.
struct Open {
    permit: Permit,
    _source: Scatter,
    request_bytes: usize,
    stopped: bool,
}

/// A registration that the reader may have mapped.
struct Shown {
    /// Stays alive until the reader has let go of it.
    _exhibit: Arc<Exhibit>,
    withdrawn: Option<Instant>,
}

impl Served<'_> {
    /// Serves until the connection is down, and says why it is.
    pub(super) fn run(&self) -> TransferError {
        let mut given = Given::default();
        self.show(&mut given);
        self.say(self.catalog.here());
        loop {
            if let Err(why) = self.round(&mut given) {
                return why;
            }
        }
    }

    fn say(&self, word: ToReader) {
        self.outbox.push(word.encode().to_vec(), None);
    }

    fn round(&self, given: &mut Given) -> Result<(), TransferError> {
        self.show(given);
        self.stop_revoked(given);
        let limit = self.next_cut(given)?;
        if self.sleep(limit)? {
            given.input.fill(self.socket)?;
            self.hear(given)?;
        }
        Ok(())
    }

    /// Says what has changed in the catalog; the end of a registration first, since the next
    /// one may have the same regions.
    fn show(&self, given: &mut Given) {
        let version = Some(self.catalog.version());
        if given.version == version {
            return;
        }
        given.version = version;
        let exhibits = self.catalog.exhibits();
        for (generation, shown) in &mut given.shown {
            if shown.withdrawn.is_none() && !exhibits.contains_key(generation) {
                shown.withdrawn = Some(Instant::now());
                self.say(ToReader::Withdraw { generation: *generation });
            }
        }
        for (generation, exhibit) in exhibits {
            given.shown.entry(generation).or_insert_with(|| {
                self.show_one(generation, &exhibit);
                Shown { _exhibit: exhibit, withdrawn: None }
            });
        }
    }

    fn show_one(&self, generation: u64, exhibit: &Exhibit) {
        // A registration has only so many regions that this fits.
        let len = u32::try_from(exhibit.words.len()).unwrap_or(u32::MAX);
        let frame = ToReader::Show { generation, len }.encode();
        let words = [&frame, exhibit.words.as_slice()].concat();
        let shared = exhibit.memory.shared().is_some();
        self.outbox.push(words, shared.then(|| Arc::clone(&exhibit.memory)));
    }

    fn stop_revoked(&self, given: &mut Given) {
        for (transfer, open) in &mut given.open {
            if !open.stopped && open.permit.revoked_for().is_some() {
                open.stopped = true;
                self.say(ToReader::Stop { transfer: *transfer });
            }
        }
    }

    /// Time until something was let go of too late; an error if it is too late already.
    ///
    /// What a reader copies after its connection was cut may be anything. It cannot pass for
    /// what was asked: the reader looks at the connection after each copy, and whoever takes
    /// the blocks into use asks this side once more, over the control channel, whether they
    /// were still its own by then.
    fn next_cut(&self, given: &Given) -> Result<Option<Duration>, TransferError> {
        let revoked = given.open.values().filter_map(|open| open.permit.revoked_for());
        let withdrawn = given.shown.values().filter_map(|shown| shown.withdrawn);
        let oldest = revoked.chain(withdrawn.map(|since| since.elapsed())).max();
        let Some(age) = oldest else { return Ok(None) };
        match self.cut_after.checked_sub(age).filter(|left| !left.is_zero()) {
            Some(left) => Ok(Some(left)),
            None => Err(TransferError::Lost { why: "a read outlived its grant".to_owned() }),
        }
    }

    /// Sleeps until there is something to do; true if the reader has said something.
    fn sleep(&self, limit: Option<Duration>) -> Result<bool, TransferError> {
        let waiting = self.outbox.flush();
        let mut wanted = PollFlags::empty();
        // Whoever asks and does not listen is not heard either.
        wanted.set(PollFlags::IN, waiting <= MAX_WAITING);
        wanted.set(PollFlags::OUT, waiting > 0);
        let bell = PollFd::from_borrowed_fd(self.outbox.bell().as_fd(), PollFlags::IN);
        let mut fds = [PollFd::from_borrowed_fd(self.socket.as_fd(), wanted), bell];
        sleep(&mut fds, limit).map_err(|why| lost(&why))?;
        self.outbox.bell().hush();
        let heard = fds[0].revents().difference(PollFlags::OUT);
        Ok(!heard.is_empty())
    }

    fn hear(&self, given: &mut Given) -> Result<(), TransferError> {
        while let Some((said, body)) = given.input.next(ToSource::decode)? {
            match said {
                ToSource::Request { transfer, token, .. } => {
                    self.request(given, transfer, token, &body)?;
                }
                ToSource::Over { transfer } => given.over(transfer)?,
                ToSource::Withdrawn { generation } => given.withdrawn(generation)?,
                ToSource::Probe => self.probe(given)?,
            }
        }
        Ok(())
    }

    fn request(
        &self,
        given: &mut Given,
        transfer: u64,
        token: u64,
        body: &[u8],
    ) -> Result<(), TransferError> {
        let blocks = request::decode(body).ok_or(broken("a malformed request"))?;
        let request_bytes = given.request_bytes + body.len();
        if given.open.len() >= MAX_OPEN_REQUESTS || request_bytes > MAX_OPEN_REQUEST_BYTES {
            return Err(broken("too many open requests"));
        }
        let opened = self.grants.open(self.reader, GrantToken(token), &blocks);
        let granted = opened.is_some();
        if let Some((permit, source)) = opened {
            let open = Open { permit, _source: source, request_bytes: body.len(), stopped: false };
            if given.open.insert(transfer, open).is_some() {
                return Err(broken("a transfer for the second time"));
            }
            given.request_bytes = request_bytes;
            // What was granted was registered before: the reader hears of that first.
            self.show(given);
        }
        self.say(ToReader::Answer { transfer, granted });
        Ok(())
    }

    fn probe(&self, given: &mut Given) -> Result<(), TransferError> {
        if given.buffer.is_some() {
            return Err(broken("a second probe"));
        }
        let buffer: Arc<dyn Memory> = self.catalog.buffer().map_err(|why| lost(&why))?;
        let address = buffer.base().as_ptr().addr() as u64;
        let frame = ToReader::Buffer { address, len: buffer.len() as u64 }.encode();
        self.outbox.push(frame.to_vec(), Some(Arc::clone(&buffer)));
        given.buffer = Some(buffer);
        Ok(())
    }
}

impl Given {
    fn over(&mut self, transfer: u64) -> Result<(), TransferError> {
        let open = self.open.remove(&transfer).ok_or(broken("the end of no transfer"))?;
        self.request_bytes -= open.request_bytes;
        Ok(())
    }

    fn withdrawn(&mut self, generation: u64) -> Result<(), TransferError> {
        match self.shown.remove(&generation) {
            Some(Shown { withdrawn: Some(_), .. }) => Ok(()),
            _ => Err(broken("the end of a registration that was not withdrawn")),
        }
    }
}
