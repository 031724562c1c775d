//! A worker under any sequence of inputs and times: names come from small pools, so that they
//! meet again and again.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use ::connector::message::{Answer, Body, Grant, Message, Request};
use ::connector::params::{Address, RankAddress};
use ::connector::{
    Acquaintance, Action, AgentEpoch, Bounds, ClaimId, Counts, EngineEpoch, Event, Failure, Fetch,
    Input, Lease, LeaseId, Nonce, Peer, PromptDigest, Rank, ReadFailure, ReadToken, RequestId,
    Worker,
};
use kv_layout::BlockTable;

use crate::{Bytes, allowance};

/// The worker that is fed; it is P for some and D for others.
const ME: Peer = Peer { engine: EngineEpoch(1), agent: AgentEpoch(10) };
const AGENTS: [u64; 5] = [20, 21, 30, 10, 99];
const ENGINES: [u64; 4] = [2, 1, 3, 98];

/// Inputs of one sequence.
const STEPS: usize = 400;

/// Bytes that a worker and its watchers may hold for each byte that describes its inputs: one of
/// some ten bytes leaves a claim with its readers, a table and a timer behind at most.
const PER_BYTE: u64 = 256;

/// What is told of one worker from outside.
struct World {
    worker: Worker,
    now: Duration,
    /// Granted and not yet reported revoked; whether that is wanted.
    tokens: BTreeMap<ReadToken, bool>,
    /// Leases promised and not yet freed.
    leases: BTreeSet<LeaseId>,
    /// Requests that are fetched and have not ended; whether they are offered and not read yet.
    requests: BTreeMap<ClaimId, bool>,
    /// Reads that may touch blocks.
    running: BTreeSet<(ClaimId, AgentEpoch)>,
    /// Engines that are being greeted.
    greeting: BTreeSet<Address>,
    inputs: u64,
    /// Who was asked what, and who asked, to be answered and to ask again.
    asked: VecDeque<(Peer, ClaimId)>,
    heard: VecDeque<(Peer, ClaimId)>,
}

/// Whatever comes in which order: everything ends once, and at last nothing is held.
pub fn worker(input: &[u8]) {
    let mut from = Bytes::new(input);
    let Ok(worker) = Worker::new(ME, Rank(0), Bounds::default(), [9; 32]) else { return };
    let mut world = World {
        worker,
        now: Duration::ZERO,
        tokens: BTreeMap::new(),
        leases: BTreeSet::new(),
        requests: BTreeMap::new(),
        running: BTreeSet::new(),
        greeting: BTreeSet::new(),
        inputs: 0,
        asked: VecDeque::new(),
        heard: VecDeque::new(),
    };
    allowance::within(allowance::of(input.len(), PER_BYTE), "a worker", || {
        for _ in 0..STEPS {
            if from.is_empty() {
                break;
            }
            world.step(&mut from);
        }
        world.settle();
    });
}

impl World {
    fn step(&mut self, from: &mut Bytes<'_>) {
        self.due();
        match from.below(15) {
            0 | 1 => self.lease(from),
            2 | 3 => self.fetch(from),
            4 => self.driver(from),
            12 | 13 => self.greeted(from),
            14 => {
                let leaves = from.chance(3);
                self.input(if leaves { Input::Withdraw } else { Input::Restored });
            }
            5 => self.pass(from),
            6 => self.input(Input::PeerLost(agent(from))),
            7 => {
                let Some(token) = self.token(from) else { return };
                self.input(Input::Revoked(token));
            }
            8 => self.stranger(from),
            9 | 10 => self.speaks(true, from),
            _ => self.speaks(false, from),
        }
    }

    /// Somebody who was asked answers, or somebody who asked asks again.
    fn speaks(&mut self, answers: bool, from: &mut Bytes<'_>) {
        let of = if answers { &self.asked } else { &self.heard };
        let Some((peer, claim)) = of.get(from.below(of.len())).cloned() else {
            return self.stranger(from);
        };
        let body = if answers { Body::Answer(answer(from)) } else { Body::Request(request(from)) };
        let message = Message { from: peer.agent, to: ME.agent, claim, body };
        self.input(Input::Message { from: peer, message });
    }

