//! What a run consists of, and what a seed decides about it.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::clock::Clock;
use super::engine::Place;
use super::planted::Planted;

/// One kind of mishap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// A whole engine dies; most come back on their address.
    Crash,
    /// One worker of an engine dies and comes back.
    Worker,
    /// A process or a host stands still.
    Pause,
    /// Clocks run up to 1 % fast or slow.
    Drift,
    /// An engine takes its memory away for a while.
    Sleep,
    /// A connection breaks, also without one side noticing.
    Break,
    /// Two engines cannot reach each other for a while.
    Partition,
    /// Frames come twice or in another order, which TCP would never do.
    Mangle,
    /// Handshakes fail or take too long.
    Greet,
    /// Reads are slow, fail, get stuck or complete after they were given up.
    Read,
    /// Clients go away, engines reject, preempt, or find all in their own cache.
    Abort,
    /// The router repeats, mixes up, delays and loses requests.
    Router,
}

const FAULTS: [(Fault, &str); 12] = [
    (Fault::Crash, "crash"),
    (Fault::Worker, "worker"),
    (Fault::Pause, "pause"),
    (Fault::Drift, "drift"),
    (Fault::Sleep, "sleep"),
    (Fault::Break, "break"),
    (Fault::Partition, "partition"),
    (Fault::Mangle, "mangle"),
    (Fault::Greet, "greet"),
    (Fault::Read, "read"),
    (Fault::Abort, "abort"),
    (Fault::Router, "router"),
];

/// The kinds of mishap that a run may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults(BTreeSet<Fault>);

/// A word that names no mishap.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{word}` is no kind of fault: all, none, or some of {}", names(FAULTS.iter()))]
pub struct FaultsError {
    /// The word.
    pub word: String,
}

impl Faults {
    /// Every kind.
    #[must_use]
    pub fn all() -> Self {
        Self(FAULTS.iter().map(|(fault, _)| *fault).collect())
    }

    /// A world in which nothing goes wrong.
    #[must_use]
    pub fn none() -> Self {
        Self(BTreeSet::new())
    }

    pub(crate) fn has(&self, fault: Fault) -> bool {
        self.0.contains(&fault)
    }

    /// Whether nothing but this may happen.
    pub(crate) fn only(&self, fault: Fault) -> bool {
        self.0.iter().all(|other| *other == fault)
    }

    /// Whether nothing goes wrong.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.0.is_empty()
    }
}

fn names<'a>(of: impl Iterator<Item = &'a (Fault, &'static str)>) -> String {
    of.map(|(_, name)| *name).collect::<Vec<_>>().join(",")
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.len() {
            0 => f.write_str("none"),
            all if all == FAULTS.len() => f.write_str("all"),
            _ => f.write_str(&names(FAULTS.iter().filter(|(fault, _)| self.has(*fault)))),
        }
    }
}

impl FromStr for Faults {
    type Err = FaultsError;

    fn from_str(text: &str) -> Result<Self, FaultsError> {
        let one = |word: &str| {
            let found = FAULTS.iter().find(|(_, name)| *name == word);
            found.map(|(fault, _)| *fault).ok_or(FaultsError { word: word.to_owned() })
        };
        match text {
            "all" => Ok(Self::all()),
            "none" => Ok(Self::none()),
            some => some.split(',').map(one).collect::<Result<_, _>>().map(Self),
        }
    }
}

/// One run. The same setup always goes the same way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setup {
    /// Decides everything that is left open here.
    pub seed: u64,
    /// Prefill engines.
    pub prefills: usize,
    /// Decode engines.
    pub decodes: usize,
    /// Ranks of each prefill engine.
    pub prefill_ranks: usize,
    /// Ranks of each decode engine.
    pub decode_ranks: usize,
    /// Prompts.
    pub requests: usize,
    /// What may go wrong.
    pub faults: Faults,
    /// A mistake to make on purpose.
    pub planted: Option<Planted>,
}

impl Setup {
    /// A small world whose shape the seed decides.
    #[must_use]
    pub fn of_seed(seed: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed ^ 0x5eed);
        Self {
            seed,
            prefills: random.random_range(1..=3),
            decodes: random.random_range(1..=3),
            prefill_ranks: random.random_range(1..=3),
            decode_ranks: random.random_range(1..=3),
            requests: 200,
            faults: Faults::all(),
            planted: None,
        }
    }

    /// The command that runs this again.
    #[must_use]
    pub fn command(&self) -> String {
        let planted = self.planted.map(|planted| format!(" --planted {planted}"));
        format!(
            "cargo run --release --bin kvferry -- sim --seed {} --engines {}x{} --ranks {}x{} \
             --requests {} --faults {}{}",
            self.seed,
            self.prefills,
            self.decodes,
            self.prefill_ranks,
            self.decode_ranks,
            self.requests,
            self.faults,
            planted.unwrap_or_default(),
        )
    }
}

