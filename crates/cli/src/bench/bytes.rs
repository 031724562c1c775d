//! What blocks hold, so that each byte says where it belongs.

use std::sync::atomic::{AtomicU64, Ordering};

use super::workload::Move;

/// No source has this word.
const POISON: u64 = 0xeeee_eeee_eeee_eeee;

const WORD: usize = 8;

/// The word at `index` of a source pool: none is like its neighbours (the finaliser of
/// SplitMix64, doi:10.1145/2714064.2660195).
fn word(index: usize) -> u64 {
    let word = (index as u64).wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// Fills a source pool that movers read.
pub(super) fn fill(pool: &[AtomicU64]) {
    for (index, place) in pool.iter().enumerate() {
        place.store(word(index), Ordering::Relaxed);
    }
}

/// Takes every page of a target pool from the system, so that none is taken inside the clock.
pub(super) fn touch(pool: &[AtomicU64]) {
    for place in pool {
        place.store(POISON, Ordering::Relaxed);
    }
}

/// The same source pool as plain bytes.
pub(super) fn filled(bytes: usize) -> Vec<u8> {
    let mut pool = vec![0; bytes];
    let (words, _) = pool.as_chunks_mut::<WORD>();
    for (index, place) in words.iter_mut().enumerate() {
        *place = word(index).to_ne_bytes();
    }
    pool
}

/// A target pool of plain bytes.
pub(super) fn touched(bytes: usize) -> Vec<u8> {
    vec![POISON.to_ne_bytes()[0]; bytes]
}

/// Overwrites the targets of `moves`.
pub(super) fn poison(pool: &[AtomicU64], moves: &[Move], block: usize) {
    for place in moves.iter().flat_map(|at| words(pool, at.target, block)) {
        place.store(POISON, Ordering::Relaxed);
    }
}

/// Bytes of the targets of `moves` that are not those of their sources.
pub(super) fn wrong(pool: &[AtomicU64], moves: &[Move], block: usize) -> u64 {
    let of = |at: &Move| {
        let found = words(pool, at.target, block).iter().map(|place| place.load(Ordering::Relaxed));
        differing(at.source, block, found)
    };
    moves.iter().map(of).sum()
}

pub(super) fn poison_plain(pool: &mut [u8], moves: &[Move], block: usize) {
    for at in moves {
        if let Some(target) = pool.get_mut(at.target..at.target + block) {
            target.fill(POISON.to_ne_bytes()[0]);
        }
    }
}

pub(super) fn wrong_plain(pool: &[u8], moves: &[Move], block: usize) -> u64 {
    let of = |at: &Move| {
        let target = pool.get(at.target..at.target + block).unwrap_or_default();
        let (words, _) = target.as_chunks::<WORD>();
        differing(at.source, block, words.iter().map(|word| u64::from_ne_bytes(*word)))
    };
    moves.iter().map(of).sum()
}

fn words(pool: &[AtomicU64], byte: usize, block: usize) -> &[AtomicU64] {
    pool.get(byte / WORD..(byte + block) / WORD).unwrap_or_default()
}

/// Bytes of a block that are not as in the block of the source at `byte`; what is not there is
/// wrong.
fn differing(byte: usize, block: usize, found: impl ExactSizeIterator<Item = u64>) -> u64 {
    let missing = block.saturating_sub(found.len() * WORD) as u64;
    let differing = found.zip(byte / WORD..).map(|(found, index)| {
        let bits = found ^ word(index);
        if bits == 0 { 0 } else { bits.to_ne_bytes().iter().filter(|&&byte| byte != 0).count() }
    });
    missing + differing.sum::<usize>() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: usize = 64;

    /// Of two blocks: one byte in 256 is right by chance.
    const MOST: std::ops::RangeInclusive<u64> = 120..=128;

    fn moves() -> Vec<Move> {
        vec![Move { source: 0, target: 128 }, Move { source: 192, target: 0 }]
    }

    #[test]
    fn a_copy_is_right_and_each_other_byte_is_counted() {
        let source = filled(256);
        let mut target = touched(256);
        poison_plain(&mut target, &moves(), BLOCK);
        assert!(MOST.contains(&wrong_plain(&target, &moves(), BLOCK)));
        for at in moves() {
            let block = source[at.source..at.source + BLOCK].to_vec();
            target[at.target..at.target + BLOCK].copy_from_slice(&block);
        }
        assert_eq!(wrong_plain(&target, &moves(), BLOCK), 0);
        target[130] ^= 1;
        target[5] ^= 0x80;
        target[6] ^= 0xff;
        assert_eq!(wrong_plain(&target, &moves(), BLOCK), 3);
        assert_eq!(wrong_plain(&target[..150], &moves(), BLOCK), 2 + 64);
    }

    #[test]
    fn words_and_plain_bytes_hold_the_same() {
        let words: Vec<AtomicU64> = (0..32).map(|_| AtomicU64::new(0)).collect();
        fill(&words);
        let bytes: Vec<u8> =
            words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes()).collect();
        assert_eq!(bytes, filled(256));
        let here = [Move { source: 64, target: 64 }];
        assert_eq!(wrong(&words, &here, BLOCK), 0);
        assert!(MOST.contains(&wrong(&words, &moves(), BLOCK)));
        poison(&words, &here, BLOCK);
        assert!(wrong(&words, &here, BLOCK) > 56);
    }
}
