//! Where a decode engine goes on after a failed load, against a search by hand.
#![allow(clippy::single_range_in_vec_init, reason = "lists of ranges, some of one")]

use std::ops::Range;

use kv_layout::{Kind, Loaded, Recurrence, restart_at};
use proptest::prelude::*;

const STATE: Kind = Kind::Recurrent { recurrence: Recurrence::Mamba2 };

fn loaded(kind: Kind, hit: u64, failed: &[Range<u64>]) -> Loaded {
    Loaded { kind, hit, failed: failed.to_vec() }
}

#[test]
fn nothing_failed() {
    let window = Kind::SlidingWindow { window: 64 };
    let groups = [Kind::Full, window, STATE, Kind::Mla].map(|kind| loaded(kind, 0, &[]));
    assert_eq!(restart_at(&groups, 999, 1), 999);
    assert_eq!(restart_at(&[], 999, 16), 992, "an engine of nothing still starts at its steps");
}

#[test]
fn a_full_group_goes_back_to_the_failed_block() {
    let groups = [loaded(Kind::Full, 0, &[512..528, 640..656]), loaded(Kind::Mla, 0, &[])];
    assert_eq!(restart_at(&groups, 999, 16), 512);
}

/// Only the window before 999 was loaded: whatever is missing of it, nothing before it is there.
#[test]
fn a_window_without_a_hit_goes_back_to_the_start() {
    let window = Kind::SlidingWindow { window: 64 };
    assert_eq!(restart_at(&[loaded(window, 0, &[960..976])], 999, 16), 0);
}

/// The window of the hit is cached: the engine goes on from there, and the full group, which has
/// more, with it.
#[test]
fn a_window_goes_back_to_its_hit() {
    let window = Kind::SlidingWindow { window: 64 };
    let groups = [loaded(window, 512, &[960..976]), loaded(Kind::Full, 512, &[])];
    assert_eq!(restart_at(&groups, 999, 16), 512);
}

/// A chunk's first query sees nothing before it, though nothing before it is there.
#[test]
fn a_chunked_group_goes_back_to_the_failed_block_of_its_chunk() {
    let chunks = Kind::ChunkedLocal { chunk: 256 };
    let groups = [loaded(chunks, 0, &[800..816]), loaded(Kind::Full, 0, &[])];
    assert_eq!(restart_at(&groups, 999, 16), 800);
    assert_eq!(restart_at(&[loaded(chunks, 0, &[768..784])], 999, 16), 768);
    let other_failed = [loaded(chunks, 0, &[]), loaded(Kind::Full, 0, &[700..701])];
    assert_eq!(restart_at(&other_failed, 999, 1), 512);
}

/// One group's failure takes every other with it to a place where all can go on: the state has
/// nothing between the hit and the end.
#[test]
fn a_state_is_there_or_at_the_hit_or_not_at_all() {
    let failed_keys = [loaded(Kind::Full, 256, &[900..912]), loaded(STATE, 256, &[])];
    assert_eq!(restart_at(&failed_keys, 999, 1), 256);
    let failed_state = [loaded(Kind::Full, 0, &[]), loaded(STATE, 0, &[999..1000])];
    assert_eq!(restart_at(&failed_state, 999, 1), 0);
}

/// Report 81: blocks of 16 and of 48, the eighth block of 16 failed. The engine starts in steps
/// of 48, and a state goes on where it was kept, or from the start.
#[test]
fn r81_partial_recovery_on_hybrids() {
    let attention = [loaded(Kind::Full, 0, &[112..128]), loaded(Kind::Full, 0, &[])];
    assert_eq!(restart_at(&attention, 999, 48), 96);
    let with_state = |hit| [attention.to_vec(), vec![loaded(STATE, hit, &[])]].concat();
    assert_eq!(restart_at(&with_state(96), 999, 48), 96);
    assert_eq!(restart_at(&with_state(48), 999, 48), 48);
    assert_eq!(restart_at(&with_state(0), 999, 48), 0);
}

#[test]
fn numbers_from_outside() {
    let far = u64::MAX;
    let groups = [
        loaded(Kind::SlidingWindow { window: 0 }, far, &[far..far]),
        loaded(Kind::ChunkedLocal { chunk: 0 }, far, &[0..far]),
        loaded(Kind::SlidingWindow { window: 1 << 20 }, 0, &[1..far]),
        loaded(STATE, far, &[]),
    ];
    assert_eq!(restart_at(&groups, far, 0), 0);
}

/// Whether a query at `query` sees the key at `key`, by the definition of the mask.
fn sees(kind: Kind, query: u64, key: u64) -> bool {
    match kind {
        Kind::SlidingWindow { window } => query - key < u64::from(window),
        Kind::ChunkedLocal { chunk } => query / u64::from(chunk) == key / u64::from(chunk),
        _ => true,
    }
}

/// Whether every key that any query from `at` on sees is there.
fn works(group: &Loaded, at: u64, resume_at: u64) -> bool {
    let bad = |key| group.failed.iter().any(|run| run.contains(&key));
    if group.kind == STATE {
        let whole = !group.failed.iter().any(|run| run.start < run.end);
        return at == 0 || at == group.hit || (at == resume_at && whole);
    }
    let seen_from = |first: u64, key: u64| {
        (first..first + 40).any(|query| key < first && sees(group.kind, query, key))
    };
    (0..at).filter(|&key| seen_from(at, key)).all(|key| {
        let cached = key < group.hit && seen_from(group.hit, key);
        let fetched = key >= group.hit && seen_from(resume_at, key) && !bad(key);
        cached || fetched
    })
}

fn kinds() -> impl Strategy<Value = Kind> {
    prop_oneof![
        Just(Kind::Full),
        Just(STATE),
        (1..9_u32).prop_map(|window| Kind::SlidingWindow { window }),
        (1..9_u32).prop_map(|chunk| Kind::ChunkedLocal { chunk }),
    ]
}

fn groups(resume_at: u64) -> impl Strategy<Value = Vec<Loaded>> {
    let run = (0..=resume_at, 0..4_u64).prop_map(|(start, len)| start..start + len);
    let failed = prop::collection::vec(run, 0..3);
    let group = (kinds(), 0..=resume_at, failed).prop_map(|(kind, hit, failed)| Loaded {
        kind,
        hit,
        failed,
    });
    prop::collection::vec(group, 0..4)
}

fn cases() -> impl Strategy<Value = (Vec<Loaded>, u64, u64)> {
    (0..24_u64).prop_flat_map(|resume_at| (groups(resume_at), Just(resume_at), 1..5_u64))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_last_position_that_works((groups, resume_at, align) in cases()) {
        let all = |at: &u64| groups.iter().all(|group| works(group, *at, resume_at));
        let right = (0..=resume_at).rev().filter(|at| at.is_multiple_of(align)).find(all);
        prop_assert_eq!(Some(restart_at(&groups, resume_at, align)), right);
    }
}
