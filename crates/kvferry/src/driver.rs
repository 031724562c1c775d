//! One rank of an engine, led by the orders of its scheduler.

mod request;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use connector::params::RankAddress;
use connector::{ClaimId, Counts, Ended, Fetch, Lease, Order, Why, Word};
use tokio::sync::{mpsc, oneshot, watch};

use crate::agent::AbortOnDrop;
use crate::{Config, Decode, Engine, FetchError, FreedLeases, Path, PrefillRank, StartError};
use request::Request;

/// One rank of an engine whose [scheduler](connector::Scheduler) may be another process: it
/// follows orders and reports how they ended. No call waits, so that an engine's own thread can
/// make them between two steps; the work goes on in the tokio runtime that it was started in.
///
/// Before it is dropped, or its memory used for something else, it is to be
/// [withdrawn](Self::withdraw): reads that are under way go on for a while, and hold the memory.
pub struct WorkerDriver {
    prefill: Option<Arc<PrefillRank>>,
    decode: Option<Arc<Decode>>,
    told: mpsc::UnboundedSender<Told>,
    reports: Arc<Reports>,
    /// Of the decode agent.
    paths: Option<Mutex<watch::Receiver<Vec<Path>>>>,
    _tasks: [AbortOnDrop; 2],
}

/// What an engine does with its KV cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// It hands off what it has prefilled.
    Prefill,
    /// It fetches what others have prefilled.
    Decode,
    /// One as well as the other, each under an agent of its own.
    Both,
}

/// How something ended that was ordered.
#[derive(Clone, Debug)]
pub struct Report {
    /// What the scheduler must be [told](connector::Scheduler::hear).
    pub word: Word,
    /// What became of a request.
    pub load: Option<Load>,
}

/// What a rank did for one request.
#[derive(Clone, Debug)]
pub struct Load {
    /// From the order until P had answered; as long as it took, where it did not.
    pub claiming: Duration,
    /// From the order to read, or P's answer if that came later, until the bytes counted.
    pub reading: Duration,
    /// The bytes that moved, or why there are none.
    pub outcome: Result<u64, FetchError>,
}

/// What the tasks of a driver are told, in the order in which it was said.
enum Told {
    Order(Order),
    Withdraw(oneshot::Sender<()>),
    Restore,
}

#[derive(Default)]
struct Reports(Mutex<VecDeque<Report>>);

impl WorkerDriver {
    /// Starts the agents of a rank. Must be called in a tokio runtime.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn start(config: &Config, engine: &Engine, part: Part) -> Result<Self, StartError> {
        let reports = Arc::new(Reports::default());
        let mut freeing = None;
        let prefill = if part == Part::Decode {
            None
        } else {
            let (rank, leases) = PrefillRank::start(config, engine).await?;
            freeing = Some(leases);
            Some(Arc::new(rank))
        };
        let decode = if part == Part::Prefill {
            None
        } else {
            Some(Arc::new(Decode::start(config, engine)?))
        };
        let (told, hearing) = mpsc::unbounded_channel();
        let follower = Follower {
            prefill: prefill.clone(),
            decode: decode.clone(),
            requests: BTreeMap::new(),
            reports: Arc::clone(&reports),
        };
        let freeing = free(freeing, Arc::clone(&reports));
        let tasks = [tokio::spawn(follower.run(hearing)), tokio::spawn(freeing)];
        let paths = decode.as_deref().map(|decode| Mutex::new(decode.watch_paths()));
        Ok(Self { prefill, decode, told, reports, paths, _tasks: tasks.map(AbortOnDrop) })
    }

    /// Where decode agents reach this rank; `None` where it hands nothing off.
    #[must_use]
    pub fn advertised(&self) -> Option<&RankAddress> {
        self.prefill.as_deref().map(PrefillRank::advertised)
    }

    /// Takes an order of the scheduler. Orders are followed in the order in which they come;
    /// what becomes of them is [reported](Self::reports).
    pub fn follow(&self, order: Order) {
        // The task ends with this value only.
        let _ = self.told.send(Told::Order(order));
    }

    /// What has ended since the last call.
    #[must_use]
    pub fn reports(&self) -> Vec<Report> {
        self.reports.lock().drain(..).collect()
    }

    /// How each rank of prefill engines is read, where that has changed since the last call.
    #[must_use]
    pub fn new_paths(&self) -> Option<Vec<Path>> {
        let paths = self.paths.as_ref()?;
        let mut paths = paths.lock().unwrap_or_else(PoisonError::into_inner);
        // Once the agent is gone, nothing changes any more.
        let is_new = paths.has_changed().unwrap_or(false);
        is_new.then(|| paths.borrow_and_update().clone())
    }

    /// Ends everything that was ordered before, as an engine must before it takes its memory
    /// away (sleep): returns when nothing touches it any more. What is ordered after that fails.
    pub async fn withdraw(&self) {
        let (reply, withdrawn) = oneshot::channel();
        let _ = self.told.send(Told::Withdraw(reply));
        let _ = withdrawn.await;
    }

    /// The memory is there again, at the same place.
    pub fn restore(&self) {
        let _ = self.told.send(Told::Restore);
    }

    /// What the agents hold now, one after the other: that which keeps, that which fetches.
    pub async fn counts(&self) -> [Counts; 2] {
        let kept = match &self.prefill {
            Some(rank) => rank.counts().await,
            None => Counts::default(),
        };
        let fetched = match &self.decode {
            Some(decode) => decode.counts().await,
            None => Counts::default(),
        };
        [kept, fetched]
    }
}

