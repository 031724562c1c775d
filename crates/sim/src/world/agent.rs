//! Drives the machine of one worker: does what it is told, and tells it what happened.

use connector::message::{Body, Message};
use connector::{Action, ClaimId, Event, Input, Order, Peer, Rank, Why};

use super::World;
use super::engine::{Agent, Fetching};
use super::events::{What, Who};
use super::oracle::Oracle;
use super::planted::Planted;
use super::setup::Fault;

impl World {
    pub(crate) fn agent(&self, who: Who) -> Option<&Agent> {
        let agent = self.engines.get(who.engine)?.agents.get(who.rank)?;
        (agent.up && agent.life == who.life).then_some(agent)
    }

    pub(crate) fn agent_mut(&mut self, who: Who) -> Option<&mut Agent> {
        let agent = self.engines.get_mut(who.engine)?.agents.get_mut(who.rank)?;
        (agent.up && agent.life == who.life).then_some(agent)
    }

    /// Tells a worker something, and does what follows.
    pub(crate) fn input(&mut self, who: Who, input: Input) {
        self.feed(who, input);
        self.settle(who);
    }

    fn feed(&mut self, who: Who, input: Input) {
        let Some(engine) = self.engines.get(who.engine) else { return };
        let now = engine.clock.local(self.now);
        if let Some(agent) = self.agent_mut(who) {
            agent.worker.handle(now, input);
        }
    }

    /// The earliest alarm that was set for a worker; later ones were set before it.
    pub(crate) fn wake(&mut self, who: Who, due: u64) {
        let at = self.engines[who.engine].clock.local(self.now);
        let Some(agent) = self.agent_mut(who).filter(|agent| agent.wake == Some(due)) else {
            return;
        };
        agent.wake = None;
        agent.worker.handle_timeout(at);
        self.settle(who);
    }

    fn settle(&mut self, who: Who) {
        loop {
            let Some(agent) = self.agent_mut(who) else { return };
            if let Some(action) = agent.worker.poll_action() {
                self.act(who, action);
            } else if let Some(event) = agent.worker.poll_event() {
                self.tell(who, event);
            } else {
                break;
            }
        }
        self.look_at_limits(who);
        self.set_alarm(who);
    }

    fn set_alarm(&mut self, who: Who) {
        let (clock, now) = (self.engines[who.engine].clock, self.now);
        let Some(agent) = self.agent_mut(who) else { return };
        let Some(due) = agent.worker.poll_timeout() else { return };
        let at = clock.global(due).max(now);
        if agent.wake.is_none_or(|set| at < set) {
            agent.wake = Some(at);
            self.queue.push(at, What::Wake { who, due: at });
        }
    }

    fn act(&mut self, who: Who, action: Action) {
        match action {
            Action::Send(message) => {
                let message = self.outgoing(message);
                let second = self.oracles.claims.said(who, &message);
                if let Some(what) = second {
                    self.broken(Oracle::OneClaim, self.request_of(&message.claim), || what);
                }
                if let Body::Answer(answer) = &message.body {
                    let (now, claim) = (self.now, &message.claim);
                    let found = self.oracles.answered(now, who, message.to, claim, answer);
                    let request = self.request_of(claim);
                    found.into_iter().for_each(|(o, what)| self.broken(o, request, || what));
                }
                let Message { to, claim, body, .. } = &message;
                self.note(self.request_of(claim), || {
                    format!("{who:?} to {:x} about {}: {body:?}", to.0, claim.request)
                });
                let told = self.send(who, &message);
                if told.is_some() {
                    self.oracles.claims.lost(who, message.to);
                }
                told.into_iter().for_each(|input| self.feed(who, input));
            }
            Action::Grant { reader, token, tables } => self.grant(who, reader, token, tables),
            Action::Revoke { token } => self.revoke(who, token),
            Action::Greet { address } => self.greet(who, address),
            Action::Read { claim, peer } => {
                let told = self.start_read(who, claim, peer);
                told.into_iter().for_each(|input| self.feed(who, input));
            }
            Action::Forget { .. } => {}
            Action::Cancel { claim, peer } => {
                let told = self.cancel_read(who, &claim, peer);
                told.into_iter().for_each(|input| self.feed(who, input));
            }
        }
    }

