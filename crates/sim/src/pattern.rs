//! Bytes that know where they belong.

use std::sync::atomic::{AtomicU64, Ordering};

/// Odd, with bits all over: consecutive words share nothing.
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// Mixes the bits of `x` (the finaliser of SplitMix64, doi:10.1145/2714064.2660195).
fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// The word that the bytes of one request, layer, token and part start with; word `i` of them,
/// over all units (heads, channels) of the model, is this plus `i` steps, so that no two places
/// hold the same bytes.
#[must_use]
pub fn seed(request: u64, layer: usize, token: u64, part: usize) -> u64 {
    [layer as u64, token, part as u64]
        .into_iter()
        .fold(mix(request.wrapping_add(STEP)), |state, part| mix(state ^ part.wrapping_add(STEP)))
}

/// What a byte holds that no hand-off may touch: told from its place in the memory, in words.
#[must_use]
pub fn canary(word: usize) -> u64 {
    0x6B76_6665_7272_7921_u64.wrapping_add((word as u64).wrapping_mul(STEP))
}

/// Writes words `from ..` of the series that `seed` starts.
pub fn write(words: &[AtomicU64], seed: u64, from: u64) {
    let mut value = seed.wrapping_add(from.wrapping_mul(STEP));
    for word in words {
        word.store(value, Ordering::Relaxed);
        value = value.wrapping_add(STEP);
    }
}

/// The first word that is not as [`write()`] left it.
#[must_use]
pub fn mismatch(words: &[AtomicU64], seed: u64, from: u64) -> Option<usize> {
    let start = seed.wrapping_add(from.wrapping_mul(STEP));
    let differing = |words: &[AtomicU64], mut value: u64| {
        let mut bits = 0;
        for word in words {
            bits |= word.load(Ordering::Relaxed) ^ value;
            value = value.wrapping_add(STEP);
        }
        bits
    };
    if differing(words, start) == 0 {
        return None;
    }
    let mut value = start;
    words.iter().position(|word| {
        let differs = word.load(Ordering::Relaxed) != value;
        value = value.wrapping_add(STEP);
        differs
    })
}

/// Writes the canary over the words that start at index `first` of the memory.
pub fn write_canary(words: &[AtomicU64], first: usize) {
    write(words, canary(first), 0);
}

/// The first word that is not its canary.
#[must_use]
pub fn canary_mismatch(words: &[AtomicU64], first: usize) -> Option<usize> {
    mismatch(words, canary(first), 0)
}
