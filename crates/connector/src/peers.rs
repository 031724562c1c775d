use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use crate::bounds::{Bounds, Time};
use crate::ids::{AgentEpoch, ClaimId, EngineEpoch, Rank};
use crate::io::{Action, Failure, Fetch, Outbox};
use crate::limits::{MAX_EARLY, MAX_ENGINES};
use crate::params::{Address, RankAddress};
use crate::timers::Timers;

/// D's side: the prefill engines that one worker knows, and the requests that wait to get to
/// know one. Each engine is greeted by one handshake at a time, whoever asks meanwhile waits
/// for the same, and those of different engines go on side by side.
#[derive(Debug)]
pub(crate) struct Peers {
    bounds: Bounds,
    engines: BTreeMap<Place, State>,
    timers: Timers<Place>,
    /// Known engines by when they came to be known; for one too many the first goes.
    known: VecDeque<Place>,
}

/// An engine is where its ranks answer, whatever else parameters call it.
type Place = Vec<RankAddress>;

fn place(address: &Address) -> Place {
    address.ranks().cloned().collect()
}

/// An engine that has been greeted, as the handshakes with its ranks showed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acquaintance {
    /// This life of it.
    pub engine: EngineEpoch,
    /// The ranks of it that this worker speaks to, each with the ranks of D that read it: see
    /// [`counterparts`](crate::counterparts).
    pub sources: BTreeMap<AgentEpoch, BTreeSet<Rank>>,
}

#[derive(Debug)]
enum State {
    Greeting {
        waiting: Vec<Fetch>,
        /// Claims of requests that have ended while they waited: P has to be told that nobody will read.
        /// At most [`MAX_EARLY`], which is as many as P would keep; leases of others run out.
        ended: Vec<ClaimId>,
        /// Times that it could not be greeted, one after the other.
        failures: u32,
        /// The life of it that was known, and still is if no other is found.
        before: Option<Acquaintance>,
    },
    Known {
        acquaintance: Acquaintance,
        /// When it was last greeted for another life of it than it is in.
        mistaken: Option<Time>,
    },
    /// Not greeted again before `until`, if that is not over already.
    Absent { failure: Failure, until: Time, failures: u32 },
}

/// What becomes of a request that asks for an engine.
#[derive(Debug)]
pub(crate) enum Asked {
    /// The engine is known.
    Known(Fetch, Acquaintance),
    /// It will be told later.
    Waits,
    /// It cannot be had.
    Failed(ClaimId, Failure),
    /// It is known now, but the request has ended.
    Ended(ClaimId, Acquaintance),
}

/// An engine of another life than was asked for is greeted anew, but not more often than this.
const LIVES: Duration = Duration::from_secs(1);

/// The longest time for which an engine that cannot be reached is left alone.
const LONGEST_BACK_OFF: Duration = Duration::from_secs(4);

impl Peers {
    pub(crate) fn new(bounds: Bounds) -> Self {
        let (engines, timers) = (BTreeMap::new(), Timers::new());
        Self { bounds, engines, timers, known: VecDeque::new() }
    }

    /// Looks for the engine that a request needs, and has it greeted if need be.
    pub(crate) fn ask(&mut self, now: Time, fetch: Fetch, out: &mut Outbox) -> Asked {
        let place = place(&fetch.address);
        let wanted = fetch.claim.lease.engine;
        let is_wanted = |acquaintance: &&Acquaintance| acquaintance.engine == wanted;
        let state = self.engines.get_mut(&place);
        if let Some(acquaintance) = state.as_ref().and_then(|s| s.known()).filter(is_wanted) {
            let acquaintance = acquaintance.clone();
            return Asked::Known(fetch, acquaintance);
        }
        let (failures, before) = match state {
            Some(State::Greeting { waiting, .. }) => {
                if waiting.is_empty() {
                    // Whoever waited before has waited long enough.
                    self.timers.set(&place, Some(now.saturating_add(self.bounds.greeting)));
                }
                waiting.push(fetch);
                return Asked::Waits;
            }
            Some(State::Known { mistaken: Some(at), .. }) if now < at.saturating_add(LIVES) => {
                return Asked::Failed(fetch.claim, Failure::Unknown);
            }
            Some(State::Absent { failure, until, .. }) if now < *until => {
                return Asked::Failed(fetch.claim, failure.clone());
            }
            Some(State::Absent { failures, .. }) => (*failures, None),
            Some(State::Known { acquaintance, .. }) => (0, Some(acquaintance.clone())),
            None => (0, None),
        };
        let address = fetch.address.clone();
        let (waiting, ended) = (vec![fetch], Vec::new());
        self.set(now, &place, State::Greeting { waiting, ended, failures, before });
        out.actions.push_back(Action::Greet { address });
        Asked::Waits
    }

