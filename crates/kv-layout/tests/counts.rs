//! How many ranges a hand-off has, for published models.
//!
//! The right values come from the attention masks and vLLM's grouping rules, computed by hand:
//! layers × blocks that hold a token which the query at N − 1, or a later one, can see.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::cast_possible_truncation)]

use std::path::Path;

use kv_layout::baseline::{all_full, flat_hybrid};
use kv_layout::{
    BlockTable, CacheLayout, Grouping, Holding, Model, PageOrder, Span, Target, kept, plan,
};
use strided::{BlockCopy, MergeRuns};

fn model(name: &str) -> Model {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models").join(name);
    let text = std::fs::read_to_string(&path).unwrap();
    Model::from_config(&text, name).unwrap()
}

/// Blocks of each group as both sides keep them, ids contiguous from 1 on.
fn tables(grouping: &Grouping, tokens: u64) -> Vec<BlockTable> {
    let mut next = 1;
    let table = |group: &kv_layout::Group| {
        let kept = kept(group.kind, group.block_size, tokens - 1, tokens);
        let ids: Vec<u32> = (next..).take(kept.blocks as usize).collect();
        next += ids.len() as u32;
        BlockTable { first_token: kept.first_token, ids: ids.into() }
    };
    grouping.groups.iter().map(table).collect()
}

struct Planned {
    layout: CacheLayout,
    copies: Vec<BlockCopy>,
}

impl Planned {
    fn new(name: &str, block_size: u32, tokens: u64, order: PageOrder) -> Self {
        let model = model(name);
        let grouping = Grouping::new(&model, block_size).unwrap();
        let layout = CacheLayout::new(&model, &grouping, order, 1 << 20);
        let tables = tables(&grouping, tokens);
        let source = Holding { layout: &layout, tables: &tables };
        let target = Target { ranks: &[&layout], rank: 0, tables: &tables, hits: &[] };
        let span = Span { valid: tokens, resume_at: tokens - 1 };
        let copies = plan(&[source], target, span).unwrap().reads.remove(0);
        Self { layout, copies }
    }

    fn ranges(&self, copy: &BlockCopy) -> strided::RangePairs {
        let stride = |b: &strided::Blocks| self.layout.regions[b.region().0 as usize].block_stride;
        copy.ranges(stride(copy.source()), stride(copy.target()))
    }

    fn count(&self) -> usize {
        self.copies.iter().map(|copy| self.ranges(copy).count()).sum()
    }

    fn merged(&self) -> usize {
        self.copies.iter().map(|copy| MergeRuns::merged(self.ranges(copy)).count()).sum()
    }
}

/// (model, block size, N, all as full attention, flat hybrid, exact)
const COUNTS: [(&str, u32, u64, u64, u64, usize); 15] = [
    ("gemma-3-4b-it.json", 64, 4000, 2142, 825, 808),
    ("gemma-3-4b-it.json", 64, 4031, 2142, 795, 808),
    ("gemma-3-4b-it.json", 64, 4033, 2176, 830, 779),
    ("gemma-3-27b-it.json", 64, 4000, 3906, 1650, 1514),
    ("gpt-oss-20b.json", 64, 4000, 1512, 792, 792),
    ("gpt-oss-20b.json", 16, 4000, 6000, 3096, 3096),
    ("Llama-4-Scout-17B-16E.json", 64, 20_000, 15_024, 5808, 5808),
    ("Llama-4-Scout-17B-16E.json", 16, 16_385, 49_200, 12_336, 12_288),
    ("Llama-3.1-8B.json", 16, 4000, 8000, 8000, 8000),
    ("Llama-3.1-8B.json", 64, 4000, 2016, 2016, 2016),
    ("DeepSeek-V3.json", 64, 4000, 3843, 3843, 3843),
    ("Qwen2.5-7B.json", 16, 1, 28, 28, 0),
    // Windows of 4096 and 2047 over 64-token blocks; resume at 9999: blocks 92..=156 and
    // 124..=156. vLLM keeps one more of the latter than its query sees.
    ("Mistral-7B-v0.1.json", 64, 10_000, 32 * 157, 32 * 65, 32 * 65),
    ("Phi-3-mini-4k-instruct.json", 64, 10_000, 32 * 157, 32 * 33, 32 * 33),
    ("gpt-oss-120b.json", 16, 4000, 36 * 250, 18 * 258, 18 * 258),
];