    /// The scheduler promises each lease once while it lives.
    fn lease(&mut self, from: &mut Bytes<'_>) {
        let Some(id) = lease_id(ME.engine, from) else { return };
        if self.leases.insert(id.clone()) {
            self.input(Input::Lease(Lease { id, prompt: prompt(from), tables: tables(from) }));
        }
    }

    fn fetch(&mut self, from: &mut Bytes<'_>) {
        let Some(lease) = lease_id(engine(from), from) else { return };
        let Some(claim) = claim_id(lease, ME.engine, from) else { return };
        let (prompt, address) = (prompt(from), address(from));
        // Also names of requests that are not under way.
        let shared = match from.chance(2) {
            true => RequestId::new(from.pick(&["a", "b", "c"])).ok(),
            false => None,
        };
        // One that is under way is ignored.
        self.requests.entry(claim.clone()).or_insert(false);
        self.input(Input::Fetch(Fetch { claim, shared, prompt, address }));
    }

    /// A handshake has come to its end, or somebody says that one has.
    fn greeted(&mut self, from: &mut Bytes<'_>) {
        let address = address(from);
        self.greeting.remove(&address);
        let input = if from.chance(4) {
            Input::NotGreeted { address, failure: Failure::Handshake }
        } else {
            let source = |from: &mut Bytes<'_>| (agent(from), ranks(from));
            let sources = (0..from.below(4)).map(|_| source(from)).collect();
            let acquaintance = Acquaintance { engine: engine(from), sources };
            Input::Greeted { address, acquaintance }
        };
        self.input(input);
    }

    /// What the driver says of a request, and of reads that run.
    fn driver(&mut self, from: &mut Bytes<'_>) {
        if from.chance(2)
            && let Some((claim, peer)) = self.running.iter().nth(from.below(self.running.len()))
        {
            let (claim, peer) = (claim.clone(), *peer);
            return self.read(claim, peer, from);
        }
        let at = from.below(self.requests.len());
        let Some((claim, offered)) = self.requests.iter_mut().nth(at) else { return };
        let claim = claim.clone();
        if from.chance(3) || !std::mem::take(offered) {
            return self.input(Input::Abort(claim));
        }
        let peers = (0..from.below(3)).map(|_| agent(from)).collect();
        self.input(Input::Read { claim, peers });
    }

    fn read(&mut self, claim: ClaimId, peer: AgentEpoch, from: &mut Bytes<'_>) {
        let how = match from.below(5) {
            0 => return self.input(Input::Overdue(claim)),
            1 => Err(ReadFailure::Transport),
            2 => Err(ReadFailure::Refused),
            _ => Ok(()),
        };
        self.ended(claim, peer, how);
    }

    fn ended(&mut self, claim: ClaimId, peer: AgentEpoch, how: Result<(), ReadFailure>) {
        self.running.remove(&(claim.clone(), peer));
        self.input(Input::ReadEnded { claim, peer, how });
    }

    fn pass(&mut self, from: &mut Bytes<'_>) {
        let step = from.pick(&[0, 1, 100, 1_999, 2_000, 5_000, 20_000, 30_000, 600_000]);
        let step = if from.chance(16) { from.number() } else { step };
        // Now and then a clock that steps back, or one that is far off.
        let now = match from.chance(8) {
            true => Duration::from_millis(step),
            false => self.now.saturating_add(Duration::from_millis(step)),
        };
        self.now = self.now.max(now);
        self.worker.handle_timeout(now);
        assert!(self.worker.poll_timeout().is_none_or(|at| at > self.now), "something is overdue");
        self.collect();
    }

    fn token(&self, from: &mut Bytes<'_>) -> Option<ReadToken> {
        match from.chance(8) {
            true => Some(ReadToken(from.number())),
            // The driver reports what it was told to revoke.
            false => self.tokens.iter().find(|(_, wanted)| **wanted).map(|(token, _)| *token),
        }
    }