impl Reports {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Report>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, word: Word, load: Option<Load>) {
        self.lock().push_back(Report { word, load });
    }
}

/// The task that follows orders.
struct Follower {
    prefill: Option<Arc<PrefillRank>>,
    decode: Option<Arc<Decode>>,
    /// Those that may still be told something.
    requests: BTreeMap<ClaimId, Request>,
    reports: Arc<Reports>,
}

impl Follower {
    async fn run(mut self, mut hearing: mpsc::UnboundedReceiver<Told>) {
        while let Some(told) = hearing.recv().await {
            match told {
                Told::Order(Order::Keep(lease)) => self.keep(lease).await,
                Told::Order(Order::Fetch(fetch)) => self.fetch(fetch).await,
                Told::Order(Order::Read { claim, blocks }) => {
                    let request = self.requests.get_mut(&claim);
                    request.into_iter().for_each(|request| request.read(Arc::clone(&blocks)));
                }
                // It still reports how it ends.
                Told::Order(Order::Abort(claim)) => drop(self.requests.remove(&claim)),
                Told::Withdraw(reply) => {
                    self.withdraw().await;
                    let _ = reply.send(());
                }
                Told::Restore => self.restore().await,
            }
        }
    }

    async fn keep(&self, lease: Lease) {
        let id = lease.id.clone();
        let kept = match &self.prefill {
            Some(rank) => rank.keep(lease).await.map_err(|why| why.to_string()),
            None => Err("this worker is none of a prefill engine".to_owned()),
        };
        if let Err(why) = kept {
            tracing::error!(request = %id.request, %why, "blocks cannot be kept");
            self.reports.push(Word::Freed { lease: id, why: Why::Over }, None);
        }
    }

    async fn fetch(&mut self, fetch: Fetch) {
        // Whoever has ended hears nothing.
        self.requests.retain(|_, request| request.is_open());
        let claim = fetch.claim.clone();
        let asked = match &self.decode {
            Some(decode) => decode.ask(fetch).await,
            None => Err(FetchError::Stopped),
        };
        match asked {
            Ok(asked) => {
                let settled = asked.settled();
                let (request, ends) = Request::new(asked);
                self.requests.insert(claim.clone(), request);
                tokio::spawn(report(ends, settled, claim, Arc::clone(&self.reports)));
            }
            Err(why) => self.reports.push(Word::Ended { claim, how: why.ended() }, None),
        }
    }

    async fn withdraw(&self) {
        if let Some(rank) = &self.prefill {
            rank.withdraw().await;
        }
        if let Some(decode) = &self.decode {
            decode.withdraw().await;
        }
    }

    async fn restore(&self) {
        if let Some(rank) = &self.prefill {
            rank.restore().await;
        }
        if let Some(decode) = &self.decode {
            decode.restore().await;
        }
    }
}

/// Reports how a request ends, also where its task panics: the engine waits for a word.
async fn report(
    ends: impl Future<Output = Load> + Send + 'static,
    settled: impl Future<Output = ()>,
    claim: ClaimId,
    reports: Arc<Reports>,
) {
    let (how, load) = match tokio::spawn(ends).await {
        Ok(load) => {
            let outcome = load.outcome.as_ref();
            (outcome.map_or_else(FetchError::ended, |_| Ended::Received), Some(load))
        }
        Err(why) => {
            tracing::error!(request = %claim.request, %why, "a request's task is gone");
            settled.await;
            (FetchError::Stopped.ended(), None)
        }
    };
    reports.push(Word::Ended { claim, how }, load);
}

/// The task that hears of freed leases.
async fn free(leases: Option<FreedLeases>, reports: Arc<Reports>) {
    let Some(mut leases) = leases else { return };
    while let Some((lease, why)) = leases.next().await {
        reports.push(Word::Freed { lease, why }, None);
    }
}