#[test]
fn ranges_with_keys_and_values_joint() {
    for (name, block_size, tokens, full, flat, exact) in COUNTS {
        let case = format!("{name}, block {block_size}, N = {tokens}");
        let model = model(name);
        let grouping = Grouping::new(&model, block_size).unwrap();
        assert_eq!(all_full(&model, &grouping, tokens).ranges_joint, full, "full, {case}");
        assert_eq!(flat_hybrid(&model, &grouping, tokens).ranges_joint, flat, "flat, {case}");
        let planned = Planned::new(name, block_size, tokens, PageOrder::Joint);
        assert_eq!(planned.count(), exact, "exact, {case}");
    }
}

#[test]
fn ranges_double_when_keys_and_values_lie_apart_except_for_mla() {
    for (name, block_size, tokens, full, flat, exact) in COUNTS {
        let case = format!("{name}, block {block_size}, N = {tokens}");
        let times = if name.starts_with("DeepSeek") { 1 } else { 2 };
        let model = model(name);
        let grouping = Grouping::new(&model, block_size).unwrap();
        let full_apart = all_full(&model, &grouping, tokens).ranges_apart;
        let flat_apart = flat_hybrid(&model, &grouping, tokens).ranges_apart;
        assert_eq!((full_apart, flat_apart), (full * times, flat * times), "{case}");
        let planned = Planned::new(name, block_size, tokens, PageOrder::Apart);
        assert_eq!(planned.count(), exact * times as usize, "exact, {case}");
    }
}

#[test]
fn contiguous_ids_merge_to_one_range_a_layer() {
    let planned = Planned::new("gemma-3-4b-it.json", 64, 4000, PageOrder::Joint);
    assert_eq!(planned.merged(), 34);
    let planned = Planned::new("gemma-3-4b-it.json", 64, 4000, PageOrder::Apart);
    assert_eq!(planned.merged(), 68);
}

/// Blocks of the sequence that move in the layers of one kind.
fn moved(name: &str, block_size: u32, tokens: u64, windowed: bool) -> Vec<u64> {
    let planned = Planned::new(name, block_size, tokens, PageOrder::Joint);
    let grouping = Grouping::new(&model(name), block_size).unwrap();
    let tables = tables(&grouping, tokens);
    let group = grouping
        .groups
        .iter()
        .position(|group| windowed != (group.kind == kv_layout::Kind::Full))
        .unwrap();
    let first_layer = grouping.groups[group].layers[0];
    let name = &model(name).layers[first_layer].name;
    let table = &tables[group];
    let at = planned.layout.layers.iter().position(|layer| &layer.name == name).unwrap();
    let position = |id: &u32| {
        let index = table.ids.iter().position(|of| of == id).unwrap() as u64;
        table.first_token / u64::from(block_size) + index
    };
    match planned.copies.get(at) {
        Some(copy) => copy.source().ids().iter().map(position).collect(),
        None => Vec::new(),
    }
}

#[test]
fn a_window_that_ends_in_a_block_keeps_that_block() {
    let live = |tokens| moved("gemma-3-4b-it.json", 64, tokens, true);
    assert_eq!(live(4031), (46..=62).collect::<Vec<_>>());
    assert_eq!(live(4033), (47..=62).collect::<Vec<_>>());
    assert_eq!(moved("gemma-3-4b-it.json", 64, 4033, false), (0..=62).collect::<Vec<_>>());
}

#[test]
fn a_chunk_moves_until_the_next_one_begins() {
    let model = "Llama-4-Scout-17B-16E.json";
    assert_eq!(moved(model, 16, 16_384, true), (512..=1023).collect::<Vec<_>>());
    // One token more and every chunked layer moves nothing: its first copies are full layers'.
    let planned = Planned::new(model, 16, 16_385, PageOrder::Joint);
    assert_eq!(planned.copies.len(), 12);
    assert!(planned.copies.iter().all(|copy| copy.source().ids().len() == 1024));
}

#[test]
fn an_exact_plan_moves_the_bytes_of_its_pages() {
    let bytes = |name, block_size, tokens| {
        let planned = Planned::new(name, block_size, tokens, PageOrder::Joint);
        planned.copies.iter().map(BlockCopy::bytes).sum::<u64>()
    };
    assert_eq!(bytes("gemma-3-4b-it.json", 64, 4000), 808 * (256 << 10));
    assert_eq!(bytes("gemma-3-27b-it.json", 64, 4000), 1514 * (512 << 10));
    assert_eq!(bytes("DeepSeek-V3.json", 64, 4000), 3843 * 73_728);
}
