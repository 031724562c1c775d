//! Layouts that contradict themselves or each other: refused, never half planned.

use super::kit::{Engine, group, keys, prompt, region, shared, single, table, try_read};
use kv_layout::{GroupLayout, Kind, PlacedLayer};

fn engine(layer: PlacedLayer, group: GroupLayout) -> Engine {
    Engine::one(single(region(64, 100), group, vec![layer]), &[table(0, &[1, 2, 3])])
}
fn a() -> PlacedLayer {
    keys("a", Kind::Full, 0..1, 4, 16)
}

#[test]
fn a_missing_share_of_the_sequence_is_refused() {
    // Rank 0 of 2 alone: nobody has block 1.
    let (from, to) = (engine(a(), shared(16, 2, 0)), engine(a(), group(16)));
    let refused = try_read(&from, &to, 0, &[], prompt(48)).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "a: the source's sequence is shared by 2, and rank 1 is missing"
    );
}
#[test]
fn a_rank_beyond_the_ways_is_refused() {
    let (ok, bad) = (engine(a(), group(16)), engine(a(), shared(16, 1, 1)));
    assert!(try_read(&bad, &ok, 0, &[], prompt(48)).is_err());
    assert!(try_read(&ok, &bad, 0, &[], prompt(48)).is_err());
}
#[test]
fn units_that_end_before_they_begin_are_refused() {
    let layer = || keys("a", Kind::Full, 0..8, 1, 1);
    let (from, mut to) = (engine(layer(), group(1)), engine(layer(), group(1)));
    to.layouts[0].layers[0].parts[0].units = std::ops::Range { start: 8, end: 4 };
    assert!(try_read(&from, &to, 0, &[], prompt(3)).is_err());
}
#[test]
fn two_layers_of_one_name_are_refused() {
    let layout = single(region(64, 10), group(16), vec![a(), a()]);
    let engine = Engine::one(layout, &[table(0, &[1])]);
    assert!(try_read(&engine, &engine, 0, &[], prompt(16)).is_err());
}
#[test]
fn a_layer_that_shares_anothers_bytes_is_not_moved_twice() {
    let layout = single(region(64, 10), group(16), vec![a(), keys("b", Kind::Full, 0..1, 4, 16)]);
    let engine = Engine::one(layout, &[table(0, &[1])]);
    let plan = try_read(&engine, &engine, 0, &[], prompt(16)).unwrap();
    assert_eq!(plan.bytes(), 4 * 16);
    // At a source where the two lie apart, they cannot both be meant.
    let mut apart =
        single(region(128, 10), group(16), vec![a(), keys("b", Kind::Full, 0..1, 4, 16)]);
    apart.layers[1].parts[0].offset = 64;
    let from = Engine::one(apart, &[table(0, &[1])]);
    let refused = try_read(&from, &engine, 0, &[], prompt(16)).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "b: it shares the bytes of a at the target and not at the source"
    );
}
