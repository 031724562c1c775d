use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread::Scope;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags};

use super::MAX_WAITING;
use super::atlas::Atlas;
use super::copy::Hands;
use super::frame::{ToReader, ToSource};
use super::input::Input;
use super::open::Opened;
use super::peer::Peer;
use super::process::{Source, ended};
use super::unusable::Unusable;
use crate::bell::sleep;
use crate::error::{broken, lost};
use crate::portion::PORTION;
use crate::tcp::MAX_OPEN_REQUEST_BYTES;
use crate::{Outcome, TransferError};

/// What the thread of a connection does once it is made: hears the source, and copies.
pub(super) struct Reading<'a> {
    peer: &'a Peer,
    input: Input,
    atlas: Atlas,
    foreign: Result<(), Unusable>,
    hands: Hands,
    /// Threads that may still be started to help.
    helpers: u16,
}

impl<'a> Reading<'a> {
    pub(super) fn new(peer: &'a Peer, opened: Opened, copiers: u16) -> (Self, Arc<Source>) {
        let Opened { source, input, atlas, foreign } = opened;
        let (hands, helpers) = (Hands::new(), copiers.saturating_sub(1));
        (Self { peer, input, atlas, foreign, hands, helpers }, Arc::new(source))
    }

    /// Goes on until the connection is down, and says why it is.
    pub(super) fn run(mut self, scope: &'a Scope<'a, '_>, source: Arc<Source>) -> TransferError {
        loop {
            if let Err(why) = self.round(scope, &source) {
                return why;
            }
        }
    }

    /// The socket comes first, so that a source which revokes waits for a portion at most.
    fn round(
        &mut self,
        scope: &'a Scope<'a, '_>,
        source: &Arc<Source>,
    ) -> Result<(), TransferError> {
        self.hear()?;
        let heard = self.sleep(source)?;
        self.peer.fence_overdue(Instant::now());
        if let Some(why) = self.peer.down() {
            return Err(why);
        }
        if heard {
            self.input.fill(&source.socket)?;
            self.hear()?;
        }
        self.call_for_help(scope, source);
        self.copy(source);
        Ok(())
    }

    /// Sleeps until there is something to do; true if the source has said something.
    fn sleep(&self, source: &Source) -> Result<bool, TransferError> {
        let waiting = self.peer.outbox.flush();
        // More than all that this side may ask for: the source makes it answer without end.
        if waiting > MAX_OPEN_REQUEST_BYTES + MAX_WAITING {
            return Err(broken("more words than anybody answers"));
        }
        let mut wanted = PollFlags::IN;
        wanted.set(PollFlags::OUT, waiting > 0);
        let bell = PollFd::from_borrowed_fd(self.peer.outbox.bell().as_fd(), PollFlags::IN);
        let socket = PollFd::from_borrowed_fd(source.socket.as_fd(), wanted);
        let death = source.death().unwrap_or(bell.clone());
        let mut fds = [bell, socket, death];
        let limit = self.peer.desk.rest(Instant::now());
        sleep(&mut fds, limit).map_err(|why| lost(&why))?;
        let [bell, socket, death] = fds.map(|fd| fd.revents());
        if !bell.is_empty() {
            self.peer.outbox.bell().hush();
        }
        if source.process.is_some() && !death.is_empty() {
            return Err(ended());
        }
        Ok(!socket.difference(PollFlags::OUT).is_empty())
    }

    fn hear(&mut self) -> Result<(), TransferError> {
        while let Some((said, body)) = self.input.next(ToReader::decode)? {
            match said {
                ToReader::Show { generation, .. } => self.show(generation, &body)?,
                ToReader::Withdraw { generation } => {
                    self.atlas.withdraw(generation)?;
                    let word = ToSource::Withdrawn { generation }.encode();
                    self.peer.outbox.push(word.to_vec(), None);
                }
                ToReader::Answer { transfer, granted } => self.answer(transfer, granted)?,
                // It may have ended meanwhile.
                ToReader::Stop { transfer } => {
                    let outcome = Outcome::Failed(TransferError::NotGranted);
                    self.peer.tell(self.peer.desk.stop(transfer, outcome));
                }
                ToReader::Here { .. } | ToReader::Buffer { .. } => {
                    return Err(broken("a word that nobody asked for"));
                }
            }
        }
        Ok(())
    }

    fn show(&mut self, generation: u64, body: &[u8]) -> Result<(), TransferError> {
        let mapped = self.atlas.take_in(generation, body, &mut self.input)?;
        match &self.foreign {
            Err(why) if !mapped => Err(TransferError::Lost { why: why.to_string() }),
            _ => Ok(()),
        }
    }

    fn answer(&self, transfer: u64, granted: bool) -> Result<(), TransferError> {
        let desk = &self.peer.desk;
        let sources = desk.sources(transfer).ok_or(broken("an answer that nobody waits for"))?;
        let ended = if granted {
            let source = self.atlas.find(&sources);
            desk.begin(transfer, source.ok_or(broken("blocks that were not shown"))?)
        } else {
            desk.refused(transfer)
        };
        self.peer.tell(ended);
        Ok(())
    }

    fn call_for_help(&mut self, scope: &'a Scope<'a, '_>, source: &Arc<Source>) {
        if self.helpers == 0 || !self.peer.desk.wants_help() {
            return;
        }
        self.helpers -= 1;
        // Without it everything takes longer, and that is all.
        if let Err(why) = self.peer.start_helper(scope, source) {
            tracing::warn!(%why, "cannot start a thread that copies");
        }
    }

    /// Copies a portion, or as many small ones as have as many bytes.
    fn copy(&mut self, source: &Source) {
        let mut copied = 0;
        while copied < u64::from(PORTION)
            && let Some(job) = self.peer.desk.take()
        {
            copied += self.peer.copy(&mut self.hands, source, job);
        }
    }
}
