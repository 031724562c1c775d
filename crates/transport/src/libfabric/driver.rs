use std::collections::HashSet;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::notices::Notices;
use super::order::{Answer, Order, ToRegister};
use super::plan::MAX_PARTS;
use super::tally::{MAX_WRITES, Tally};
use super::{
    Backing, Counter, CounterError, FabricConfig, FabricFacts, FabricPeer, FenceError, LocalMemory,
    MemoryError, Notice, OpenError, PeerError, Plan, RejectedWork, RemoteMemory, Rights, Work,
    WorkErrorKind, WorkId, WorkKind, thread,
};
use crate::Memory;
use crate::bell::Bell;
use crate::sync::lock;

/// Orders that are not works and may wait beside them.
const OTHER_ORDERS: usize = 64;

/// Bytes of the word by which writes are counted.
const WORD_BYTES: usize = 4;

/// How long a close of the library is waited for.
const CLOSES_WITHIN: Duration = Duration::from_secs(30);

/// Between two looks whether the thread has ended.
const LOOK: Duration = Duration::from_millis(1);

/// What the thread shares with the owner of the driver.
pub(super) struct Shared {
    pub(super) tally: Arc<Mutex<Tally>>,
    pub(super) notices: Arc<Notices>,
    pub(super) bell: Bell,
    pub(super) attended: AtomicUsize,
}

impl Shared {
    fn new() -> std::io::Result<Self> {
        let (notices, bell) = (Arc::new(Notices::new()?), Bell::new()?);
        let tally = Arc::new(Mutex::new(Tally::new()));
        Ok(Self { tally, notices, bell, attended: AtomicUsize::new(0) })
    }
}

/// One domain of libfabric with its thread; dropped, it closes everything.
///
/// Calls that register, insert or fence wait for the thread; the others do not. A provider may wait
/// without limit where it closes an endpoint: `efa` does for what it has sent and the card has not
/// reported. So a fence is waited for 30 seconds, and the drop as well; the thread is then left to
/// itself, with all that it has registered, and ends when the library lets it.
pub struct Driver {
    shared: Arc<Shared>,
    orders: SyncSender<Order>,
    thread: Option<JoinHandle<()>>,
    facts: FabricFacts,
    address: Vec<u8>,
    grain: u64,
    max_works: usize,
    /// Works that were accepted and whose end was not yet polled: their names are taken.
    open: Mutex<HashSet<WorkId>>,
}

impl Driver {
    /// Loads the library, if it is not, and opens a domain and its endpoint. This may take a second.
    ///
    /// # Errors
    /// No library, no such provider or domain, or a setting that cannot work.
    pub fn open(config: FabricConfig) -> Result<Self, OpenError> {
        config.check()?;
        let system =
            |what| move |why: std::io::Error| OpenError::System { what, why: why.to_string() };
        let shared = Arc::new(Shared::new().map_err(system("make an event descriptor"))?);
        let (orders, queue) = sync_channel(config.max_works + OTHER_ORDERS);
        let (grain, max_works) = (config.grain, config.max_works);
        let (thread, (facts, address)) = thread::start(config, &shared, queue)?;
        let (thread, open) = (Some(thread), Mutex::default());
        Ok(Self { shared, orders, thread, facts, address, grain, max_works, open })
    }

    /// What was opened.
    #[must_use]
    pub fn facts(&self) -> &FabricFacts {
        &self.facts
    }

    /// The endpoint's address, for peers to [insert](Self::insert). A fence changes it.
    #[must_use]
    pub fn address(&self) -> &[u8] {
        &self.address
    }

    /// Registers memory with the card, in parts of the size that the settings give. It is kept
    /// until it was deregistered and no operation uses it.
    ///
    /// # Errors
    /// The card refuses, often for a limit on locked memory; nothing was registered then.
    pub fn register(
        &self,
        memory: Arc<dyn Memory>,
        backing: Backing,
        rights: Rights,
    ) -> Result<LocalMemory, MemoryError> {
        let (len, grain) = (memory.len() as u64, self.grain);
        let parts = len.div_ceil(grain);
        match parts {
            0 => return Err(MemoryError::Empty),
            1..=MAX_PARTS => {}
            _ => return Err(MemoryError::TooMany { parts, most: MAX_PARTS }),
        }
        let memory = Box::new(ToRegister { memory, backing, rights, grain });
        let answer = self.ask(|to| Order::Register(memory, to));
        let (id, exposures) = answer.ok_or(MemoryError::Gone)??;
        let exposed = RemoteMemory::new(len, grain, &exposures).ok_or(MemoryError::Empty)?;
        Ok(LocalMemory { id, exposed })
    }