    /// All handshakes with an engine are done. Gives what becomes of those who waited.
    pub(crate) fn greeted(
        &mut self,
        now: Time,
        address: &Address,
        acquaintance: &Acquaintance,
        out: &mut Outbox,
    ) -> Vec<Asked> {
        let place = place(address);
        let Some(State::Greeting { waiting, ended, .. }) = self.engines.get_mut(&place) else {
            return Vec::new();
        };
        let (waiting, ended) = (std::mem::take(waiting), std::mem::take(ended));
        let another = |fetch: &Fetch| fetch.claim.lease.engine != acquaintance.engine;
        let mistaken = waiting.iter().any(another).then_some(now);
        let acquaintance = acquaintance.clone();
        self.set(now, &place, State::Known { acquaintance: acquaintance.clone(), mistaken });
        self.remember(place, out);
        let told = waiting.into_iter().map(|fetch| {
            if another(&fetch) {
                // An earlier life promised it; this one can only say that it knows nothing of it.
                Asked::Failed(fetch.claim, Failure::Unknown)
            } else {
                Asked::Known(fetch, acquaintance.clone())
            }
        });
        let ended = ended.into_iter().filter(|claim| claim.lease.engine == acquaintance.engine);
        let ended = ended.map(|claim| Asked::Ended(claim, acquaintance.clone()));
        told.chain(ended).collect()
    }

    /// An engine cannot be greeted. Gives what becomes of those who waited. The next request
    /// tries again at once; after more failures in a row it has to wait.
    pub(crate) fn not_greeted(
        &mut self,
        now: Time,
        address: &Address,
        failure: &Failure,
    ) -> Vec<Asked> {
        let place = place(address);
        let Some(State::Greeting { waiting, failures, before, .. }) = self.engines.get_mut(&place)
        else {
            return Vec::new();
        };
        let (waiting, before) = (std::mem::take(waiting), before.take());
        let until = now.saturating_add(back_off(*failures));
        let failures = failures.saturating_add(1);
        let state = match before {
            // The life that was known is there; the one that was asked for is not.
            Some(acquaintance) => State::Known { acquaintance, mistaken: Some(now) },
            None => State::Absent { failure: failure.clone(), until, failures },
        };
        self.set(now, &place, state);
        let failed = |fetch: Fetch| Asked::Failed(fetch.claim, failure.clone());
        waiting.into_iter().map(failed).collect()
    }

    /// Forgets the engines of a worker that is gone: the next request greets them anew.
    pub(crate) fn peer_lost(&mut self, agent: AgentEpoch) {
        let of = |acquaintance: &Acquaintance| acquaintance.sources.contains_key(&agent);
        for state in self.engines.values_mut() {
            if let State::Greeting { before, .. } = state {
                before.take_if(|before| of(before));
            }
        }
        let lost =
            |state: &State| matches!(state, State::Known { acquaintance, .. } if of(acquaintance));
        self.engines.retain(|_, state| !lost(state));
        self.known.retain(|place| self.engines.contains_key(place));
    }

    /// Counts a known engine, and forgets the first for one too many.
    fn remember(&mut self, place: Place, out: &mut Outbox) {
        self.known.retain(|known| *known != place);
        self.known.push_back(place);
        if self.known.len() > MAX_ENGINES
            && let Some(first) = self.known.pop_front()
            && let Some(State::Known { .. }) = self.engines.get(&first)
        {
            self.engines.remove(&first);
            out.actions.push_back(Action::Forget { ranks: first });
        }
    }

