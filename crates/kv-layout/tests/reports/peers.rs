//! Descriptors: how many a request has, and what a peer takes before the first one.

use std::sync::Arc;

use allocation_counter::measure;
use kv_layout::{EngineShape, Kind, Layer, PageOrder, Planner};
use strided::{BlockCopy, MergeRuns};

use crate::kit::{Engine, model, prompt, read, table};

fn engine(layers: usize, order: PageOrder, blocks: u32, ids: &[u32]) -> Engine {
    let layer = |index| Layer::attention(format!("layers.{index}"), Kind::Full, 1, 8, 8);
    let model = model((0..layers).map(layer).collect());
    let layout = EngineShape::single(16, order).layouts(&model, blocks).unwrap().remove(0);
    Engine::one(layout, &[table(0, ids)])
}

/// 48 layers with keys and values apart, and 100 blocks of a prompt.
fn planned(from: &[u32], to: &[u32]) -> (Engine, Vec<BlockCopy>) {
    let [from, to] = [from, to].map(|ids| engine(48, PageOrder::Apart, 1 << 20, ids));
    let mut plan = read(&from, &to, 0, &[], prompt(1600));
    (from, plan.reads.remove(0))
}

/// Descriptors as the blocks give them, and those that are left when neighbours are merged.
fn counted(from: &[u32], to: &[u32]) -> (usize, usize) {
    let (engine, copies) = planned(from, to);
    let stride =
        |region: strided::RegionId| engine.layouts[0].regions[region.0 as usize].block_stride;
    let ranges = |copy: &BlockCopy| {
        copy.ranges(stride(copy.source().region()), stride(copy.target().region()))
    };
    let raw = copies.iter().map(|copy| ranges(copy).count()).sum();
    let merged = copies.iter().map(|copy| MergeRuns::merged(ranges(copy)).count()).sum();
    (raw, merged)
}

#[test]
fn r96_vllm_55434_blocks_that_follow_each_other_are_one_descriptor() {
    let (first, second): (Vec<u32>, Vec<u32>) = ((10..110).collect(), (500..600).collect());
    let apart = |from: u32| (from..).step_by(2).take(100).collect::<Vec<u32>>();
    // 48 layers, keys and values, 100 blocks.
    assert_eq!(counted(&first, &second), (9600, 96));
    assert_eq!(counted(&apart(10), &apart(500)), (9600, 9600));
    // Pairs of one side's run with the other's single blocks: a mover that gathers has fewer calls.
    assert_eq!(counted(&first, &apart(500)), (9600, 9600));
    assert_eq!(counted(&apart(10), &second), (9600, 9600));
}

#[test]
fn r96_vllm_55434_a_plan_has_a_copy_a_plane_and_one_list_of_blocks() {
    let apart: Vec<u32> = (10..).step_by(2).take(100).collect();
    let (_, copies) = planned(&apart, &apart);
    assert_eq!(copies.len(), 96);
    let lists = |ids: fn(&BlockCopy) -> &Arc<[u32]>| {
        copies.iter().all(|copy| Arc::ptr_eq(ids(copy), ids(&copies[0])))
    };
    assert!(lists(|copy| copy.source().ids()) && lists(|copy| copy.target().ids()));
}

/// Bytes that are in use at once while a peer with so many blocks in each of 64 regions is met.
fn met(blocks: u32) -> u64 {
    let (from, to) =
        (engine(64, PageOrder::Joint, blocks, &[]), engine(64, PageOrder::Joint, blocks, &[]));
    assert_eq!(from.layouts[0].regions.len(), 64);
    assert!(from.layouts[0].regions.iter().all(|region| region.block_count == blocks));
    measure(|| drop(Planner::new(&from.layouts(), &to.layouts(), 0).unwrap())).bytes_max
}

#[test]
fn r97_nixl_1978_a_peer_takes_as_much_with_a_million_blocks_as_with_ten() {
    let (few, many) = (met(10), met(1_000_000));
    assert_eq!(few, many);
    assert!((1..1 << 20).contains(&many), "{many} bytes, where ten million are too many");
}

/// SplitMix64, below a million.
fn ids(count: usize) -> Vec<u32> {
    let mut state = 7_u64;
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = state;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((word ^ (word >> 31)) % 1_000_000) as u32
    };
    let mut ids: Vec<u32> = Vec::new();
    while ids.len() < count {
        let id = next();
        if !ids.contains(&id) {
            ids.push(id);
        }
    }
    ids
}

#[test]
fn r97_nixl_1978_any_block_of_a_million_lies_where_a_list_would_say() {
    let drawn = ids(2000);
    let (from, to) = drawn.split_at(1000);
    let [from, to] = [from, to].map(|ids| engine(64, PageOrder::Joint, 1_000_000, ids));
    let plan = read(&from, &to, 0, &[], prompt(16_000));
    // Of one layer, 16 tokens of one head with 8 bytes of a key and 8 of a value.
    let page = 16 * (8 + 8);
    assert_eq!(plan.reads[0].len(), 64);
    for copy in &plan.reads[0] {
        let ranges: Vec<_> = copy.ranges(page, page).collect();
        let spelled = drawn[..1000].iter().zip(&drawn[1000..]);
        let spelled = spelled.map(|(&from, &to)| (u64::from(from) * page, u64::from(to) * page));
        assert!(ranges.iter().map(|range| (range.source, range.target)).eq(spelled));
        assert!(ranges.iter().all(|range| range.len == page));
    }
}