    /// Ends a registration: its keys open nothing any more when this returns. Where keys are
    /// looked at in software (`tcp`, `shm`, `efa` without the card's own RDMA), an operation that a
    /// peer had begun may still go on, so the memory is kept until the next [fence](Self::fence) or
    /// the end of the driver.
    ///
    /// # Errors
    /// [`MemoryError::InUse`] while a work uses it; [`MemoryError::StillOpen`] if the library
    /// refuses.
    pub fn deregister(&self, memory: &LocalMemory) -> Result<(), MemoryError> {
        self.ask(|to| Order::Deregister(memory.id, to)).ok_or(MemoryError::Gone)?
    }

    /// Makes a peer known by its endpoint's address. Nothing is sent yet.
    ///
    /// # Errors
    /// These bytes are no address of this kind of fabric.
    pub fn insert(&self, address: &[u8]) -> Result<FabricPeer, PeerError> {
        self.ask(|to| Order::Insert(address.to_vec(), to)).ok_or(PeerError::Gone)?
    }

    /// Forgets a peer. Its works fail, as soon as nothing of them is in flight any more.
    pub fn remove(&self, peer: FabricPeer) {
        self.tell(Order::Remove(peer));
    }

    /// A plan without moves, for the card's limits.
    #[must_use]
    pub fn plan(&self) -> Plan {
        Plan::new(self.facts.max_message)
    }

    /// Starts a work, which gets one [`Notice::Ended`].
    ///
    /// # Errors
    /// Nothing was started; the work comes back.
    pub fn submit(&self, work: Work) -> Result<(), RejectedWork> {
        let rejected = |why, work| Err(RejectedWork { why, work });
        let work = Box::new(work);
        let mut open = lock(&self.open);
        if let Some(why) = self.why_not(&work, &open) {
            return rejected(why, work);
        }
        let id = work.id;
        open.insert(id);
        let sent = self.orders.try_send(Order::Submit(work));
        self.shared.bell.ring();
        let (why, order) = match sent {
            Ok(()) => return Ok(()),
            Err(TrySendError::Full(order)) => (WorkErrorKind::QueueFull, order),
            Err(TrySendError::Disconnected(order)) => (WorkErrorKind::Gone, order),
        };
        open.remove(&id);
        match order {
            Order::Submit(work) => rejected(why, work),
            // It is the order that was sent.
            _ => Ok(()),
        }
    }

    fn why_not(&self, work: &Work, open: &HashSet<WorkId>) -> Option<WorkErrorKind> {
        if open.contains(&work.id) {
            return Some(WorkErrorKind::IdInUse);
        }
        if open.len() >= self.max_works {
            return Some(WorkErrorKind::QueueFull);
        }
        let WorkKind::Counted(_) = work.kind else { return None };
        let operations = work.plan.operations();
        if operations > MAX_WRITES {
            return Some(WorkErrorKind::TooMany { operations, most: MAX_WRITES });
        }
        (!self.counts()).then_some(WorkErrorKind::NoCounting)
    }

    /// Whether writes can be counted on this fabric.
    #[must_use]
    pub fn counts(&self) -> bool {
        self.facts.word_bytes >= WORD_BYTES
    }

    /// Wishes a work to end early: no more of it is posted, and it ends when nothing flies.
    pub fn cancel(&self, id: WorkId) {
        self.tell(Order::Cancel(id));
    }

    /// A counter for writes that a peer will be asked for.
    ///
    /// # Errors
    /// All are in use.
    pub fn counter(&self) -> Result<Counter, CounterError> {
        self.tally().open()
    }

    /// Says how many writes a counter waits for; they may have come before.
    /// [`Notice::Arrived`] comes once, when all have.
    ///
    /// # Errors
    /// The counter is not in use, or the number cannot be.
    pub fn expect(&self, counter: Counter, total: u32) -> Result<(), CounterError> {
        let whole = self.tally().expect(counter, total)?;
        if whole {
            self.shared.notices.push(Notice::Arrived { counter });
        }
        Ok(())
    }