    /// Takes a request away that waits; false where it does not.
    pub(crate) fn abort(&mut self, claim: &ClaimId) -> bool {
        self.engines.values_mut().any(|state| match state {
            State::Greeting { waiting, ended, .. } => {
                let gone: Vec<_> = waiting.extract_if(.., |fetch| fetch.claim == *claim).collect();
                gone.iter().for_each(|fetch| remember_end(ended, fetch));
                !gone.is_empty()
            }
            State::Known { .. } | State::Absent { .. } => false,
        })
    }

    /// Takes all requests away that wait.
    pub(crate) fn forget_waiting(&mut self) -> Vec<ClaimId> {
        let waiting = self.engines.values_mut().flat_map(|state| match state {
            State::Greeting { waiting, ended, .. } => end_all(waiting, ended),
            State::Known { .. } | State::Absent { .. } => Vec::new(),
        });
        waiting.collect()
    }

    /// Whether a request waits for its engine.
    pub(crate) fn waits(&self, claim: &ClaimId) -> bool {
        self.waiting().any(|fetch| fetch.claim == *claim)
    }

    fn waiting(&self) -> impl Iterator<Item = &Fetch> {
        self.engines.values().flat_map(|state| match state {
            State::Greeting { waiting, .. } => &waiting[..],
            State::Known { .. } | State::Absent { .. } => &[],
        })
    }

    /// Takes those whose engine was not greeted in time, and forgets engines that were absent.
    pub(crate) fn expire(&mut self, now: Time) -> Vec<ClaimId> {
        let mut late = Vec::new();
        while let Some(address) = self.timers.pop(now) {
            match self.engines.get_mut(&address) {
                // The driver still owes an answer, which is worth having.
                Some(State::Greeting { waiting, ended, .. }) => {
                    late.extend(end_all(waiting, ended));
                }
                Some(State::Absent { .. }) => drop(self.engines.remove(&address)),
                Some(State::Known { .. }) | None => {}
            }
        }
        late
    }

    pub(crate) fn next(&self) -> Option<Time> {
        self.timers.next()
    }

    /// Engines that are known.
    pub(crate) fn known(&self) -> usize {
        let known = |state: &&State| matches!(state, State::Known { .. });
        self.engines.values().filter(known).count()
    }

    /// Requests that wait for a handshake.
    pub(crate) fn len(&self) -> usize {
        self.waiting().count()
    }

    fn set(&mut self, now: Time, place: &Place, state: State) {
        let due = match &state {
            State::Greeting { .. } => Some(now.saturating_add(self.bounds.greeting)),
            // Long enough that failures in a row are seen as such.
            State::Absent { until, .. } => Some(until.saturating_add(LONGEST_BACK_OFF)),
            State::Known { .. } => None,
        };
        self.timers.set(place, due);
        self.engines.insert(place.clone(), state);
    }
}

impl State {
    fn known(&self) -> Option<&Acquaintance> {
        match self {
            Self::Known { acquaintance, .. } => Some(acquaintance),
            Self::Greeting { before, .. } => before.as_ref(),
            Self::Absent { .. } => None,
        }
    }
}

/// Ends all that wait, and keeps their names to tell P of.
fn end_all(waiting: &mut Vec<Fetch>, ended: &mut Vec<ClaimId>) -> Vec<ClaimId> {
    waiting.iter().for_each(|fetch| remember_end(ended, fetch));
    waiting.drain(..).map(|fetch| fetch.claim).collect()
}

/// Under the name that P would know, once for all that share it.
fn remember_end(ended: &mut Vec<ClaimId>, fetch: &Fetch) {
    let claim = fetch.claim_at_p();
    if ended.len() < MAX_EARLY && !ended.contains(&claim) {
        ended.push(claim);
    }
}

/// Nothing after the first failure, then a second, doubling.
fn back_off(failures_before: u32) -> Duration {
    match failures_before {
        0 => Duration::ZERO,
        more => Duration::from_secs(1 << (more - 1).min(8)).min(LONGEST_BACK_OFF),
    }
}
