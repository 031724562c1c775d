//! An engine that takes its memory away for a while, as vLLM's sleep mode does.

use std::collections::BTreeSet;

use connector::Input;

use super::World;
use super::events::{What, Who};
use super::faults::Mishap;
use super::oracle::Oracle;
use super::setup::{MS, SEC};

impl World {
    /// The engine hears its workers out and gives up what runs; then every worker is asked to let nobody touch the memory.
    pub(crate) fn fall_asleep(&mut self, engine: usize) {
        let (here, now) = (&self.engines[engine], self.now);
        let stands = here.agents.iter().any(|agent| !agent.up || agent.paused > now);
        if !here.up || stands || here.steps.paused > now || here.steps.asleep.is_some() {
            return;
        }
        // What its workers have said before is about memory that is still there.
        self.hear_workers(engine, false);
        self.engines[engine].steps.asleep = Some(BTreeSet::new());
        self.prefills_lost(engine);
        self.decodes_lost(engine, "put to sleep");
        self.engines[engine].scheduler.withdraw();
        self.give_orders(engine);
        for rank in 0..self.engines[engine].agents.len() {
            let agent = &mut self.engines[engine].agents[rank];
            let (who, at) = (Who::of(engine, rank, agent), agent.ordered.max(now));
            // No order overtakes this one, nor is overtaken by it.
            self.queue.push(at, What::Withdraw { who });
        }
        let at = now + self.between(SEC, 10 * SEC);
        self.queue.push(at, What::Mishap(Mishap::WakeUp(engine)));
    }

    /// A worker is asked to let nobody touch its memory any more.
    pub(crate) fn withdraw(&mut self, who: Who) {
        if self.agent(who).is_some() {
            let now = self.now;
            self.oracles.withdraws(now, who);
            self.input(who, Input::Withdraw);
        }
    }

    /// A worker says that nobody can touch its memory any more: it is taken away.
    pub(crate) fn withdrawn(&mut self, who: Who) {
        let read = self
            .endpoints
            .reads
            .values()
            .any(|read| read.reader() == who || (read.serving && read.source() == who));
        let granted = self.agent(who).is_some_and(|agent| !agent.granted.is_empty());
        if read || granted {
            self.broken(Oracle::Withdrawn, None, || {
                format!("{who:?} has withdrawn its memory: read {read}, granted {granted}")
            });
        }
        self.engines[who.engine].memory.lose(who.rank);
        if let Some(asleep) = &mut self.engines[who.engine].steps.asleep {
            asleep.insert(who.rank);
        }
    }

    /// The memory comes back once it was gone.
    pub(crate) fn wake_up(&mut self, engine: usize) {
        let here = &self.engines[engine];
        let Some(asleep) = here.steps.asleep.as_ref().filter(|_| here.up) else { return };
        if asleep.len() < self.engines[engine].agents.len() {
            let at = self.now + 500 * MS;
            return self.queue.push(at, What::Mishap(Mishap::WakeUp(engine)));
        }
        self.engines[engine].steps.asleep = None;
        for rank in 0..self.engines[engine].agents.len() {
            let who = Who::of(engine, rank, &self.engines[engine].agents[rank]);
            self.input(who, Input::Restored);
        }
        self.kick(engine);
    }
}
