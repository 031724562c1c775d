//! Many engines that hand requests over in one simulation, on a network that loses nothing and
//! takes no time: what is left is what the machines take for each engine, peer and request.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::ops::Range;
use std::time::Duration;

use connector::message::Message;
use connector::params::{Address, RankAddress};
use connector::{
    Acquaintance, Action, AgentEpoch, Bounds, BoundsError, ClaimId, EngineEpoch, Event, Fetch,
    Input, Lease, LeaseId, Nonce, Peer, PromptDigest, PromptIdentity, Rank, RequestId, Time,
    Worker, codec,
};
use kv_layout::BlockTable;

/// Prefill engines that each decode engine reads from, however many there are.
pub const PEERS: u64 = 10;

/// How long each request is read: its claim is renewed twice meanwhile.
const READING: Duration = Duration::from_secs(12);

/// Time between two requests of one decode engine.
const APART: Duration = Duration::from_secs(1);

/// Prefill and decode engines of one rank each.
#[derive(Debug)]
pub struct Fleet {
    prefills: u64,
    /// Those of P, then those of D: an engine's place is its epoch.
    workers: Vec<Worker>,
    /// For when each worker is to be woken, at the earliest.
    alarms: Vec<Option<Time>>,
    now: Time,
    frames: VecDeque<Vec<u8>>,
    due: BinaryHeap<Reverse<(Time, What)>>,
    prompt: PromptDigest,
    received: u64,
    freed: u64,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Wake(usize),
    /// Everything of a request is read.
    Read(u64),
}