    /// From anybody, who is who it says, mostly.
    fn stranger(&mut self, from: &mut Bytes<'_>) {
        let (peer, asks) = (Peer { engine: engine(from), agent: agent(from) }, from.chance(2));
        let (p, d) = if asks { (ME.engine, peer.engine) } else { (peer.engine, ME.engine) };
        let odd = from.chance(16);
        let (p, d) = if odd { (engine(from), engine(from)) } else { (p, d) };
        let Some(lease) = lease_id(p, from) else { return };
        let Some(claim) = claim_id(lease, d, from) else { return };
        let body = match asks {
            true => Body::Request(request(from)),
            false => Body::Answer(answer(from)),
        };
        let to = if from.chance(16) { agent(from) } else { ME.agent };
        let says = if from.chance(16) { agent(from) } else { peer.agent };
        if asks {
            remember(&mut self.heard, (peer, claim.clone()));
        }
        let message = Message { from: says, to, claim, body };
        self.input(Input::Message { from: peer, message });
    }

    fn input(&mut self, input: Input) {
        self.inputs += 1;
        if let Input::Revoked(token) = &input {
            self.tokens.remove(token);
        }
        self.worker.handle(self.now, input);
        self.collect();
    }

    /// What is due comes before what is said: a claim may have been granted for no time at all.
    fn due(&mut self) {
        self.worker.handle_timeout(self.now);
        self.collect();
    }

    fn collect(&mut self) {
        while let Some(action) = self.worker.poll_action() {
            match action {
                Action::Send(message) => self.sent(message),
                Action::Grant { token, .. } => {
                    assert_eq!(self.tokens.insert(token, false), None, "a token is used once");
                }
                Action::Revoke { token } => {
                    assert_eq!(self.tokens.insert(token, true), Some(false), "revoked once");
                }
                Action::Greet { address } => {
                    assert!(self.greeting.insert(address), "one handshake at a time");
                }
                Action::Read { claim, peer } => {
                    assert!(self.requests.contains_key(&claim), "read while it is wanted");
                    assert!(self.running.insert((claim, peer)), "one read of a rank at a time");
                }
                Action::Forget { .. } => {}
                Action::Cancel { claim, peer } => {
                    assert!(self.running.contains(&(claim, peer)), "cancelled while it runs");
                }
            }
        }
        while let Some(event) = self.worker.poll_event() {
            self.note(event);
        }
        self.count();
    }

    fn sent(&mut self, message: Message) {
        let Message { from, to, claim, body } = message;
        assert_eq!(from, ME.agent);
        if let Body::Request(_) = body {
            remember(&mut self.asked, (Peer { engine: claim.lease.engine, agent: to }, claim));
        }
    }

    fn note(&mut self, event: Event) {
        match event {
            Event::Freed { lease, .. } => assert!(self.leases.remove(&lease), "freed once"),
            Event::Offered { claim, .. } => {
                assert_eq!(self.requests.insert(claim, true), Some(false), "offered once");
            }
            Event::Received { claim }
            | Event::Failed { claim, .. }
            | Event::Released { claim }
            | Event::Nothing { claim } => {
                assert!(self.requests.remove(&claim).is_some(), "ended once");
                let runs = self.running.iter().any(|(of, _)| *of == claim);
                assert!(!runs, "ended while a read may touch its blocks");
            }
            Event::Withdrawn => {
                let held = self.leases.len() + self.tokens.len() + self.requests.len();
                assert_eq!(held, 0, "withdrawn while something is held");
            }
        }
    }

    fn count(&self) {
        let Counts { leases, tokens, receives, early, .. } = self.worker.counts();
        assert_eq!(leases, self.leases.len());
        assert_eq!(tokens, self.tokens.len());
        assert_eq!(receives, self.requests.len());
        assert!(early as u64 <= self.inputs);
    }

