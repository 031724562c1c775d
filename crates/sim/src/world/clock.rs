//! The clock of one host: it began at another moment than the others, and runs fast or slow.

use std::time::Duration;

const MILLION: i128 = 1_000_000;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    /// What it showed when the world began.
    pub(crate) offset: u64,
    /// Millionths that it runs fast.
    pub(crate) drift: i32,
}

impl Clock {
    /// What it shows at a moment of the world.
    pub(crate) fn local(self, now: u64) -> Duration {
        let gained = i128::from(now) * i128::from(self.drift) / MILLION;
        let shown = i128::from(self.offset) + i128::from(now) + gained;
        Duration::from_nanos(u64::try_from(shown).unwrap_or(0))
    }

    /// The first moment of the world at which it shows at least this.
    pub(crate) fn global(self, shown: Duration) -> u64 {
        let since = i128::try_from(shown.as_nanos()).unwrap_or(0) - i128::from(self.offset);
        let guess = since * MILLION / (MILLION + i128::from(self.drift));
        let mut at = u64::try_from(guess.max(0)).unwrap_or(u64::MAX / 2);
        while self.local(at) < shown {
            at += 1;
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_found_again() {
        for drift in [-10_000, -1, 0, 7, 10_000] {
            let clock = Clock { offset: 123_456_789, drift };
            for at in [0, 1, 999_999_937, 86_400_000_000_007] {
                let found = clock.global(clock.local(at));
                assert!(found <= at && clock.local(found) >= clock.local(at), "{drift} {at}");
            }
        }
    }
}