    /// Ends the use of a counter whose writes will not all come. Those that still do, and they may
    /// until a fence, count for nobody.
    pub fn close_counter(&self, counter: Counter) {
        self.tally().close(counter);
    }

    /// Words that came with writes and that no counter waited for.
    #[must_use]
    pub fn strays(&self) -> u64 {
        self.tally().strays()
    }

    fn tally(&self) -> MutexGuard<'_, Tally> {
        lock(&self.shared.tally)
    }

    /// Says that a peer is about to read or write here: the thread naps no longer than 50 µs for as
    /// long as the value lives, where the card does not wake it.
    #[must_use]
    pub fn attend(&self) -> Attention {
        self.shared.attended.fetch_add(1, Ordering::Relaxed);
        self.shared.bell.ring();
        Attention(Arc::clone(&self.shared))
    }

    /// Closes the endpoint and opens another one. When this returns, nothing that was asked for
    /// from here, and no peer, can touch local memory by the old one. All works have ended,
    /// most with [`WorkError::Fenced`](super::WorkError), no peer is known, and there is a new
    /// address. Registrations and their keys stay. (Over `shm`, which is there for tests, a peer of
    /// this user reaches memory without any endpoint.)
    ///
    /// # Errors
    /// [`FenceError::StillOpen`] if the promise cannot be kept, and [`FenceError::Late`] if the
    /// library takes longer than 30 seconds: nothing has ended then, and nothing is released.
    pub fn fence(&mut self) -> Result<(), FenceError> {
        let (to, answer) = sync_channel(1);
        self.tell(Order::Fence(to));
        self.address = within(&answer, CLOSES_WITHIN)?;
        Ok(())
    }

    /// Takes what happened since the last call.
    pub fn poll(&self, notices: &mut Vec<Notice>) {
        let new = self.shared.notices.take();
        let mut open = lock(&self.open);
        for notice in &new {
            if let Notice::Ended { id, .. } = notice {
                open.remove(id);
            }
        }
        drop(open);
        notices.extend(new);
    }

    /// Readable while [`poll`](Self::poll) has something to tell.
    #[must_use]
    pub fn ready_fd(&self) -> BorrowedFd<'_> {
        self.shared.notices.ready_fd()
    }

    fn tell(&self, order: Order) {
        // There is nobody to tell where the thread has ended.
        let _ = self.orders.send(order);
        self.shared.bell.ring();
    }

    /// The thread's answer; `None` if it has ended.
    fn ask<T>(&self, order: impl FnOnce(Answer<T>) -> Order) -> Option<T> {
        let (to, answer) = sync_channel(1);
        self.tell(order(to));
        answer.recv().ok()
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        let (begun, mut told) = (Instant::now(), false);
        while !thread.is_finished() {
            if !told {
                let sent = self.orders.try_send(Order::Stop);
                told = !matches!(sent, Err(TrySendError::Full(_)));
                self.shared.bell.ring();
            }
            if begun.elapsed() > CLOSES_WITHIN {
                return tracing::error!("libfabric does not close a domain: its thread stays");
            }
            std::thread::sleep(LOOK);
        }
        if thread.join().is_err() {
            tracing::error!("the thread of a fabric has panicked");
        }
    }
}

/// A fence's answer, if it comes in time.
fn within(
    answer: &Receiver<Result<Vec<u8>, FenceError>>,
    limit: Duration,
) -> Result<Vec<u8>, FenceError> {
    match answer.recv_timeout(limit) {
        Ok(answer) => answer,
        Err(RecvTimeoutError::Timeout) => Err(FenceError::Late { waited: limit }),
        Err(RecvTimeoutError::Disconnected) => Err(FenceError::Gone),
    }
}

/// Keeps the thread attentive; see [`Driver::attend`].
pub struct Attention(Arc<Shared>);

impl Drop for Attention {
    fn drop(&mut self) {
        self.0.attended.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_is_waited_for_so_long_and_no_longer() {
        let (to, answer) = sync_channel(1);
        let waited = Duration::from_millis(20);
        assert_eq!(within(&answer, waited), Err(FenceError::Late { waited }));
        to.send(Ok(vec![1])).unwrap();
        assert_eq!(within(&answer, waited), Ok(vec![1]));
        drop(to);
        assert_eq!(within(&answer, waited), Err(FenceError::Gone));
    }
}
