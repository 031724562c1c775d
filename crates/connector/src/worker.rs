use crate::bounds::{Bounds, BoundsError, Time};
use crate::fetches::Fetches;
use crate::ids::{Peer, Rank};
use crate::io::{Action, Event, Fetch, Input, Outbox};
use crate::message::{Body, Message};
use crate::sends::Sends;

/// The hand-off at one worker: as P it keeps leases, as D it fetches requests. Routes only.
///
/// Feed it [inputs](Input) with the time, then take [actions](Action) and [events](Event)
/// until there are none; call [`handle_timeout`](Self::handle_timeout) when the time of
/// [`poll_timeout`](Self::poll_timeout) has come. The same inputs give the same outputs.
#[derive(Debug)]
pub struct Worker {
    me: Peer,
    now: Time,
    memory: Memory,
    sends: Sends,
    fetches: Fetches,
    out: Outbox,
    misdirected: u64,
}

/// Whether the engine's memory may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Memory {
    Present,
    /// Somebody may still touch it.
    Leaving,
    Gone,
}

/// What a worker holds. All but the known engines and the two totals are 0 at rest; anything else
/// is a leak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// P: leases whose blocks are kept.
    pub leases: usize,
    /// P: claims that live.
    pub claims: usize,
    /// P: read tokens that are not yet reported revoked.
    pub tokens: usize,
    /// P: requests that wait for their lease.
    pub early: usize,
    /// D: requests under way.
    pub receives: usize,
    /// D: requests whose blocks an overdue read may still write.
    pub quarantined: usize,
    /// D: prefill engines that are known; not part of what must be 0 at rest.
    pub engines: usize,
    /// P, total: requests answered `over` or `unknown`.
    pub refused: u64,
    /// Total: messages from or for another life of an engine or an agent.
    pub misdirected: u64,
}

impl Worker {
    /// A worker at rest. `seed` is 32 random bytes, drawn anew at each start and kept secret:
    /// read tokens come from it.
    ///
    /// # Errors
    /// Bounds under which no hand-off could succeed.
    pub fn new(me: Peer, rank: Rank, bounds: Bounds, seed: [u8; 32]) -> Result<Self, BoundsError> {
        let bounds = bounds.checked()?;
        Ok(Self {
            me,
            now: Time::ZERO,
            memory: Memory::Present,
            sends: Sends::new(bounds, seed),
            fetches: Fetches::new(bounds, rank),
            out: Outbox::new(me.agent),
            misdirected: 0,
        })
    }

    /// Takes one input. What was due before `now` happens first: nothing late revives what
    /// has ended. A time before the last one counts as the last one.
    pub fn handle(&mut self, now: Time, input: Input) {
        self.handle_timeout(now);
        let (now, out) = (self.now, &mut self.out);
        match input {
            Input::Lease(lease) => self.sends.lease(now, lease, out),
            Input::Message { from, message } => self.message(from, message),
            Input::PeerLost(agent) => {
                self.sends.peer_lost(now, agent, out);
                self.fetches.peer_lost(now, agent, out);
            }
            Input::Revoked(token) => self.sends.revoked(token, out),
            Input::Fetch(fetch) => self.fetch(fetch),
            Input::Greeted { address, acquaintance } => {
                self.fetches.greeted(now, &address, &acquaintance, out);
            }
            Input::NotGreeted { address, failure } => {
                self.fetches.not_greeted(now, &address, &failure, out);
            }
            Input::Read { claim, peers } => self.fetches.read(now, &claim, peers, out),
            Input::ReadEnded { claim, peer, how } => {
                self.fetches.read_ended(now, &claim, peer, how, out);
            }
            Input::Overdue(claim) => self.fetches.overdue(now, &claim, out),
            Input::Abort(claim) => self.fetches.abort(now, &claim, out),
            Input::Withdraw => self.withdraw(),
            Input::Restored => self.restored(),
        }
        self.look_at_memory();
    }

    fn fetch(&mut self, fetch: Fetch) {
        let (now, out) = (self.now, &mut self.out);
        match self.memory {
            Memory::Present => self.fetches.fetch(now, fetch, out),
            Memory::Leaving | Memory::Gone => self.fetches.refuse(&fetch.claim, out),
        }
    }

    fn withdraw(&mut self) {
        self.memory = Memory::Leaving;
        self.sends.withdraw(self.now, &mut self.out);
        self.fetches.withdraw(self.now, &mut self.out);
    }

    fn restored(&mut self) {
        self.memory = Memory::Present;
        self.sends.restored();
    }

    /// Says once that nobody can touch the memory any more.
    fn look_at_memory(&mut self) {
        let quiet = self.sends.leases() + self.sends.tokens() + self.fetches.len() == 0;
        if self.memory == Memory::Leaving && quiet {
            self.memory = Memory::Gone;
            self.out.events.push_back(Event::Withdrawn);
        }
    }

    /// A peer speaks for itself, its own engine and to this life of this worker, or in vain.
    fn message(&mut self, from: Peer, message: Message) {
        let Message { from: agent, to, claim, body } = message;
        let (them, us) = match body {
            Body::Request(_) => (claim.engine, claim.lease.engine),
            Body::Answer(_) => (claim.lease.engine, claim.engine),
        };
        let from_them = Peer { engine: them, agent } == from;
        let to_us = Peer { engine: us, agent: to } == self.me;
        self.misdirected += u64::from(!from_them || !to_us);
        match body {
            _ if !from_them => {}
            Body::Request(_) if !to_us => self.sends.refuse(agent, &claim, &mut self.out),
            Body::Request(request) => {
                self.sends.request(self.now, agent, &claim, request, &mut self.out);
            }
            Body::Answer(answer) if to_us => {
                self.fetches.answer(self.now, agent, &claim, answer, &mut self.out);
            }
            Body::Answer(_) => {}
        }
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Time) {
        self.now = self.now.max(now);
        self.sends.expire(self.now, &mut self.out);
        self.fetches.expire(self.now, &mut self.out);
        self.look_at_memory();
    }

    /// When [`handle_timeout`](Self::handle_timeout) has something to do.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        self.sends.next().into_iter().chain(self.fetches.next()).min()
    }

    /// The next thing to do, in the order in which it must be done.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.out.actions.pop_front()
    }

    /// The next thing that the engine must know.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.out.events.pop_front()
    }

    /// What it holds now, for metrics and leak checks.
    #[must_use]
    pub fn counts(&self) -> Counts {
        Counts {
            leases: self.sends.leases(),
            claims: self.sends.claims(),
            tokens: self.sends.tokens(),
            early: self.sends.early(),
            receives: self.fetches.len(),
            quarantined: self.fetches.quarantined(),
            engines: self.fetches.known(),
            refused: self.sends.refused(),
            misdirected: self.misdirected,
        }
    }
}
