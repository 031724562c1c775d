//! The router between a prefill and a decode engine, and what a test may do to them.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use kvferry::connector::Bounds;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::judge::Judge;
use crate::process::{Event, Process};
use crate::spec::{Part, Spec};

/// Within this time a request is told that its peer is gone, and a new peer works.
pub const TOLD: Duration = Duration::from_secs(10);
/// For what takes moments, on a machine that is busy with others.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// Between two looks.
const MOMENT: Duration = Duration::from_millis(5);
/// Requests under way at a time.
const WIDTH: usize = 12;

pub struct World {
    pub p: Side,
    pub d: Side,
    pub judge: Judge,
    /// Requests that are kept under way.
    pub width: usize,
    /// How long the decode engine waits between claim and read, in milliseconds.
    pub linger: u64,
    /// Whether some requests are given up while they are read.
    pub fickle: bool,
    lives: u64,
    events: (Sender<Event>, Receiver<Event>),
    deadline: Instant,
}

/// One of the two children.
pub struct Side {
    pub spec: Spec,
    process: Option<Process>,
    ready: bool,
    state: Option<Value>,
}

/// What must be the same before and after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptors {
    p: usize,
    d: usize,
}

impl Side {
    fn new(spec: Spec) -> Self {
        Self { spec, process: None, ready: false, state: None }
    }

    pub fn process(&self) -> &Process {
        self.process.as_ref().expect("it runs")
    }

    fn tell(&mut self, order: &Value) {
        if let Some(process) = &mut self.process {
            process.tell(order);
        }
    }

    fn is(&self, life: u64) -> bool {
        self.process.as_ref().is_some_and(|process| process.life == life)
    }

    fn is_at_rest(&self) -> Option<bool> {
        let state = self.state.as_ref()?;
        assert!(state["fault"].is_null(), "{:?}: {state}", self.spec.part);
        let held = state["held"].as_array().unwrap().iter();
        Some(state["used"] == 0 && held.into_iter().all(|count| *count == 0))
    }
}

impl World {
    /// Two children on loopback that have handed over something, and all that at rest. A test
    /// that is not over after `limit` has failed.
    pub fn start(bounds: Bounds, limit: Duration) -> (Self, Descriptors) {
        Self::of([Part::Prefill, Part::Decode].map(|part| Spec::new(part, bounds)), limit)
    }

    pub fn of(specs: [Spec; 2], limit: Duration) -> (Self, Descriptors) {
        let mut world = Self::idle(specs, limit);
        world.start_p();
        let descriptors = world.begin();
        (world, descriptors)
    }

    /// Nobody runs yet.
    pub fn idle([p, d]: [Spec; 2], limit: Duration) -> Self {
        Self {
            p: Side::new(p),
            d: Side::new(d),
            judge: Judge::default(),
            width: WIDTH,
            linger: 0,
            fickle: false,
            lives: 0,
            events: channel(),
            deadline: Instant::now() + limit,
        }
    }

    /// The decode engine comes to the prefill engine, and all works.
    pub fn begin(&mut self) -> Descriptors {
        self.start_d();
        self.good(20);
        self.settle()
    }

    pub fn start_p(&mut self) {
        self.launch(Part::Prefill);
        self.until("prefill ready", PATIENCE, |world| world.p.ready);
    }

    pub fn start_d(&mut self) {
        self.launch(Part::Decode);
        self.until("decode ready", PATIENCE, |world| world.d.ready);
    }

    fn launch(&mut self, part: Part) {
        self.lives += 1;
        let (life, events) = (self.lives, self.events.0.clone());
        let side = self.side(part);
        assert!(side.process.is_none());
        (side.ready, side.state) = (false, None);
        side.process = Some(Process::start(&side.spec, life, &events));
    }

    pub fn side(&mut self, part: Part) -> &mut Side {
        match part {
            Part::Prefill => &mut self.p,
            Part::Decode => &mut self.d,
        }
    }

    /// `kill -9`. What the decode engine has under way ends within [`TOLD`].
    pub fn kill_p(&mut self) {
        self.p.process.take().expect("it runs").kill();
        self.judge.prefill_died();
        self.judge.hit(TOLD);
    }

    pub fn kill_d(&mut self) {
        self.d.process.take().expect("it runs").kill();
        self.judge.decode_died();
        self.judge.hit(crate::judge::ENDS);
    }

    pub fn stop(&mut self, part: Part) {
        self.side(part).process().signal(Signal::STOP);
        self.judge.hit(crate::judge::ENDS);
    }

    pub fn go_on(&mut self, part: Part) {
        self.side(part).process().signal(Signal::CONT);
        self.judge.goes_on();
    }

    /// Lets time pass, with requests under way.
    pub fn run_for(&mut self, time: Duration) {
        let end = Instant::now() + time;
        while let Some(left) = end.checked_duration_since(Instant::now()) {
            self.step(left.min(MOMENT));
        }
    }

