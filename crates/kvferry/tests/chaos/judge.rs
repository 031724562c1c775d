//! What became of each request, and whether it may have.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::{Duration, Instant};

use serde_json::Value;

/// A request ends within this time, whatever happens: the handshake's 10 s, twice the 5 s of a
/// silent peer (a failed read is tried once more), and as much again for a busy machine.
pub const ENDS: Duration = Duration::from_secs(40);

/// A request under way.
struct Flight {
    /// The decode engine knows of it.
    fetched: bool,
    claimed: bool,
    due: Instant,
    /// When the last fault that hit it began, or ended where it was a stop.
    hit: Option<Instant>,
}

#[derive(Default)]
pub struct Judge {
    flights: BTreeMap<u64, Flight>,
    /// What the prefill engine holds.
    leases: BTreeSet<u64>,
    /// Received; the prefill engine has not said so yet.
    received: BTreeSet<u64>,
    /// Let go of by the prefill engine, before the decode engine has said anything.
    let_go: BTreeSet<u64>,
    pub tally: Tally,
    /// Why the last one failed.
    pub last: Option<String>,
}

/// The counts of a run.
#[derive(Default)]
pub struct Tally {
    pub requests: u64,
    pub received: u64,
    pub failed: BTreeMap<String, u64>,
    /// Their engine died before they could end.
    pub gone: u64,
    pub faults: u64,
    /// From the last fault that hit a request to the request's end, of all such requests. While an
    /// engine stands still it can tell nobody anything: a stop counts from its end.
    pub slowest: Duration,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { requests, received, failed, gone, faults, slowest } = self;
        write!(f, "{faults} faults, {requests} requests, {received} received, failed ")?;
        match failed.is_empty() {
            true => write!(f, "none")?,
            false => {
                let classes: Vec<_> = failed.iter().map(|(c, n)| format!("{n} {c}")).collect();
                write!(f, "{}", classes.join(" + "))?;
            }
        }
        write!(f, ", {gone} gone with their engine, 0 wrong bytes")?;
        match slowest.is_zero() {
            true => Ok(()),
            false => write!(f, ", slowest end after a fault {slowest:.1?}"),
        }
    }
}

impl Judge {
    /// A new request, which the prefill engine is about to be asked for.
    pub fn begin(&mut self) -> u64 {
        let flight =
            Flight { fetched: false, claimed: false, due: Instant::now() + ENDS, hit: None };
        self.tally.requests += 1;
        self.flights.insert(self.tally.requests, flight);
        self.tally.requests
    }

    pub fn under_way(&self) -> usize {
        self.flights.len()
    }

    /// Requests that the decode engine has claimed and not ended.
    pub fn claimed(&self) -> Vec<u64> {
        let claimed = self.flights.iter().filter(|(_, flight)| flight.claimed);
        claimed.map(|(request, _)| *request).collect()
    }

    pub fn leases(&self) -> usize {
        self.leases.len()
    }

    /// Requests under way whose blocks the prefill engine has let go, though nobody read them.
    pub fn leases_let_go(&self) -> usize {
        self.let_go.len()
    }

    /// Whether the decode engine is to fetch it.
    pub fn offered(&mut self, request: u64, anybody: bool) -> bool {
        self.leases.insert(request);
        if !anybody && self.flights.remove(&request).is_some() {
            self.tally.gone += 1;
        }
        let flight = self.flights.get_mut(&request);
        flight.map(|flight| flight.fetched = true).is_some()
    }

    pub fn was_claimed(&mut self, request: u64) {
        self.flights.get_mut(&request).expect("claimed before its end").claimed = true;
    }

    pub fn freed(&mut self, request: u64, why: &str) {
        assert!(self.leases.remove(&request), "{request} was freed twice");
        if why != "Satisfied" {
            assert!(!self.received.contains(&request), "{request}: received, and freed as {why}");
            if self.flights.contains_key(&request) {
                self.let_go.insert(request);
            }
        }
        self.received.remove(&request);
    }

    pub fn ended(&mut self, request: u64, how: &Value) {
        let flight = self.flights.remove(&request).expect("ended once");
        let hit = flight.hit.map_or(Duration::ZERO, |hit| hit.elapsed());
        self.tally.slowest = self.tally.slowest.max(hit);
        if let Some(fault) = how["fault"].as_str() {
            panic!("{request}: {fault}");
        }
        let let_go = self.let_go.remove(&request);
        match how["class"].as_str() {
            Some(class) => {
                // Another try may work: nothing here is a fault of the program, of its settings,
                // or of what the other side says.
                let mends = matches!(class, "Retry" | "PeerLost" | "Exhausted" | "Released");
                assert!(mends, "{request}: {how}");
                self.last = how["why"].as_str().map(str::to_owned);
                *self.tally.failed.entry(class.to_owned()).or_default() += 1;
            }
            None => {
                assert!(!let_go, "{request}: received from blocks that were let go");
                self.tally.received += 1;
                if self.leases.contains(&request) {
                    self.received.insert(request);
                }
            }
        }
    }

    /// All that is under way is to end within `bound` from now.
    pub fn hit(&mut self, bound: Duration) {
        let now = Instant::now();
        self.tally.faults += 1;
        for flight in self.flights.values_mut() {
            flight.due = flight.due.min(now + bound);
            flight.hit = Some(now);
        }
    }

    /// Whoever stood still goes on.
    pub fn goes_on(&mut self) {
        for hit in self.flights.values_mut().filter_map(|flight| flight.hit.as_mut()) {
            *hit = Instant::now();
        }
    }

    /// What the prefill engine had not offered yet is gone, and so is all it held.
    pub fn prefill_died(&mut self) {
        let before = self.flights.len();
        self.flights.retain(|_, flight| flight.fetched);
        self.tally.gone += (before - self.flights.len()) as u64;
        self.leases.clear();
        self.received.clear();
    }

    pub fn decode_died(&mut self) {
        let before = self.flights.len();
        self.flights.retain(|_, flight| !flight.fetched);
        self.let_go.clear();
        self.tally.gone += (before - self.flights.len()) as u64;
    }

    pub fn check_due(&self) {
        let now = Instant::now();
        for (request, flight) in &self.flights {
            assert!(now < flight.due, "{request} (fetched: {}) has not ended", flight.fetched);
        }
    }
}
