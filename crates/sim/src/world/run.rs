//! The loop: takes what comes next, lets it happen, and stops at the first broken rule.

use std::rc::Rc;

use connector::Order;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::endpoint::Endpoints;
use super::engine::Engine;
use super::events::{Entry, Queue, What, Who};
use super::mistakes::Mistakes;
use super::network::Network;
use super::oracle::{Oracle, Oracles};
use super::report::{Book, Report, Tally, Violation};
use super::router::Router;
use super::setup::{Fault, SEC, Setup, Terrain};

/// Everything there is.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) now: u64,
    pub(crate) queue: Queue,
    pub(crate) random: ChaCha8Rng,
    pub(crate) terrain: Terrain,
    pub(crate) engines: Vec<Engine>,
    pub(crate) network: Network,
    pub(crate) endpoints: Endpoints,
    pub(crate) router: Router,
    pub(crate) oracles: Oracles,
    pub(crate) mistakes: Mistakes,
    pub(crate) book: Book,
    /// No more faults.
    pub(crate) calm: bool,
}

/// After the last fault everything has come to rest within this: a claim and its lease end at
/// 600 s, what a router delivers late is 70 s late, and the last prompts come after all that.
const REST: u64 = 1_400 * SEC;

/// The smallest pools hold three requests at a time, each for 31 s where nobody claims it.
const BACKLOG: u64 = 11 * SEC;

/// Plays a setup.
///
/// # Errors
/// The first rule that was broken, with what happened to the request that it concerns.
pub fn run(setup: &Setup) -> Result<Report, Box<Violation>> {
    match play(setup, false) {
        world if world.book.violated.is_none() => world.verdict(None),
        // The same again, with everything written down.
        _ => play(setup, true).verdict(None),
    }
}

/// Plays a setup and writes down what happens to one request, or everything.
///
/// # Errors
/// As [`run`].
pub fn run_noted(setup: &Setup, of: Option<u32>) -> Result<Report, Box<Violation>> {
    play(setup, true).verdict(of)
}

fn play(setup: &Setup, noted: bool) -> World {
    let mut world = World::new(setup);
    world.book.timeline.kept = noted;
    world.fill_router();
    world.plan_faults();
    let end = world.terrain.calm_at() + REST + BACKLOG * setup.requests as u64;
    while let (None, Some(entry)) = (&world.book.violated, world.queue.pop()) {
        world.now = entry.at;
        if entry.at > end {
            world
                .broken(Oracle::Unsettled, None, || format!("{:?} is still to happen", entry.what));
        } else {
            world.happen(entry);
        }
    }
    if world.book.violated.is_none() {
        world.look_at_rest();
    }
    world
}

