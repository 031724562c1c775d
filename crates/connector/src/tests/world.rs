//! Workers, the wires between them and a driver that does what it is told, when it is told to.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write;

use super::support::*;
use crate::codec::{decode, encode};
use crate::message::{Answer, Body, Request};
use crate::params::Address;
use crate::*;

/// One P worker, two ranks of one decode engine and a second decode engine.
pub(crate) const NODES: [(Peer, u32); 4] = [(P, 0), (D, 0), (D1, 1), (E, 0)];

pub(crate) struct World {
    pub(crate) now: Time,
    pub(crate) nodes: Vec<Node>,
    wires: BTreeMap<(usize, usize), VecDeque<Vec<u8>>>,
    cut: BTreeSet<(usize, usize)>,
    /// Every event and action, to compare two runs.
    pub(crate) log: String,
    /// Leases that P has freed.
    pub(crate) freed: BTreeMap<LeaseId, Why>,
}

pub(crate) struct Node {
    pub(crate) worker: Worker,
    /// P: granted tokens that are not yet revoked; whether that is wanted.
    pub(crate) tokens: BTreeMap<ReadToken, bool>,
    /// P: of which lease each token is.
    leases: BTreeMap<ReadToken, LeaseId>,
    /// D: whom each engine it gets to know consists of.
    engines: BTreeMap<Address, BTreeMap<AgentEpoch, BTreeSet<Rank>>>,
    /// D: requests whose reads run.
    pub(crate) reading: BTreeSet<ClaimId>,
    /// D: reads that ended when P had freed the blocks already.
    stale: BTreeSet<ClaimId>,
    pub(crate) started: BTreeSet<ClaimId>,
    pub(crate) ends: BTreeMap<ClaimId, Event>,
}

impl World {
    pub(crate) fn new() -> Self {
        let nodes = NODES.iter().map(|(peer, rank)| Node::new(worker(*peer, *rank))).collect();
        let (wires, cut) = (BTreeMap::new(), BTreeSet::new());
        Self { now: secs(0), nodes, wires, cut, log: String::new(), freed: BTreeMap::new() }
    }

    pub(crate) fn input(&mut self, node: usize, input: Input) {
        match &input {
            Input::Fetch(fetch) => drop(self.nodes[node].started.insert(fetch.claim.clone())),
            Input::ReadEnded { claim, how: Ok(()), .. } => self.reads_end(node, claim),
            Input::ReadEnded { claim, .. } => drop(self.nodes[node].reading.remove(claim)),
            Input::Revoked(token) => drop(self.nodes[node].tokens.remove(token)),
            _ => {}
        }
        self.nodes[node].worker.handle(self.now, input);
        self.collect(node);
    }

    /// The read of a request is complete.
    pub(crate) fn reads_done(&mut self, node: usize, claim: &ClaimId) {
        self.reads_ended(node, claim, Ok(()));
    }

    /// The read of a request has failed for good, or has stopped.
    pub(crate) fn reads_failed(&mut self, node: usize, claim: &ClaimId) {
        self.reads_ended(node, claim, Err(ReadFailure::Refused));
    }

    fn reads_ended(&mut self, node: usize, claim: &ClaimId, how: Result<(), ReadFailure>) {
        self.input(node, Input::ReadEnded { claim: claim.clone(), peer: P.agent, how });
    }

    fn reads_end(&mut self, node: usize, claim: &ClaimId) {
        self.nodes[node].reading.remove(claim);
        if self.freed.contains_key(&claim.lease) {
            self.nodes[node].stale.insert(claim.clone());
        }
    }

    fn collect(&mut self, node: usize) {
        while let Some(action) = self.nodes[node].worker.poll_action() {
            writeln!(self.log, "{:?} {node} {action:?}", self.now).unwrap();
            self.act(node, action);
        }
        while let Some(event) = self.nodes[node].worker.poll_event() {
            writeln!(self.log, "{:?} {node} {event:?}", self.now).unwrap();
            self.note(node, event);
        }
    }

    fn act(&mut self, from: usize, action: Action) {
        let node = &mut self.nodes[from];
        match action {
            Action::Send(message) => {
                if let Body::Answer(Answer::Granted(grant)) = &message.body {
                    assert!(node.tokens.contains_key(&grant.token), "granted before answered");
                    node.leases.insert(grant.token, message.claim.lease.clone());
                }
                let to = NODES.iter().position(|(peer, _)| peer.agent == message.to).unwrap();
                if !self.cut.contains(&(from, to)) {
                    let wire = self.wires.entry((from, to)).or_default();
                    wire.push_back(encode(&message).unwrap());
                }
            }
            Action::Grant { token, .. } => {
                assert_eq!(node.tokens.insert(token, false), None, "a token is used once");
            }
            Action::Revoke { token } => {
                assert_eq!(node.tokens.insert(token, true), Some(false), "revoked once");
            }
            Action::Greet { address } => {
                let sources = node.engines[&address].clone();
                let acquaintance = Acquaintance { engine: P.engine, sources };
                self.input(from, Input::Greeted { address, acquaintance });
            }
            Action::Read { claim, peer } => {
                assert_eq!(peer, P.agent);
                assert!(node.reading.insert(claim), "read once at a time");
            }
            Action::Forget { .. } => {}
            Action::Cancel { claim, .. } => assert!(node.reading.contains(&claim)),
        }
    }

