//! Where the world looks whether the rules hold.

use connector::limits::{MAX_EARLY, MAX_OPEN_READS};
use connector::{AgentEpoch, ClaimId, Counts, LeaseId};

use super::World;
use super::engine::Agent;
use super::events::Who;
use super::oracle::Oracle;
use super::setup::MS;

/// The longest that D waits for handshakes and for an answer, by a clock that is 1 % slow.
const GREETING: u64 = 10_110 * MS;
const ANSWER: u64 = 5_060 * MS;

impl World {
    pub(crate) fn request_of(&self, claim: &ClaimId) -> Option<u32> {
        self.lease_of(&claim.lease)
    }

    pub(crate) fn lease_of(&self, lease: &LeaseId) -> Option<u32> {
        self.oracles.request_of(lease)
    }

    /// A worker says that it has received its share.
    pub(crate) fn look_for_stale_reads(&mut self, who: Who, claim: &ClaimId) {
        let fetching = self.agent(who).and_then(|agent| agent.fetching.get(claim));
        let stale = fetching.and_then(|f| self.oracles.stale(&claim.lease, &f.taken));
        if let Some(rank) = stale {
            self.broken(Oracle::StaleRead, self.request_of(claim), || {
                format!("{who:?} receives what it read of rank {rank} after that had freed it")
            });
        }
    }

    /// A worker says that a request has ended: it has not waited for P for too long.
    pub(crate) fn look_at_waiting(&mut self, who: Who, claim: &ClaimId) {
        let fetching = self.agent(who).and_then(|agent| agent.fetching.get(claim));
        let bound = match fetching {
            // A handshake, then an answer.
            Some(fetching) if fetching.offers.is_none() => GREETING + ANSWER,
            // All was read: an answer.
            Some(f) if !f.to_read.is_empty() && f.to_read.len() == f.taken.len() => ANSWER,
            _ => return,
        };
        let since = fetching.map_or(0, |fetching| fetching.since).max(self.stood_until(who));
        if self.now > since + bound {
            self.broken(Oracle::LateEnd, self.request_of(claim), || {
                format!("{who:?} ends {claim:?} only now, waiting since {since}")
            });
        }
    }

    /// A worker says that a request has ended: nothing may write its blocks any more.
    pub(crate) fn look_at_end(&mut self, who: Who, claim: &ClaimId) {
        let mut reads = self.endpoints.reads.values();
        let runs = reads.any(|read| read.reader() == who && read.claim() == claim);
        if runs {
            self.broken(Oracle::FreedUnderRead, self.request_of(claim), || {
                format!("{who:?} ends {claim:?}, which is still read")
            });
        }
    }

    /// An engine uses the blocks of a request again.
    pub(crate) fn look_for_reads_into(&mut self, engine: usize, owner: u32, request: u32) {
        let mut reads = self.endpoints.reads.values();
        let into = reads.find(|read| read.reader().engine == engine && read.owner() == owner);
        if let Some(reader) = into.map(super::endpoint::Read::reader) {
            self.broken(Oracle::FreedUnderRead, Some(request), || {
                format!("engine {engine} frees blocks that {reader:?} still reads into")
            });
        }
    }

    pub(crate) fn look_at_limits(&mut self, who: Who) {
        let Some(agent) = self.agent(who) else { return };
        let peers = agent.links.keys();
        let waiting = |peer: &AgentEpoch| agent.waiting.iter().filter(|(_, of)| of == peer).count();
        let open = |peer: &AgentEpoch| self.endpoints.open(who, *peer) + waiting(peer);
        let most = peers.map(open).max().unwrap_or(0);
        let counts = agent.worker.counts();
        let far = counts.early > MAX_EARLY * agent.links.len().max(1);
        if most > MAX_OPEN_READS || far {
            self.broken(Oracle::Limits, None, || format!("{who:?}: {most} reads, {counts:?}"));
        }
        let tally = &mut self.book.tally;
        tally.peak("reads of one peer", most);
        tally.peak("early requests", counts.early);
        tally.peak("quarantined requests", counts.quarantined);
        tally.peak("claims", counts.claims);
    }

    /// Nothing is left to happen: nothing may be left.
    pub(crate) fn look_at_rest(&mut self) {
        for engine in 0..self.engines.len() {
            if !self.engines[engine].up {
                continue;
            }
            let left = self.left_of(engine);
            if let Some((request, left)) = left {
                return self.broken(Oracle::Leak, request, || format!("engine {engine}: {left}"));
            }
        }
        let reads = self.endpoints.reads.len();
        if reads > 0 {
            self.broken(Oracle::Leak, None, || format!("{reads} reads are under way for ever"));
        }
    }

    fn left_of(&self, engine: usize) -> Option<(Option<u32>, String)> {
        let here = &self.engines[engine];
        if let Some((name, local)) = here.decode.requests.iter().next() {
            return Some((Some(local.request), format!("{name} is {:?}", local.state)));
        }
        if let Some((lease, kept)) = here.prefill.kept.iter().next() {
            let by = (0..here.agents.len()).filter(|rank| self.oracles.kept_by(lease, *rank));
            let by: Vec<_> = by.collect();
            return Some((Some(kept.request), format!("{lease:?} is kept by {by:?}")));
        }
        let waiting = self.prompts_waiting(engine) + self.requests_waiting(engine);
        let scheduler = (here.scheduler.leases(), here.scheduler.requests());
        if waiting > 0 || scheduler != (0, 0) {
            return Some((None, format!("{waiting} wait, the scheduler has {scheduler:?}")));
        }
        if here.memory.free() < here.memory.capacity() {
            return Some((None, "blocks are missing".to_owned()));
        }
        here.agents.iter().filter(|agent| agent.up).find_map(|agent| self.left_at(agent))
    }

    fn left_at(&self, agent: &Agent) -> Option<(Option<u32>, String)> {
        let counts = agent.worker.counts();
        let Counts { refused, misdirected, engines, .. } = counts;
        let mut places: Vec<_> =
            agent.links.keys().filter_map(|peer| self.network.names.get(peer)).collect();
        places.sort_unstable();
        places.dedup_by_key(|who| who.engine);
        let rest = Counts { refused, misdirected, engines, ..Counts::default() };
        let driver = agent.fetching.len() + agent.granted.len() + agent.waiting.len();
        let timer = agent.worker.poll_timeout();
        let clean = counts == rest && driver == 0 && timer.is_none() && engines <= places.len();
        (!clean).then(|| {
            let known = places.len();
            (None, format!("{counts:?}, {driver} in its driver, {timer:?}, {known} linked"))
        })
    }

    /// Until when something of a worker's engine stood still.
    pub(crate) fn stood_until(&self, who: Who) -> u64 {
        self.engines[who.engine].steps.stood_until
    }
}
