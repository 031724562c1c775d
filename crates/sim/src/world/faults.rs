//! What befalls engines, processes and the paths between them, and when.

use connector::{AgentEpoch, EngineEpoch, Input};

use super::World;
use super::engine::{Agent, Engine};
use super::events::{What, Who};
use super::network::HEARTBEAT;
use super::oracle::Oracle;
use super::planted::Planted;
use super::setup::{Fault, MS, SEC};

#[derive(Debug)]
pub(crate) enum Mishap {
    Crash(usize),
    Restart(usize),
    Worker(usize, usize),
    Revive(usize, usize),
    Pause(usize),
    Sleep(usize),
    WakeUp(usize),
    Break,
    Partition,
    /// By now everybody must have drawn the consequences of a death.
    Mourned(Box<Dead>),
    /// No more faults: all must come to rest.
    Calm,
}

/// What died, and when.
#[derive(Debug)]
pub(crate) struct Dead {
    at: u64,
    agents: Vec<AgentEpoch>,
    /// A whole engine, not one of its workers.
    engine: Option<EngineEpoch>,
}

/// A dead peer is noticed, its reads are fenced and its requests told within 10 s; a handshake
/// that just began when it died is given up after 10 s of a clock that may be slow.
const MOURNING: u64 = 13 * SEC;

impl World {
    pub(crate) fn plan_faults(&mut self) {
        let end = self.terrain.calm_at();
        let kinds = [
            Fault::Crash,
            Fault::Worker,
            Fault::Pause,
            Fault::Sleep,
            Fault::Break,
            Fault::Partition,
        ];
        let faults = self.terrain.setup.faults.clone();
        for kind in kinds.into_iter().filter(|kind| faults.has(*kind)) {
            let many = if kind == Fault::Break || self.chance(50) { 20 } else { 4 };
            for _ in 0..self.between(0, many) {
                let engine = self.pick(self.engines.len());
                let ranks = self.engines[engine].agents.len();
                let mishap = match kind {
                    Fault::Crash => Mishap::Crash(engine),
                    Fault::Worker => Mishap::Worker(engine, self.pick(ranks)),
                    Fault::Pause => Mishap::Pause(engine),
                    Fault::Sleep => Mishap::Sleep(engine),
                    Fault::Break => Mishap::Break,
                    _ => Mishap::Partition,
                };
                let at = self.between(0, end);
                self.queue.push(at, What::Mishap(mishap));
            }
        }
        self.queue.push(end, What::Mishap(Mishap::Calm));
    }

    pub(crate) fn mishap(&mut self, mishap: Mishap) {
        self.note(None, || format!("{mishap:?}"));
        match mishap {
            Mishap::Crash(engine) => self.crash(engine),
            Mishap::Restart(engine) => self.restart(engine),
            Mishap::Worker(engine, rank) => self.kill(engine, rank),
            Mishap::Revive(engine, rank) => self.revive(engine, rank),
            Mishap::Pause(engine) => self.pause(engine),
            Mishap::Sleep(engine) => self.fall_asleep(engine),
            Mishap::WakeUp(engine) => self.wake_up(engine),
            Mishap::Break => {
                let open = self.network.of(|_| true);
                if !open.is_empty() {
                    let which = self.pick(open.len());
                    self.break_somehow(open[which]);
                }
            }
            Mishap::Partition => {
                let p = self.pick(self.terrain.setup.prefills);
                let d = self.terrain.setup.prefills + self.pick(self.terrain.setup.decodes);
                let time = self.between(100 * MS, 20 * SEC);
                self.partition(p, d, time);
            }
            Mishap::Mourned(dead) => self.look_for_the_dead(&dead),
            Mishap::Calm => self.calm(),
        }
    }

    /// A process is gone: what it read, and its connections.
    fn die(&mut self, engine: usize, rank: usize) -> AgentEpoch {
        let agent = &mut self.engines[engine].agents[rank];
        agent.up = false;
        let (who, epoch) = (Who::of(engine, rank, agent), agent.peer.agent);
        self.endpoints.reader_died(who);
        // Its host says so, or nobody does.
        let host = self.chance(500);
        for conn in self.network.of(|end| end == who) {
            let soon = self.between(0, 50 * MS);
            let late = self.between(HEARTBEAT / 2, HEARTBEAT);
            let after = if host { soon } else { late };
            self.cut(conn, after, after);
        }
        let now = self.now;
        self.oracles.died(now, who);
        epoch
    }

    fn crash(&mut self, at: usize) {
        if !self.engines[at].up {
            return;
        }
        let ranks = 0..self.engines[at].agents.len();
        let up: Vec<_> = ranks.filter(|rank| self.engines[at].agents[*rank].up).collect();
        let agents = up.into_iter().map(|rank| self.die(at, rank)).collect();
        let engine = &mut self.engines[at];
        engine.up = false;
        let epoch = Some(engine.epoch);
        let lost = engine.decode.requests.len() + engine.prefill.kept.len();
        self.book.tally.add("lost with an engine", lost as u64);
        self.mourn(agents, epoch);
        let again = if self.chance(100) { 0 } else { self.between(100 * MS, 20 * SEC) };
        if again > 0 {
            self.queue.push(self.now + again, What::Mishap(Mishap::Restart(at)));
        }
    }

