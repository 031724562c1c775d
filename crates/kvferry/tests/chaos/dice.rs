//! Choices that a seed decides.

use std::ops::Range;
use std::time::Duration;

/// Steele's SplitMix64: the same numbers on every machine, which a failing seed needs.
pub struct Dice(u64);

impl Dice {
    /// Each scenario throws its own dice.
    pub fn new(seed: u64, scenario: &str) -> Self {
        let named = scenario.bytes().fold(seed, |sum, byte| sum.rotate_left(8) ^ u64::from(byte));
        Self(named)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    pub fn of(&mut self, range: Range<u64>) -> u64 {
        range.start + self.next() % (range.end - range.start)
    }

    pub fn millis(&mut self, range: Range<u64>) -> Duration {
        // In microseconds: a hand-off takes few milliseconds, and each moment of it may be hit.
        Duration::from_micros(self.of(range.start * 1000..range.end * 1000))
    }

    pub fn bytes(&mut self, count: u64) -> Vec<u8> {
        (0..count).map(|_| self.next().to_le_bytes()[0]).collect()
    }
}