    /// Until it is so. Gives how long that took.
    pub fn until(
        &mut self,
        what: &str,
        bound: Duration,
        mut is_so: impl FnMut(&mut Self) -> bool,
    ) -> Duration {
        let began = Instant::now();
        while !is_so(self) {
            let Judge { tally, last, .. } = &self.judge;
            assert!(began.elapsed() < bound, "{what}: not within {bound:?}; {tally}; {last:?}");
            self.step(MOMENT);
        }
        began.elapsed()
    }

    /// Keeps requests under way while something else is done, which takes a moment.
    pub fn meanwhile(&mut self, work: impl FnOnce() + Send + 'static) {
        let work = std::thread::spawn(work);
        self.until("what is done meanwhile", PATIENCE, |_| work.is_finished());
        work.join().unwrap();
    }

    /// Until so many more were received. Gives how long that took.
    pub fn good(&mut self, count: u64) -> Duration {
        self.good_within(count, PATIENCE)
    }

    pub fn good_within(&mut self, count: u64, bound: Duration) -> Duration {
        let wanted = self.judge.tally.received + count;
        self.until("hand-offs", bound, |world| world.judge.tally.received >= wanted)
    }

    /// Lets all that is under way end. Then nothing is held, and no byte of a pool is written.
    pub fn settle(&mut self) -> Descriptors {
        let width = std::mem::take(&mut self.width);
        self.until("the last request", 2 * crate::judge::ENDS, |world| {
            world.judge.under_way() == 0
        });
        let Bounds { unclaimed, claim_life, .. } = self.p.spec.bounds;
        let kept = unclaimed + claim_life + TOLD;
        self.until("the last lease", kept, |world| world.judge.leases() == 0);
        let began = Instant::now();
        while !self.is_at_rest() {
            let states = (&self.p.state, &self.d.state);
            assert!(began.elapsed() < PATIENCE, "not at rest: {states:?}");
            self.run_for(MOMENT);
        }
        self.width = width;
        Descriptors { p: self.p.process().descriptors(), d: self.d.process().descriptors() }
    }

    /// After a last few hand-offs all is as it was at the start.
    pub fn ends_as_it_began(&mut self, start: Descriptors) {
        self.good_within(10, TOLD + PATIENCE);
        let began = Instant::now();
        loop {
            let now = self.settle();
            if now == start {
                break;
            }
            // A socket may outlive for a moment what it was for.
            assert!(began.elapsed() < PATIENCE, "{now:?}, and at the start {start:?}");
            self.run_for(MOMENT);
        }
    }

    fn is_at_rest(&mut self) -> bool {
        for part in [Part::Prefill, Part::Decode] {
            let side = self.side(part);
            side.state = None;
            side.tell(&json!({ "state": null }));
        }
        self.until("their state", PATIENCE, |world| {
            world.p.state.is_some() && world.d.state.is_some()
        });
        [&self.p, &self.d].iter().all(|side| side.is_at_rest() == Some(true))
    }

    /// Hears what comes within this time at most, and does what a router does.
    fn step(&mut self, wait: Duration) {
        assert!(Instant::now() < self.deadline, "the test takes too long; {}", self.judge.tally);
        self.judge.check_due();
        while self.p.ready && self.p.process.is_some() && self.judge.under_way() < self.width {
            let request = self.judge.begin();
            self.p.tell(&json!({ "offer": request }));
        }
        let Ok(Event { life, said }) = self.events.1.recv_timeout(wait) else { return };
        // What is said by those who were killed no longer counts.
        if self.p.is(life) {
            self.heard_p(&said.expect("the prefill engine lives"));
        } else if self.d.is(life) {
            self.heard_d(&said.expect("the decode engine lives"));
        }
    }

    fn heard_p(&mut self, said: &Value) {
        if let Some(address) = said["ready"].as_str() {
            self.p.ready = true;
            // The next life comes to the same place.
            self.p.spec.listen = address.parse().unwrap();
        } else if let Some(request) = said["offered"].as_u64() {
            if self.judge.offered(request, self.d.process.is_some()) {
                self.d.tell(&json!({
                    "fetch": request,
                    "params": said["params"],
                    "linger": self.linger,
                    "patience": self.patience(request),
                }));
            }
        } else if let Some(request) = said["freed"].as_u64() {
            self.judge.freed(request, said["why"].as_str().unwrap());
        } else {
            self.p.state = Some(said["state"].clone());
        }
    }

    /// In microseconds, of a request that is given up unless it is quicker: at any moment of the
    /// few milliseconds that reads and commit take.
    fn patience(&self, request: u64) -> Option<u64> {
        let is_fickle = self.fickle && request.is_multiple_of(6);
        is_fickle.then_some(request * 7919 % 4000)
    }

    fn heard_d(&mut self, said: &Value) {
        if said.get("ready").is_some() {
            self.d.ready = true;
        } else if let Some(request) = said["claimed"].as_u64() {
            self.judge.was_claimed(request);
        } else if let Some(request) = said["ended"].as_u64() {
            self.judge.ended(request, said);
        } else {
            self.d.state = Some(said["state"].clone());
        }
    }
}