impl World {
    fn new(setup: &Setup) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(setup.seed);
        let terrain = Terrain::new(setup, &mut random);
        let mut world = Self {
            now: 0,
            queue: Queue::default(),
            engines: Vec::new(),
            network: Network::default(),
            endpoints: Endpoints::default(),
            router: Router::default(),
            oracles: Oracles::default(),
            mistakes: Mistakes::default(),
            book: Book::default(),
            calm: false,
            terrain,
            random,
        };
        for index in 0..world.terrain.places.len() {
            let place = world.terrain.places[index].clone();
            let lives = vec![0; place.parts.len()];
            world.engines.extend(Engine::start(&place, 0, &lives, &mut world.random));
            world.name_agents(index);
        }
        world
    }

    fn verdict(self, of: Option<u32>) -> Result<Report, Box<Violation>> {
        let Book { tally, timeline, violated, .. } = self.book;
        let Some((oracle, request, what)) = violated else {
            let (seconds, events) = (self.now / SEC, self.queue.pushed());
            let timeline = timeline.text(of);
            let Tally { ends, peaks } = tally;
            return Ok(Report { ends, peaks, events, seconds, timeline });
        };
        let (setup, timeline) = (self.terrain.setup, timeline.text(of.or(request)));
        Err(Box::new(Violation { setup, oracle, what, request, timeline }))
    }

    pub(crate) fn name_agents(&mut self, engine: usize) {
        for (rank, agent) in self.engines[engine].agents.iter().enumerate() {
            self.network.names.insert(agent.peer.agent, Who::of(engine, rank, agent));
        }
    }

    fn happen(&mut self, entry: Entry) {
        let until = self.stands_still(&entry.what);
        if until > self.now {
            return self.queue.put_off(until, entry);
        }
        match entry.what {
            What::Step { engine, life } => self.step(engine, life),
            What::Orders { who, orders } => self.orders(who, &orders),
            What::Withdraw { who } => self.withdraw(who),
            What::Wake { who, due } => self.wake(who, due),
            What::Frame { conn, to, bytes } => self.frame(conn, to, &bytes),
            What::Lost { conn, at } => self.lost(conn, at),
            What::Greeted { who, address, reached } => self.greeted(who, &address, reached),
            What::Piece { read } => self.piece(read),
            What::Broken { read } => self.read_broken(read),
            What::Overdue { read } => self.overdue(read),
            What::Fence { read } => self.fence(read),
            What::Revoked { who, token } => self.revoked(who, token),
            What::Prompt { request } => self.route_prompt(request),
            What::Params(delivery) => self.params(*delivery),
            What::Abort { engine, life, name } if self.lives(engine, life) => {
                self.abort(engine, &name);
            }
            What::Decoded { engine, life, name } if self.lives(engine, life) => {
                self.decoded(engine, &name);
            }
            What::Abort { .. } | What::Decoded { .. } => {}
            What::Mishap(mishap) => self.mishap(mishap),
        }
    }

    fn lives(&self, engine: usize, life: u32) -> bool {
        self.engines[engine].up && self.engines[engine].life == life
    }

    /// Until when the process that this concerns stands still, or 0.
    fn stands_still(&self, what: &What) -> u64 {
        let of = |who: Who| self.agent(who).map_or(0, |agent| agent.paused);
        match what {
            What::Step { engine, .. }
            | What::Abort { engine, .. }
            | What::Decoded { engine, .. } => self.engines[*engine].steps.paused,
            What::Params(delivery) => self.engines[delivery.engine].steps.paused,
            What::Orders { who, .. }
            | What::Withdraw { who }
            | What::Wake { who, .. }
            | What::Greeted { who, .. }
            | What::Revoked { who, .. } => of(*who),
            What::Frame { conn, to: at, .. } | What::Lost { conn, at } => {
                of(self.network.conn(*conn).end(*at).0)
            }
            What::Piece { read } => self.endpoints.reads.get(read).map_or(0, |read| {
                let source = if self.terrain.one_sided { 0 } else { of(read.source()) };
                source.max(of(read.reader()))
            }),
            What::Broken { read } | What::Overdue { read } | What::Fence { read } => {
                self.endpoints.reads.get(read).map_or(0, |read| of(read.reader()))
            }
            What::Prompt { .. } | What::Mishap(_) => 0,
        }
    }

    /// Has an engine make a step soon.
    pub(crate) fn kick(&mut self, engine: usize) {
        let after = self.between(self.terrain.step / 2, self.terrain.step * 3 / 2);
        let here = &mut self.engines[engine];
        if here.up && here.steps.at.is_none() {
            here.steps.at = Some(self.now + after);
            let life = here.life;
            self.queue.push(self.now + after, What::Step { engine, life });
        }
    }

    fn step(&mut self, engine: usize, life: u32) {
        if !self.lives(engine, life) {
            return;
        }
        self.engines[engine].steps.at = None;
        self.notice_dead(engine);
        let here = &self.engines[engine];
        let whole = here.steps.asleep.is_none() && here.agents.iter().all(|agent| agent.up);
        self.hear_workers(engine, whole);
        self.give_orders(engine);
    }

    /// Takes what the workers have said, and, where all is there, begins what is new.
    pub(crate) fn hear_workers(&mut self, engine: usize, whole: bool) {
        if engine < self.terrain.setup.prefills {
            self.step_prefill(engine, whole);
        } else {
            self.step_decode(engine, whole);
        }
    }

    /// What a step decided reaches each worker at its own time, and in this order.
    pub(crate) fn give_orders(&mut self, engine: usize) {
        let scheduler = &mut self.engines[engine].scheduler;
        let orders: Rc<[Order]> = std::iter::from_fn(|| scheduler.poll_order()).collect();
        if orders.is_empty() {
            return;
        }
        for order in &*orders {
            if let Order::Abort(claim) = order {
                self.oracles.claims.unwanted(engine, claim);
            }
        }
        for rank in 0..self.engines[engine].agents.len() {
            let mut after = self.between(self.terrain.step / 4, self.terrain.step);
            if self.fault(Fault::Pause, 100) {
                after += self.between(0, 3 * SEC);
            }
            let agent = &mut self.engines[engine].agents[rank];
            let at = agent.ordered.max(self.now + after);
            if agent.up {
                agent.ordered = at;
                let (who, orders) = (Who::of(engine, rank, agent), Rc::clone(&orders));
                self.queue.push(at, What::Orders { who, orders });
            }
        }
    }

    /// Notes that a rule was broken; the first one stands.
    pub(crate) fn broken(
        &mut self,
        oracle: Oracle,
        request: Option<u32>,
        what: impl FnOnce() -> String,
    ) {
        if self.book.violated.is_none() {
            self.book.violated = Some((oracle, request, what()));
        }
    }

    pub(crate) fn note(&mut self, request: Option<u32>, text: impl FnOnce() -> String) {
        let now = self.now;
        self.book.timeline.note(now, request, text);
    }

    /// A number from the first to before the second.
    pub(crate) fn between(&mut self, from: u64, to: u64) -> u64 {
        if from >= to { from } else { self.random.random_range(from..to) }
    }

    /// One of so many, of which there must be one.
    pub(crate) fn pick(&mut self, of: usize) -> usize {
        if of < 2 { 0 } else { self.random.random_range(0..of) }
    }

    /// Happens this often in a thousand times.
    pub(crate) fn chance(&mut self, in_a_thousand: u64) -> bool {
        self.between(0, 1_000) < in_a_thousand
    }

    /// A mishap of this kind happens, this often in ten thousand times.
    pub(crate) fn fault(&mut self, fault: Fault, in_ten_thousand: u64) -> bool {
        !self.calm
            && self.terrain.setup.faults.has(fault)
            && self.between(0, 10_000) < in_ten_thousand
    }

    /// A delay on the wire.
    pub(crate) fn delay(&mut self) -> u64 {
        let usual = self.terrain.latency;
        self.between(usual / 2, usual * 2)
    }
}