    fn note(&mut self, at: usize, event: Event) {
        let node = &mut self.nodes[at];
        match &event {
            Event::Freed { lease, why } => {
                let open = node.tokens.keys().any(|token| node.leases.get(token) == Some(lease));
                assert!(!open, "freed while a token is not revoked");
                assert_eq!(self.freed.insert(lease.clone(), *why), None, "freed once");
            }
            Event::Offered { claim, offers } => {
                // The engine has blocks at once.
                let peers = offers.iter().map(|offer| offer.peer).collect();
                self.input(at, Input::Read { claim: claim.clone(), peers });
            }
            Event::Received { claim } => {
                assert!(!node.stale.contains(claim), "published blocks that P had freed");
                node.end(claim.clone(), event);
            }
            Event::Failed { claim, .. } | Event::Released { claim } | Event::Nothing { claim } => {
                node.end(claim.clone(), event);
            }
            Event::Withdrawn => {}
        }
    }

    /// Hands over the frame at the head of a wire, and keeps it there if it is to come twice.
    pub(crate) fn deliver(&mut self, from: usize, to: usize, twice: bool) -> bool {
        let Some(wire) = self.wires.get_mut(&(from, to)) else { return false };
        let Some(frame) = wire.pop_front() else { return false };
        let (message, used) = decode(&frame).unwrap().unwrap();
        assert_eq!(used, frame.len());
        if twice {
            wire.push_front(frame);
        }
        self.input(to, Input::Message { from: NODES[from].0, message });
        true
    }

    /// Hands over everything that is under way, and what follows from it.
    pub(crate) fn deliver_all(&mut self) {
        let ends: Vec<_> = (1..NODES.len()).flat_map(|d| [(d, 0), (0, d)]).collect();
        while ends.iter().any(|(from, to)| self.deliver(*from, *to, false)) {}
    }

    /// Two workers lose each other, and what is under way between them.
    pub(crate) fn lose(&mut self, p: usize, d: usize) {
        for (from, to) in [(p, d), (d, p)] {
            self.cut.insert((from, to));
            self.wires.remove(&(from, to));
            self.input(from, Input::PeerLost(NODES[to].0.agent));
        }
    }

    pub(crate) fn revoke_all(&mut self) {
        let wanted = self.nodes[0].tokens.iter().filter(|(_, wanted)| **wanted);
        let wanted: Vec<_> = wanted.map(|(token, _)| *token).collect();
        wanted.into_iter().for_each(|token| self.input(0, Input::Revoked(token)));
    }

    /// Lets time pass, every timer at its moment.
    pub(crate) fn pass(&mut self, time: Time) {
        let until = self.now + time;
        loop {
            let due = self.nodes.iter().filter_map(|node| node.worker.poll_timeout()).min();
            let Some(due) = due.filter(|due| *due <= until) else { break };
            assert!(due >= self.now, "nothing stays overdue");
            self.now = due;
            self.timeouts();
        }
        self.now = until;
        self.timeouts();
    }

    fn timeouts(&mut self) {
        for node in 0..self.nodes.len() {
            self.nodes[node].worker.handle_timeout(self.now);
            self.collect(node);
        }
    }

    /// Lets everything come to its end, reads as failures, and looks for leaks.
    pub(crate) fn settle(&mut self) {
        for _ in 0..2 {
            for node in 0..self.nodes.len() {
                let reading = self.nodes[node].reading.clone();
                reading.iter().for_each(|claim| self.reads_failed(node, claim));
            }
            self.deliver_all();
            self.revoke_all();
            self.pass(secs(1300));
        }
        self.revoke_all();
        for node in &self.nodes {
            assert!(at_rest(&node.worker), "a leak: {:?}", node.worker.counts());
            assert!(node.started.iter().eq(node.ends.keys()), "each request ends once");
        }
    }

    pub(crate) fn start(&mut self, node: usize, nonce: u64, readers: &[u32]) -> ClaimId {
        self.start_sample(node, (nonce, 0), None, readers)
    }

    /// One of several requests of a lease; whether its scheduler says to share the first's claim.
    pub(crate) fn start_sample(
        &mut self,
        node: usize,
        (nonce, sample): (u64, u64),
        shared: Option<RequestId>,
        readers: &[u32],
    ) -> ClaimId {
        let claim = sample_of(nonce, NODES[node].0, sample);
        let address = address(1 + u16::try_from(nonce).unwrap());
        self.nodes[node].engines.insert(address.clone(), sources(readers));
        let fetch = Fetch { claim: claim.clone(), shared, prompt: prompt(), address };
        self.input(node, Input::Fetch(fetch));
        claim
    }

    /// Whether the frame at the head of a wire is this request.
    pub(crate) fn head_is(&self, from: usize, to: usize, request: &Request) -> bool {
        let head = self.wires.get(&(from, to)).and_then(VecDeque::front);
        let message = head.and_then(|frame| decode(frame).unwrap()).map(|(message, _)| message);
        message.is_some_and(|message| message.body == Body::Request(request.clone()))
    }
}

impl Node {
    fn new(worker: Worker) -> Self {
        Self {
            worker,
            tokens: BTreeMap::new(),
            leases: BTreeMap::new(),
            engines: BTreeMap::new(),
            reading: BTreeSet::new(),
            stale: BTreeSet::new(),
            started: BTreeSet::new(),
            ends: BTreeMap::new(),
        }
    }

    fn end(&mut self, claim: ClaimId, event: Event) {
        assert!(!self.reading.contains(&claim), "ended while reads may touch the blocks");
        assert_eq!(self.ends.insert(claim, event), None, "a request ends once");
    }
}