impl Fleet {
    /// Engines that do not know each other, with room for so many requests at a time: what it
    /// takes later is the machines'.
    ///
    /// # Errors
    /// None with the default bounds.
    pub fn new(prefills: u64, decodes: u64, requests: usize) -> Result<Self, BoundsError> {
        let all = 0..prefills + decodes;
        let worker = |at| Worker::new(peer(at), Rank(0), Bounds::default(), [7; 32]);
        let workers = all.map(worker).collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            prefills,
            alarms: vec![None; workers.len()],
            now: Time::ZERO,
            frames: VecDeque::with_capacity(16),
            due: BinaryHeap::with_capacity(requests + 2 * workers.len()),
            prompt: PromptIdentity { tokens: &[1], model: "m", ..Default::default() }.digest(),
            received: 0,
            freed: 0,
            workers,
        })
    }

    fn decodes(&self) -> u64 {
        self.workers.len() as u64 - self.prefills
    }

    /// Handshakes between each decode engine and each of its peers. Gives how many.
    pub fn meet(&mut self) -> u64 {
        let pairs = self.decodes() * PEERS.min(self.prefills);
        // Names that no other request has.
        self.play(u64::MAX / 2..u64::MAX / 2 + self.decodes() * PEERS);
        pairs
    }

    /// Hands requests over, one of each decode engine in turn, to the end of the last. The
    /// same rate for each engine, however many there are.
    pub fn play(&mut self, requests: Range<u64>) {
        let (each, first) = (APART / u32::try_from(self.decodes()).unwrap_or(u32::MAX), self.now);
        for (number, request) in (0_u32..).zip(requests) {
            self.pass(first + each * number);
            self.begin(request);
        }
        self.pass(self.now + 10 * READING);
    }

    /// Begins to hand requests over: all of them are being read when it returns.
    pub fn hold(&mut self, requests: Range<u64>) {
        requests.for_each(|request| self.begin(request));
    }

    /// Requests that D has received, and leases that P has freed, so far.
    #[must_use]
    pub fn ended(&self) -> (u64, u64) {
        (self.received, self.freed)
    }

    /// Requests and leases that are under way.
    #[must_use]
    pub fn live(&self) -> (usize, usize) {
        let counts = self.workers.iter().map(Worker::counts);
        counts.fold((0, 0), |(d, p), counts| (d + counts.receives, p + counts.leases))
    }

    /// The names of a request: of its lease and of its claim.
    fn names(&self, request: u64) -> Option<(LeaseId, ClaimId)> {
        let decode = request % self.decodes();
        let prefill = (decode + request / self.decodes() % PEERS) % self.prefills;
        let lease = LeaseId {
            engine: EngineEpoch(prefill),
            request: RequestId::new(&format!("prompt-{request}")).ok()?,
            nonce: Nonce(request),
        };
        let claim = ClaimId {
            lease: lease.clone(),
            engine: EngineEpoch(self.prefills + decode),
            request: RequestId::new(&format!("answer-{request}")).ok()?,
        };
        Some((lease, claim))
    }

    fn begin(&mut self, request: u64) {
        let Some((id, claim)) = self.names(request) else { return };
        let (prompt, prefill, decode) = (self.prompt, id.engine.0, claim.engine.0);
        let table = BlockTable { first_token: 0, ids: (1..9).collect() };
        self.input(prefill, Input::Lease(Lease { id, prompt, tables: [table].into() }));
        let fetch = Fetch { claim, shared: None, prompt, address: address(prefill) };
        self.input(decode, Input::Fetch(fetch));
        self.deliver();
    }

    /// Lets time pass, everything at its moment.
    fn pass(&mut self, until: Time) {
        while self.due.peek().is_some_and(|Reverse((at, _))| *at <= until) {
            let Some(Reverse((at, what))) = self.due.pop() else { return };
            self.now = at;
            match what {
                What::Wake(worker) if self.alarms[worker] == Some(at) => {
                    self.alarms[worker] = None;
                    self.workers[worker].handle_timeout(at);
                    self.settle(worker);
                }
                What::Wake(_) => {}
                What::Read(request) => self.read(request),
            }
            self.deliver();
        }
        self.now = until;
    }

    fn read(&mut self, request: u64) {
        let Some((lease, claim)) = self.names(request) else { return };
        let (decode, peer) = (claim.engine.0, AgentEpoch(lease.engine.0));
        self.input(decode, Input::ReadEnded { claim, peer, how: Ok(()) });
    }

    fn input(&mut self, to: u64, input: Input) {
        let worker = usize::try_from(to).unwrap_or(usize::MAX);
        self.workers[worker].handle(self.now, input);
        self.settle(worker);
    }

    fn deliver(&mut self) {
        while let Some(frame) = self.frames.pop_front() {
            if let Ok(Some((message, _))) = codec::decode(&frame) {
                let Message { from, to, .. } = message;
                self.input(to.0, Input::Message { from: peer(from.0), message });
            }
        }
    }

    fn settle(&mut self, worker: usize) {
        loop {
            if let Some(action) = self.workers[worker].poll_action() {
                self.act(worker, action);
            } else if let Some(event) = self.workers[worker].poll_event() {
                self.tell(worker, event);
            } else {
                break;
            }
        }
        let Some(at) = self.workers[worker].poll_timeout() else { return };
        if self.alarms[worker].is_none_or(|set| at < set) {
            self.alarms[worker] = Some(at);
            self.due.push(Reverse((at.max(self.now), What::Wake(worker))));
        }
    }

    fn act(&mut self, worker: usize, action: Action) {
        let now = self.now;
        match action {
            Action::Send(message) => self.frames.extend(codec::encode(&message).ok()),
            Action::Greet { address } => {
                let prefill = u64::from(address.first.port);
                let sources = BTreeMap::from([(AgentEpoch(prefill), BTreeSet::from([Rank(0)]))]);
                let acquaintance = Acquaintance { engine: EngineEpoch(prefill), sources };
                self.workers[worker].handle(now, Input::Greeted { address, acquaintance });
            }
            Action::Revoke { token } => self.workers[worker].handle(now, Input::Revoked(token)),
            Action::Read { claim, .. } => {
                self.due.push(Reverse((now + READING, What::Read(claim.lease.nonce.0))));
            }
            Action::Grant { .. } | Action::Cancel { .. } | Action::Forget { .. } => {}
        }
    }

    fn tell(&mut self, worker: usize, event: Event) {
        match event {
            Event::Offered { claim, offers } => {
                let peers = offers.iter().map(|offer| offer.peer).collect();
                self.workers[worker].handle(self.now, Input::Read { claim, peers });
            }
            Event::Received { .. } => self.received += 1,
            Event::Freed { .. } => self.freed += 1,
            _ => {}
        }
    }
}

fn peer(at: u64) -> Peer {
    Peer { engine: EngineEpoch(at), agent: AgentEpoch(at) }
}

fn address(prefill: u64) -> Address {
    let port = u16::try_from(prefill).unwrap_or(u16::MAX);
    let first = RankAddress { host: "prefill.example".to_owned(), port };
    Address { engine_id: format!("engine-{prefill}"), tp_size: 1, first, others: Vec::new() }
}
