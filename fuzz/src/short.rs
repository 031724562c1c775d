//! The short runs of `cargo test`: what is kept, and random changes of it under a seed.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::Target;

/// Most bytes of an input.
pub const MAX_INPUT: usize = 4096;

/// Whether a target keeps its promises for this input; what is broken is said on standard error.
#[must_use]
pub fn holds(target: Target, input: &[u8]) -> bool {
    catch_unwind(AssertUnwindSafe(|| (target.run)(input))).is_ok()
}

/// Runs a target on `runs` inputs that are made from the kept ones; gives the first that breaks a
/// promise. The same seed and the same kept ones make the same inputs.
#[must_use]
pub fn search(target: Target, kept: &[Vec<u8>], seed: u64, runs: usize) -> Option<Vec<u8>> {
    let mut rng = Rng(seed);
    (0..runs).map(|_| rng.input(kept)).find(|input| !holds(target, input))
}

/// SplitMix64.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, count: usize) -> usize {
        usize::try_from(self.next() % (count.max(1) as u64)).unwrap_or_default()
    }

    fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[0]
    }

    /// One of the kept inputs, changed in a few places.
    fn input(&mut self, kept: &[Vec<u8>]) -> Vec<u8> {
        let mut input = self.one_of(kept);
        for _ in 0..=self.below(6) {
            self.change(&mut input, kept);
        }
        input.truncate(MAX_INPUT);
        input
    }

    fn one_of(&mut self, kept: &[Vec<u8>]) -> Vec<u8> {
        kept.get(self.below(kept.len())).cloned().unwrap_or_default()
    }

    fn change(&mut self, input: &mut Vec<u8>, kept: &[Vec<u8>]) {
        let at = self.below(input.len());
        match self.below(6) {
            0 => input.extend((0..self.below(32)).map(|_| self.byte())),
            1 => input.insert(at, self.byte()),
            2 => input.truncate(at),
            3 => input.splice(at.., self.one_of(kept)).for_each(drop),
            _ => match input.get_mut(at) {
                Some(byte) => *byte = self.byte(),
                None => input.push(self.byte()),
            },
        }
    }
}
