//! The planner prepared once: it plans as [`plan`] does, in plans that grow with the blocks by
//! their ids alone, and takes no layer for another.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::cast_possible_truncation)]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use kv_layout::{
    BlockTable, CacheLayout, DType, EngineShape, Holding, Kind, Layer, Model, PageOrder, Part,
    Plan, PlanError, Planner, Span, Target, Tile, plan,
};
use strided::{BlockCopy, Blocks};

struct Engine {
    layouts: Vec<CacheLayout>,
    tables: Vec<Vec<BlockTable>>,
}

impl Engine {
    /// An engine that keeps what a query at `span.resume_at` needs.
    fn new(model: &Model, shape: EngineShape, span: Span) -> Self {
        let layouts = shape.layouts(model, 1 << 24).unwrap();
        let mut tables = Vec::new();
        for rank in shape.ranks(model).unwrap() {
            let mut ids = (7..).step_by(3);
            let mut table = |kept: kv_layout::Kept| BlockTable {
                first_token: kept.first_token,
                ids: ids.by_ref().take(kept.blocks as usize).collect::<Vec<u32>>().into(),
            };
            tables.push(rank.kept(span.resume_at, span.valid).map(&mut table).collect());
        }
        Self { layouts, tables }
    }

    fn layouts(&self) -> Vec<&CacheLayout> {
        self.layouts.iter().collect()
    }

    fn tables(&self) -> Vec<&[BlockTable]> {
        self.tables.iter().map(Vec::as_slice).collect()
    }
}

fn plan_alone(from: &Engine, to: &Engine, rank: usize, span: Span) -> Result<Plan, PlanError> {
    let holding = |(layout, tables)| Holding { layout, tables };
    let sources: Vec<_> = from.layouts().into_iter().zip(from.tables()).map(holding).collect();
    let tables = &to.tables[rank];
    plan(&sources, Target { ranks: &to.layouts(), rank, tables, hits: &[] }, span)
}

fn prompt(tokens: u64) -> Span {
    Span { valid: tokens, resume_at: tokens - 1 }
}

fn published(name: &str) -> Model {
    let file = format!("{name}.json");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models").join(&file);
    Model::from_config(&std::fs::read_to_string(path).unwrap(), &file).unwrap()
}

fn shape(tensor: u32, block_size: u32, order: PageOrder) -> EngineShape {
    EngineShape { tensor, ..EngineShape::single(block_size, order) }
}

/// Pairs of engines: windows, states, and heads that are a dimension of the pattern.
fn pairs() -> [(Model, EngineShape, EngineShape); 5] {
    use PageOrder::{Apart, Joint, TokensOutside};
    [
        (published("gemma-3-4b-it"), shape(1, 64, Joint), shape(1, 64, Joint)),
        (published("gemma-3-4b-it"), shape(1, 16, Apart), shape(2, 64, Joint)),
        (published("Qwen3-Next-80B-A3B"), shape(1, 16, Joint), shape(1, 16, Joint)),
        (published("gpt-oss-120b"), shape(4, 16, TokensOutside), shape(8, 16, TokensOutside)),
        (published("Llama-3.1-8B"), shape(8, 16, Apart), shape(2, 16, TokensOutside)),
    ]
}

#[test]
fn one_planner_serves_all_requests() {
    for (model, from, to) in pairs() {
        let of = |tokens| {
            let span = prompt(tokens);
            (Engine::new(&model, from, span), Engine::new(&model, to, span), span)
        };
        let (source, target, _) = of(2);
        for rank in 0..target.layouts.len() {
            let planner = Planner::new(&source.layouts(), &target.layouts(), rank).unwrap();
            for tokens in [5000, 2, 641, 1, 5000] {
                let (source, target, span) = of(tokens);
                let planned = planner.plan(&source.tables(), &target.tables[rank], &[], span);
                assert_eq!(planned, plan_alone(&source, &target, rank, span), "{tokens}");
                assert!(tokens == 1 || planned.unwrap().bytes() > 0);
            }
        }
    }
}

#[test]
fn tables_of_other_ranks_than_the_planners_are_refused() {
    let (model, from, to) = pairs().into_iter().nth(3).unwrap();
    let (from, to) = (Engine::new(&model, from, prompt(9)), Engine::new(&model, to, prompt(9)));
    let planner = Planner::new(&from.layouts(), &to.layouts(), 5).unwrap();
    let refused = planner.plan(&from.tables()[1..], &to.tables[5], &[], prompt(9)).unwrap_err();
    assert_eq!(refused, PlanError::Sources { ranks: 4, given: 3 });
    let outside = Planner::new(&from.layouts(), &to.layouts(), 8).unwrap_err();
    assert_eq!(outside, PlanError::Rank { rank: 8, ranks: 8 });
}

/// The lists of ids of one side, each once.
fn lists<'a>(sides: impl Iterator<Item = &'a Blocks>) -> BTreeMap<*const u32, usize> {
    sides.map(|blocks| (blocks.ids().as_ptr(), blocks.ids().len())).collect()
}

