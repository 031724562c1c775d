//! What the inspection finds, on copies made word by word. The planted mistakes are in
//! `mutants_tcp.rs`, between a planner and a real mover.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::cast_possible_truncation)]

use std::sync::atomic::Ordering;

use kv_layout::{
    BlockTable, DType, Holding, Kind, Layer, Model, PageOrder, Plan, Span, Target, plan,
};
use sim::{Engine, Fault};
use strided::{BlockCopy, Blocks};

const BLOCK: u32 = 8;
const TOKENS: u64 = 53;
const REQUEST: u64 = 7;

/// Full and windowed layers in turn, one padding slot.
fn model() -> Model {
    let layer = |i: usize| {
        let kind = if i % 3 == 2 { Kind::Full } else { Kind::SlidingWindow { window: 20 } };
        Layer::attention(format!("layers.{i}"), kind, 3, 16, 16)
    };
    Model { model_type: "test".into(), dtype: DType::Bf16, layers: (0..7).map(layer).collect() }
}

struct Pair {
    prefill: Engine,
    decode: Engine,
    from: Vec<BlockTable>,
    to: Vec<BlockTable>,
    plan: Plan,
}

impl Pair {
    fn new(order: PageOrder) -> Self {
        let engine = |seed| Engine::new(&model(), BLOCK, order, 256 << 10, seed).unwrap();
        let (prefill, decode) = (engine(1), engine(2));
        let from = prefill.allocate(TOKENS, TOKENS - 1).unwrap();
        let to = decode.allocate(TOKENS, TOKENS - 1).unwrap();
        decode.inspect_unused(&to).unwrap();
        prefill.prefill(REQUEST, TOKENS, &from);
        let plan = plan(
            &[Holding { layout: prefill.layout(), tables: &from }],
            Target { ranks: &[decode.layout()], rank: 0, tables: &to, hits: &[] },
            Span { valid: TOKENS, resume_at: TOKENS - 1 },
        )
        .unwrap();
        Self { prefill, decode, from, to, plan }
    }

    /// Moves word by word, by nothing but the ranges.
    fn execute(&self, copies: &[BlockCopy]) {
        for copy in copies {
            let bound =
                |engine: &Engine, blocks: &Blocks| engine.regions()[blocks.region().0 as usize];
            let source = bound(&self.prefill, copy.source());
            let target = bound(&self.decode, copy.target());
            for pair in copy.ranges(source.region.block_stride, target.region.block_stride) {
                for byte in (0..pair.len).step_by(8) {
                    let from = (source.offset + pair.source + byte) / 8;
                    let to = (target.offset + pair.target + byte) / 8;
                    let word = self.prefill.memory().words()[from as usize].load(Ordering::Relaxed);
                    self.decode.memory().words()[to as usize].store(word, Ordering::Relaxed);
                }
            }
        }
    }

    /// The request's blocks first, then, with those painted over, the whole pool.
    fn inspect(self) -> Result<(), Fault> {
        self.decode.inspect(REQUEST, TOKENS - 1, &self.to)?;
        self.decode.retire(&self.to);
        self.decode.inspect_pool()
    }
}

#[test]
fn a_right_hand_off_passes() {
    for order in [PageOrder::Joint, PageOrder::Apart] {
        let pair = Pair::new(order);
        pair.execute(&pair.plan.reads[0]);
        assert_eq!(pair.inspect(), Ok(()));
    }
}

#[test]
fn nothing_moved_is_missing() {
    let pair = Pair::new(PageOrder::Joint);
    assert!(matches!(pair.inspect(), Err(Fault::Missing { byte: 0, .. })));
}

#[test]
fn another_requests_bytes_are_wrong() {
    let pair = Pair::new(PageOrder::Joint);
    pair.prefill.prefill(REQUEST + 1, TOKENS, &pair.from);
    pair.execute(&pair.plan.reads[0]);
    assert!(matches!(pair.inspect(), Err(Fault::Wrong { .. })));
}

#[test]
fn a_page_that_nobody_reads_must_stay_untouched() {
    let pair = Pair::new(PageOrder::Joint);
    pair.execute(&pair.plan.reads[0]);
    // The padding slot of the smallest group: no layer of that group lies there.
    let layout = pair.decode.layout();
    let (group, region) = (0..layout.groups.len() as u32)
        .flat_map(|group| (0..layout.regions.len() as u32).map(move |region| (group, region)))
        .find(|&(group, region)| {
            !layout.layers.iter().any(|l| l.group == group && l.parts[0].region == region)
        })
        .unwrap();
    let bound = pair.decode.regions()[region as usize];
    let id = pair.to[group as usize].ids[0];
    let at = bound.offset + u64::from(id) * bound.region.block_stride;
    pair.decode.memory().words()[at as usize / 8].store(0, Ordering::Relaxed);
    assert_eq!(pair.inspect(), Err(Fault::Stray { at, region, block: id }));
}

#[test]
fn a_token_that_is_read_and_has_no_block_is_missed() {
    let pair = Pair::new(PageOrder::Joint);
    pair.execute(&pair.plan.reads[0]);
    let inspect = |tables: &[BlockTable]| pair.decode.inspect(REQUEST, TOKENS - 1, tables);
    assert_eq!(inspect(&pair.to), Ok(()));
    // The query at 52 sees keys from 33 on: without block 4, token 33 has none.
    let mut late = pair.to.clone();
    late[0] = BlockTable { first_token: 40, ids: late[0].ids[1..].into() };
    assert_eq!(inspect(&late), Err(Fault::NoBlock { layer: "layers.0".into(), token: 33 }));
    assert_eq!(inspect(&pair.to[1..]), Err(Fault::NoTable { tables: pair.to.len() - 1 }));
}

#[test]
fn moving_more_than_needed_shows_in_the_counts() {
    let pair = Pair::new(PageOrder::Joint);
    let bytes = |copies: &[BlockCopy]| copies.iter().map(BlockCopy::bytes).sum::<u64>();
    let inspect =
        |copies: &[BlockCopy]| pair.decode.inspect_moved(bytes(copies), TOKENS - 1, &pair.to);
    // 7 layers: 2 full with 7 blocks, 5 windowed with blocks 4, 5 and 6.
    let needed = (2 * 7 + 5 * 3) * 3 * 8 * 32;
    let mut copies = pair.plan.reads[0].clone();
    assert_eq!(bytes(&copies), needed);
    assert_eq!(inspect(&copies), Ok(()));
    // A windowed layer once more: the target is none the wiser.
    copies.push(copies[0].clone());
    let moved = needed + 3 * 3 * 8 * 32;
    assert_eq!(inspect(&copies), Err(Fault::Waste { moved, needed }));
    assert_eq!(inspect(&copies[1..1]), Err(Fault::Waste { moved: 0, needed }));
}