    /// The reads stop, the peers are lost, what is to be revoked is, and time passes.
    fn settle(&mut self) {
        for _ in 0..3 {
            self.due();
            for (claim, peer) in self.running.clone() {
                self.ended(claim, peer, Err(ReadFailure::Stopped));
            }
            for address in std::mem::take(&mut self.greeting) {
                self.input(Input::NotGreeted { address, failure: Failure::Handshake });
            }
            AGENTS.iter().for_each(|agent| self.input(Input::PeerLost(AgentEpoch(*agent))));
            for token in self.tokens.clone().into_keys() {
                self.input(Input::Revoked(token));
            }
            self.now = self.now.saturating_add(Duration::from_secs(1300));
            self.due();
        }
        let Counts { refused, misdirected, engines, .. } = self.worker.counts();
        let rest = Counts { refused, misdirected, engines, ..Counts::default() };
        assert_eq!(self.worker.counts(), rest, "a leak");
        assert_eq!(self.worker.poll_timeout(), None, "a timer of nothing");
    }
}

/// The last few.
fn remember(list: &mut VecDeque<(Peer, ClaimId)>, new: (Peer, ClaimId)) {
    list.push_front(new);
    list.truncate(8);
}

fn agent(from: &mut Bytes<'_>) -> AgentEpoch {
    AgentEpoch(from.pick(&AGENTS))
}

fn address(from: &mut Bytes<'_>) -> Address {
    let first = RankAddress { host: "h".to_owned(), port: from.pick(&[1, 2, 3]) };
    Address { engine_id: "p".to_owned(), tp_size: 1, first, others: Vec::new() }
}

fn engine(from: &mut Bytes<'_>) -> EngineEpoch {
    EngineEpoch(from.pick(&ENGINES))
}

fn lease_id(engine: EngineEpoch, from: &mut Bytes<'_>) -> Option<LeaseId> {
    let request = RequestId::new("r").ok()?;
    Some(LeaseId { engine, request, nonce: Nonce(from.within(0, 2).into()) })
}

fn claim_id(lease: LeaseId, engine: EngineEpoch, from: &mut Bytes<'_>) -> Option<ClaimId> {
    let request = RequestId::new(from.pick(&["a", "b", "c"])).ok()?;
    Some(ClaimId { lease, engine, request })
}

fn ranks(from: &mut Bytes<'_>) -> BTreeSet<Rank> {
    (0..from.below(3)).map(|_| Rank(from.within(0, 2))).collect()
}

fn prompt(from: &mut Bytes<'_>) -> PromptDigest {
    PromptDigest { valid: 1, sha256: [from.byte() / 224; 32] }
}

fn tables(from: &mut Bytes<'_>) -> Arc<[BlockTable]> {
    (0..from.below(3)).map(|_| BlockTable { first_token: from.number(), ids: [3].into() }).collect()
}

fn request(from: &mut Bytes<'_>) -> Request {
    match from.below(7) {
        0..3 => Request::Claim { rank: Rank(from.within(0, 2)), readers: ranks(from) },
        3 => Request::Renew,
        4 => Request::Done,
        5 => Request::Check { number: from.within(0, 2).into() },
        _ => Request::Release,
    }
}

fn answer(from: &mut Bytes<'_>) -> Answer {
    let left = |from: &mut Bytes<'_>| match from.chance(4) {
        true => Duration::new(from.number(), from.small() % 1_000_000_000),
        false => Duration::from_secs(20),
    };
    match from.below(12) {
        0 => Answer::Pending,
        1..4 => {
            let (token, prompt) = (ReadToken(from.number()), prompt(from));
            Answer::Granted(Grant { token, prompt, left: left(from), tables: tables(from) })
        }
        4 => Answer::Renewed { left: left(from) },
        5 | 6 => Answer::Alive,
        7 => Answer::Released,
        8 => Answer::Over,
        9 | 10 => Answer::Intact { number: from.within(0, 2).into() },
        _ => Answer::Unknown,
    }
}