/// What the seed decides once for a whole run.
#[derive(Debug)]
pub(crate) struct Terrain {
    pub(crate) setup: Setup,
    /// What stays of each engine over its lives: those of P, then those of D.
    pub(crate) places: Vec<Place>,
    /// Reads look at P's memory without its doing, and no revocation stops one.
    pub(crate) one_sided: bool,
    /// A fence cuts all reads of an endpoint, not just those of one peer.
    pub(crate) fence_all: bool,
    /// All ranks of P keep the same heads, instead of one each.
    pub(crate) replicas: bool,
    /// Of each rank of P, the ranks of D that read it.
    pub(crate) readers: Vec<BTreeSet<usize>>,
    /// Of each rank of D, the ranks of P that it reads.
    pub(crate) sources: Vec<Vec<usize>>,
    /// Reads that an endpoint takes at a time.
    pub(crate) queue: usize,
    /// When the last prompt arrives.
    pub(crate) span: u64,
    /// A usual delay on the wire.
    pub(crate) latency: u64,
    /// A usual step of an engine.
    pub(crate) step: u64,
    /// After which a read is overdue.
    pub(crate) overdue: u64,
}

/// A millisecond and a second in the world's time.
pub(crate) const MS: u64 = 1_000_000;
pub(crate) const SEC: u64 = 1_000 * MS;

impl Terrain {
    pub(crate) fn new(setup: &Setup, random: &mut ChaCha8Rng) -> Self {
        let replicas = random.random_bool(0.25);
        let readers = readers(setup.prefill_ranks, setup.decode_ranks, replicas);
        let read_by =
            |rank| (0..readers.len()).filter(|&source| readers[source].contains(&rank)).collect();
        let sources: Vec<Vec<usize>> = (0..setup.decode_ranks).map(read_by).collect();
        let burst = random.random_bool(0.2);
        let places = (0..setup.prefills + setup.decodes).map(|index| {
            let parts = match index < setup.prefills {
                true => vec![1; setup.prefill_ranks],
                false => sources.iter().map(Vec::len).collect(),
            };
            let blocks = if burst { 2000 } else { random.random_range(24..200) };
            Place { index, blocks, parts, clock: clock(setup, random) }
        });
        let places = places.collect();
        Self {
            setup: setup.clone(),
            places,
            replicas,
            one_sided: random.random_bool(0.5),
            fence_all: random.random_bool(0.3),
            sources,
            queue: if burst { 48 } else { random.random_range(1..40) },
            span: if burst { SEC / 4 } else { random.random_range(4..120) * SEC },
            latency: random.random_range(MS / 20..5 * MS),
            step: random.random_range(2 * MS..40 * MS),
            overdue: random.random_range(5..40) * SEC,
            readers,
        }
    }
}

impl Terrain {
    /// Heads of the toy model over all ranks of P.
    pub(crate) fn heads(&self) -> u32 {
        let ranks = if self.replicas { 1 } else { self.setup.prefill_ranks };
        u32::try_from(ranks).unwrap_or(u32::MAX)
    }

    /// The head that a rank of P keeps.
    pub(crate) fn head(&self, rank: usize) -> u32 {
        if self.replicas { 0 } else { u32::try_from(rank).unwrap_or(u32::MAX) }
    }

    /// When the last fault is over.
    pub(crate) fn calm_at(&self) -> u64 {
        self.span + 10 * SEC
    }

    /// From when on every request must be served: engines are back on their feet, and what was
    /// left behind has come to its end.
    pub(crate) fn well_at(&self) -> u64 {
        self.calm_at() + 60 * SEC
    }
}

fn clock(setup: &Setup, random: &mut ChaCha8Rng) -> Clock {
    let drifts = setup.faults.has(Fault::Drift);
    let drift = if drifts { random.random_range(-10_000..=10_000) } else { 0 };
    Clock { offset: random.random_range(0..1_000 * SEC), drift }
}

/// Who reads whom: shares of equal size, or the whole from one of several equal ranks.
fn readers(prefill: usize, decode: usize, replicas: bool) -> Vec<BTreeSet<usize>> {
    let reads = |source: usize, rank: usize| {
        if replicas {
            rank % prefill == source
        } else if prefill <= decode {
            rank * prefill / decode == source
        } else {
            source * decode / prefill == rank
        }
    };
    let of = |source| (0..decode).filter(|&rank| reads(source, rank)).collect();
    (0..prefill).map(of).collect()
}