#[test]
fn a_plan_grows_by_its_ids_alone_and_has_each_once() {
    for (model, from, to) in pairs() {
        let mut copies = Vec::new();
        for tokens in [8_000, 80_000, 800_000] {
            let span = prompt(tokens);
            let (source, target) = (Engine::new(&model, from, span), Engine::new(&model, to, span));
            let plan = plan_alone(&source, &target, 0, span).unwrap();
            copies.push(plan.copies().count());
            let ids = |tables: &[BlockTable]| -> usize { tables.iter().map(|t| t.ids.len()).sum() };
            for (copies, tables) in plan.reads.iter().zip(&source.tables) {
                let read = lists(copies.iter().map(BlockCopy::source));
                assert!(read.values().sum::<usize>() <= ids(tables));
                // Of a block of 64 tokens, each quarter that a block of 16 fills is a list.
                let written = lists(copies.iter().map(BlockCopy::target));
                let cuts = if from.block_size < to.block_size { 4 } else { 1 };
                assert!(written.values().sum::<usize>() <= cuts * ids(&target.tables[0]));
                assert!(written.len() <= cuts * target.tables[0].len());
            }
        }
        assert!(copies.iter().all(|count| *count == copies[0]), "{copies:?}");
        let layout = &Engine::new(&model, to, prompt(9)).layouts[0];
        let parts: usize = layout.layers.iter().map(|layer| layer.parts.len()).sum();
        assert!(copies[0] <= parts * 4, "{copies:?} of {parts} parts");
    }
}

#[test]
fn a_million_ids_are_those_of_the_tables_and_no_copy_of_them() {
    let (model, from, to) = pairs().into_iter().next().unwrap();
    let span = prompt(64_000_000);
    let (source, target) = (Engine::new(&model, from, span), Engine::new(&model, to, span));
    let plan = plan_alone(&source, &target, 0, span).unwrap();
    let longest = plan.copies().max_by_key(|copy| copy.source().ids().len()).unwrap();
    assert_eq!(longest.source().ids().len(), 1_000_000);
    let of = |tables: &[BlockTable], ids| tables.iter().any(|table| Arc::ptr_eq(&table.ids, ids));
    assert!(of(&source.tables[0], longest.source().ids()));
    assert!(of(&target.tables[0], longest.target().ids()));
}

/// What a plan moves, byte ranges in order of the target's.
fn ranges(plan: &Plan, from: &Engine, to: &Engine) -> Vec<(u32, u64, u32, u64, u64)> {
    let stride = |engine: &Engine, blocks: &Blocks| {
        engine.layouts[0].regions[blocks.region().0 as usize].block_stride
    };
    let mut bytes = Vec::new();
    for copy in plan.copies() {
        let (s, t) = (copy.source(), copy.target());
        for range in copy.ranges(stride(from, s), stride(to, t)) {
            // In pieces that no plan joins differently.
            let pieces = (0..range.len).step_by(16);
            bytes.extend(pieces.map(|at| {
                let len = (range.len - at).min(16);
                (t.region().0, range.target + at, s.region().0, range.source + at, len)
            }));
        }
    }
    bytes.sort_unstable();
    bytes
}

#[test]
fn a_layer_that_differs_in_any_number_is_not_taken_for_the_one_before() {
    type Change = fn(&mut [Part]);
    let changes: [Change; 12] = [
        |_| (),
        |parts| parts[1].offset += 16,
        |parts| parts[0].offset += 16,
        |parts| (parts[0].region, parts[1].region) = (parts[1].region, parts[0].region),
        |parts| (parts[0].token_stride, parts[0].unit_stride) = (32, 128),
        |parts| parts[1].unit_stride *= 2,
        |parts| parts.swap(0, 1),
        |parts| (parts[0].role, parts[1].role) = (parts[1].role, parts[0].role),
        |parts| parts[0].units = 0..1,
        |parts| parts[1].units = 1..3,
        |parts| parts[0].tile = Some(Tile { tokens: 2, stride: 128 }),
        |parts| parts.iter_mut().for_each(|part| part.offset += 32),
    ];
    let layer = |i: u32| Layer::attention(format!("layers.{i}"), Kind::Full, 2, 16, 16);
    let layers = (0..5).map(layer).collect();
    let model = Model { model_type: "test".to_owned(), dtype: DType::Bf16, layers };
    let engine = |change: Change| {
        let shape = EngineShape::single(4, PageOrder::Apart);
        let mut engine = Engine::new(&model, shape, prompt(11));
        engine.layouts[0].regions.iter_mut().for_each(|region| region.block_stride = 512);
        change(&mut engine.layouts[0].layers[2].parts);
        engine
    };
    let mut refused = 0;
    for (a, b) in (0..changes.len()).flat_map(|a| (0..changes.len()).map(move |b| (a, b))) {
        let (from, to) = (engine(changes[a]), engine(changes[b]));
        let whole = plan_alone(&from, &to, 0, prompt(11));
        let each = (0..5).map(|index| {
            let mut to = engine(changes[b]);
            let layers = &mut to.layouts[0].layers;
            *layers = vec![layers[index].clone()];
            Ok(ranges(&plan_alone(&from, &to, 0, prompt(11))?, &from, &to))
        });
        let each: Result<Vec<_>, PlanError> = each.collect();
        let mut each = each.map(|each| each.concat());
        each.as_mut().map(|each| each.sort_unstable()).unwrap_or_default();
        let whole = whole.map(|plan| ranges(&plan, &from, &to));
        assert_eq!(whole, each, "changes {a} and {b}");
        refused += usize::from(whole.is_err());
    }
    // Units that the source does not have: its keys of 0..1, its values of 1..3, or as many wanted.
    assert_eq!(refused, 11 + 11 + 10);
}