    fn tell(&mut self, who: Who, event: Event) {
        let ended = match &event {
            Event::Freed { lease, why } => {
                self.note(self.lease_of(lease), || format!("{who:?} frees: {why:?}"));
                let stood = self.stood_until(who);
                if *why == Why::Over && self.terrain.setup.faults.only(Fault::Abort) {
                    let request = self.lease_of(lease);
                    self.broken(Oracle::Untold, request, || format!("{lease:?} ran out"));
                }
                let found = self.oracles.freed(self.now, who, lease, *why, stood);
                let request = self.lease_of(lease);
                found.into_iter().for_each(|(oracle, what)| self.broken(oracle, request, || what));
                None
            }
            Event::Offered { claim, offers } => {
                let Some(agent) = self.agent_mut(who) else { return };
                if let Some(fetching) = agent.fetching.get_mut(claim) {
                    fetching.offers = Some(offers.clone());
                }
                return self.begin_to_read(who, claim);
            }
            Event::Received { claim } => {
                self.look_for_stale_reads(who, claim);
                Some(claim.clone())
            }
            Event::Failed { claim, .. } | Event::Released { claim } | Event::Nothing { claim } => {
                Some(claim.clone())
            }
            Event::Withdrawn => return self.withdrawn(who),
        };
        let mut told = false;
        if let Some(claim) = ended {
            self.note(self.request_of(&claim), || {
                format!("{who:?} ends {}: {event:?}", claim.request)
            });
            self.oracles.claims.read(who, &claim, &event);
            self.look_at_waiting(who, &claim);
            self.look_at_end(who, &claim);
            let agent = self.agent_mut(who).and_then(|agent| agent.fetching.remove(&claim));
            told = agent.is_some_and(|fetching| fetching.told);
        }
        if !told {
            self.report(who, event);
        }
    }

    /// The engine hears of it with its next step.
    pub(crate) fn report(&mut self, who: Who, event: Event) {
        let rank = Rank(u32::try_from(who.rank).unwrap_or(u32::MAX));
        self.engines[who.engine].inbox.push((rank, event));
        self.kick(who.engine);
    }

    /// What a step of the scheduler decided.
    pub(crate) fn orders(&mut self, who: Who, orders: &[Order]) {
        let now = self.now;
        for order in orders {
            match order.clone() {
                Order::Keep(lease) => {
                    self.oracles.kept(self.now, who, &lease.id);
                    self.input(who, Input::Lease(lease));
                }
                Order::Fetch(mut fetch) => {
                    self.oracles.claims.ordered(who, &fetch);
                    if self.is_planted(Planted::ClaimEach) {
                        fetch.shared = Some(fetch.claim.request.clone());
                    }
                    let Some(agent) = self.agent_mut(who) else { return };
                    let fetching = Fetching { since: now, ..Fetching::default() };
                    agent.fetching.insert(fetch.claim.clone(), fetching);
                    self.input(who, Input::Fetch(fetch));
                }
                Order::Read { claim, .. } => {
                    let Some(agent) = self.agent_mut(who) else { return };
                    if let Some(fetching) = agent.fetching.get_mut(&claim) {
                        fetching.allocated = true;
                    }
                    self.begin_to_read(who, &claim);
                    self.settle(who);
                }
                Order::Abort(claim) => self.input(who, Input::Abort(claim)),
            }
        }
    }

    /// Reads once there are both an offer and blocks.
    fn begin_to_read(&mut self, who: Who, claim: &ClaimId) {
        let fetching = self.agent(who).and_then(|agent| agent.fetching.get(claim));
        let Some(fetching) = fetching.filter(|f| f.allocated && f.to_read.is_empty()) else {
            return;
        };
        let Some(offers) = fetching.offers.clone() else { return };
        let reads = self.plan(who, claim, &offers);
        let peers = reads.iter().filter(|(_, read)| !read.copies.is_empty());
        let peers = peers.map(|(peer, _)| *peer).collect();
        if let Some(fetching) = self.agent_mut(who).and_then(|a| a.fetching.get_mut(claim)) {
            fetching.to_read = reads;
        }
        self.feed(who, Input::Read { claim: claim.clone(), peers });
    }

    /// A message has come to a worker.
    pub(crate) fn deliver(&mut self, who: Who, from: Peer, message: Message) {
        for message in self.incoming(who, message) {
            if let Body::Request(request) = &message.body {
                self.oracles.asked(who, message.from, &message.claim, request);
            }
            if let Body::Answer(answer) = &message.body {
                self.oracles.claims.heard(who, message.from, &message.claim, answer);
            }
            // A forged notice comes from the one whom it names.
            let from = Peer { agent: message.from, ..from };
            self.input(who, Input::Message { from, message });
        }
    }

    pub(crate) fn is_planted(&self, planted: Planted) -> bool {
        self.terrain.setup.planted == Some(planted)
    }
}
