//! How long the thread may rest: it burns no core when there is nothing to do, and is there when
//! there is.

use std::time::{Duration, Instant};

/// After something happened more is likely, and a nap costs longer than this.
const SPIN: Duration = Duration::from_micros(100);

/// A nap is this part of the time in which nothing happened.
const PART: u32 = 8;

const SHORTEST: Duration = Duration::from_micros(20);

/// While something is under way and nothing but a poll finds out.
const BUSY: Duration = Duration::from_micros(50);

/// While peers may reach for memory here, which waits for the next poll: the first request after a
/// pause loses 1 ms on average, and 500 wake-ups a second are less than a hundredth of a core.
const TARGET: Duration = Duration::from_millis(2);

/// While nothing is registered.
const ALONE: Duration = Duration::from_millis(20);

/// Where the card wakes the thread, in case it does not.
const WOKEN_BUSY: Duration = Duration::from_millis(1);
const WOKEN_IDLE: Duration = Duration::from_millis(20);

/// What there is to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Load {
    /// Works are open, or a peer is known to be at it.
    pub(super) busy: bool,
    /// Something is registered.
    pub(super) target: bool,
    /// The card wakes the thread.
    pub(super) wakes: bool,
}

/// What to do until the next poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Spin,
    Sleep(Duration),
}

/// When something last happened.
pub(super) struct Pace {
    active: Instant,
}

impl Pace {
    pub(super) fn new(now: Instant) -> Self {
        Self { active: now }
    }

    pub(super) fn step(&mut self, now: Instant, moved: bool, load: Load) -> Step {
        if moved {
            self.active = now;
        }
        let quiet = now.saturating_duration_since(self.active);
        if quiet < SPIN {
            return Step::Spin;
        }
        match (load.wakes, load.busy) {
            (true, true) => Step::Sleep(WOKEN_BUSY),
            (true, false) => Step::Sleep(WOKEN_IDLE),
            (false, busy) => Step::Sleep((quiet / PART).clamp(SHORTEST, longest(busy, load))),
        }
    }
}

fn longest(busy: bool, load: Load) -> Duration {
    match (busy, load.target) {
        (true, _) => BUSY,
        (false, true) => TARGET,
        (false, false) => ALONE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn naps_grow_with_the_silence_up_to_what_may_come() {
        let start = Instant::now();
        let load = |busy, target, wakes| Load { busy, target, wakes };
        for (quiet, load, expected) in [
            (99, load(false, false, false), 0),
            (99, load(true, true, true), 0),
            (100, load(false, true, false), 20),
            (400, load(false, true, false), 50),
            (4_000, load(false, true, false), 500),
            (1_000_000, load(false, true, false), 2_000),
            (1_000_000, load(false, false, false), 20_000),
            (1_000_000, load(true, true, false), 50),
            (100, load(true, true, true), 1_000),
            (100, load(false, true, true), 20_000),
        ] {
            let mut pace = Pace::new(start);
            let step = pace.step(start + Duration::from_micros(quiet), false, load);
            let expected = match expected {
                0 => Step::Spin,
                micros => Step::Sleep(Duration::from_micros(micros)),
            };
            assert_eq!(step, expected, "{quiet} {load:?}");
        }
    }

    #[test]
    fn what_happens_keeps_it_awake() {
        let start = Instant::now();
        let load = Load { busy: false, target: true, wakes: false };
        let mut pace = Pace::new(start);
        let later = start + Duration::from_secs(1);
        assert_eq!(pace.step(later, true, load), Step::Spin);
        assert_eq!(pace.step(later + SPIN / 2, false, load), Step::Spin);
        assert_eq!(pace.step(later + SPIN, false, load), Step::Sleep(SHORTEST));
    }
}