    fn restart(&mut self, at: usize) {
        let engine = &self.engines[at];
        if engine.up {
            return;
        }
        let lives: Vec<u32> = engine.agents.iter().map(|agent| agent.life + 1).collect();
        let (life, place) = (engine.life + 1, self.terrain.places[at].clone());
        let started = Engine::start(&place, life, &lives, &mut self.random);
        let Some(fresh) = started else { return };
        let before = std::mem::replace(&mut self.engines[at], fresh);
        self.name_agents(at);
        if self.is_planted(Planted::OldEpoch) {
            self.honour_old_leases(at, &before);
        }
    }

    fn kill(&mut self, engine: usize, rank: usize) {
        if !self.engines[engine].up || !self.engines[engine].agents[rank].up {
            return;
        }
        let dead = self.die(engine, rank);
        self.engines[engine].memory.lose(rank);
        self.engines[engine].steps.dead.insert(rank);
        self.mourn(vec![dead], None);
        self.kick(engine);
        let at = self.now + self.between(200 * MS, 5 * SEC);
        self.queue.push(at, What::Mishap(Mishap::Revive(engine, rank)));
    }

    /// The scheduler notices that a worker is gone, before it decides anything else.
    pub(crate) fn notice_dead(&mut self, engine: usize) {
        for rank in std::mem::take(&mut self.engines[engine].steps.dead) {
            let rank = connector::Rank(u32::try_from(rank).unwrap_or(u32::MAX));
            self.engines[engine].scheduler.worker_lost(rank);
            self.prefills_lost(engine);
            self.decodes_lost(engine, "lost with a worker");
        }
    }

    fn revive(&mut self, engine: usize, rank: usize) {
        let here = &self.engines[engine];
        if !here.up || here.agents[rank].up {
            return;
        }
        if here.steps.dead.contains(&rank) {
            // Whoever starts it has to know that it was gone.
            let at = self.now + 100 * MS;
            return self.queue.push(at, What::Mishap(Mishap::Revive(engine, rank)));
        }
        let (epoch, life) = (here.epoch, here.agents[rank].life + 1);
        if let Some(agent) = Agent::start(epoch, rank, life, &mut self.random) {
            self.engines[engine].agents[rank] = agent;
            self.name_agents(engine);
            if self.engines[engine].steps.asleep.is_some() {
                self.input(Who { engine, rank, life }, Input::Withdraw);
            }
            self.kick(engine);
        }
    }

    fn pause(&mut self, engine: usize) {
        let time = self.between(100 * MS, 1000 * MS) * self.between(1, 60);
        let until = self.now + time;
        let ranks = self.engines[engine].agents.len();
        let which = self.pick(ranks + 2);
        let whole_host = which == ranks + 1;
        let steps = &mut self.engines[engine].steps;
        steps.stood_until = steps.stood_until.max(until);
        if whole_host || which == ranks {
            steps.paused = steps.paused.max(until);
        }
        for rank in (0..ranks).filter(|rank| whole_host || *rank == which) {
            let agent = &mut self.engines[engine].agents[rank];
            agent.paused = agent.paused.max(until);
            let who = Who::of(engine, rank, agent);
            let after = self.between(HEARTBEAT / 2, HEARTBEAT);
            if time <= after {
                continue;
            }
            for conn in self.network.of(|end| end == who) {
                self.cut(conn, after, after);
            }
        }
    }

    fn mourn(&mut self, agents: Vec<AgentEpoch>, engine: Option<EngineEpoch>) {
        let dead = Box::new(Dead { at: self.now, agents, engine });
        self.queue.push(self.now + MOURNING, What::Mishap(Mishap::Mourned(dead)));
    }

    fn look_for_the_dead(&mut self, dead: &Dead) {
        for engine in 0..self.engines.len() {
            let here = &self.engines[engine];
            // Whoever stood still meanwhile had no time for it.
            if !here.up || here.steps.stood_until > dead.at {
                continue;
            }
            let agents = here.agents.iter().enumerate().filter(|(_, agent)| agent.up);
            let known = agents.clone().find(|(_, agent)| {
                dead.agents
                    .iter()
                    .any(|gone| agent.links.contains_key(gone) || agent.may_be_read_by(*gone))
            });
            let known = known.map(|(rank, _)| rank);
            let waits = here.decode.requests.values().find(|local| {
                Some(local.claim.lease.engine) == dead.engine
                    && local.fetched < dead.at
                    && local.state != super::decode::State::Running
            });
            let waits = waits.map(|local| local.request);
            if known.is_some() || waits.is_some() {
                self.broken(Oracle::DeadPeer, waits, || {
                    format!("engine {engine}, rank {known:?}: {dead:?} is not forgotten")
                });
            }
        }
    }

    fn calm(&mut self) {
        self.calm = true;
        self.network.heal();
        for engine in &mut self.engines {
            engine.steps.paused = engine.steps.paused.min(self.now);
            engine.agents.iter_mut().for_each(|a| a.paused = a.paused.min(self.now));
        }
        self.queue.go_on(self.now);
    }
}
