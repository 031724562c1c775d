use std::time::{Duration, Instant};

/// Counts heartbeats without a sign of life. Beats are counted, not time: a process that was
/// suspended does not take its own absence for the peer's.
pub(super) struct Beat {
    every: Duration,
    allowed: u32,
    due: Instant,
    seen: u64,
    missed: u32,
}

/// What [`Beat::check`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pulse {
    /// No beat is due.
    Early,
    /// A beat was due: show a sign of life.
    Due,
    /// Too many were missed.
    Dead,
}

impl Beat {
    pub(super) fn new(every: Duration, allowed: u32) -> Self {
        Self { every, allowed, due: Instant::now() + every, seen: 0, missed: 0 }
    }

    /// When the next beat is due.
    pub(super) fn due(&self) -> Instant {
        self.due
    }

    /// `signs` is the number of signs of life so far.
    pub(super) fn check(&mut self, now: Instant, signs: u64) -> Pulse {
        if now < self.due {
            return Pulse::Early;
        }
        self.due = now + self.every;
        self.missed = if signs == self.seen { self.missed + 1 } else { 0 };
        self.seen = signs;
        if self.missed >= self.allowed { Pulse::Dead } else { Pulse::Due }
    }
}

#[cfg(test)]
#[path = "beat_tests.rs"]
mod tests;
