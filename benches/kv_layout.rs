//! What planning costs: `cargo bench -p benches --bench kv_layout`.
//!
//! * **plan**: one request of three models, from random block ids on each side; an element is an
//!   id in the tables of the rank that reads. *alone* is [`plan`], all from the layouts on;
//!   *prepare* is [`Planner::new`], once a peer; *request* is [`Planner::plan`], once a request.
//! * **blocks**: one request of 1,000 to 1,000,000 blocks: the time grows with the blocks, and
//!   that little.
//! * **lower**: a plan as byte ranges, which allocates nothing, and contiguous ids as few ranges.
//! * **describe**: what an engine tells a peer about 1,000,000 blocks × 64 regions.

#![allow(clippy::print_stdout, reason = "a bench is there to print")]

use std::error::Error;
use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput};
use kv_layout::{
    BlockTable, CacheLayout, DType, EngineShape, Grouping, Holding, Kind, Layer, Model, PageOrder,
    Plan, PlanError, Planner, Span, Target, plan,
};
use strided::MergeRuns;

const GEMMA: &str = include_str!("../models/gemma-3-4b-it.json");
const QWEN: &str = include_str!("../models/Qwen3-Next-80B-A3B.json");
const GPT_OSS: &str = include_str!("../models/gpt-oss-120b.json");
const POOL: u32 = 1 << 21;
const LONG: u64 = 128 << 10;

fn main() -> Result<(), Box<dyn Error>> {
    let mut criterion = Criterion::default().configure_from_args();
    planning(&mut criterion)?;
    growing(&mut criterion)?;
    lowering(&mut criterion)?;
    describing(&mut criterion)?;
    criterion.final_summary();
    Ok(())
}

/// One rank's part in a hand-over.
struct Case {
    from: Engine,
    to: Engine,
    rank: usize,
    span: Span,
}

struct Engine {
    layouts: Vec<CacheLayout>,
    tables: Vec<Vec<BlockTable>>,
}

impl Engine {
    /// An engine that keeps of a prompt what a query at `span.resume_at` needs, in blocks from
    /// all over the pool, no two of them neighbours: multiples of an odd number.
    fn new(
        model: &Model,
        shape: EngineShape,
        span: Span,
        odd: u32,
    ) -> Result<Self, Box<dyn Error>> {
        let mut tables = Vec::new();
        for rank in shape.ranks(model)? {
            let mut ids = (1..POOL).map(|i| i.wrapping_mul(odd) % POOL);
            let table = |kept: kv_layout::Kept| -> Result<BlockTable, Box<dyn Error>> {
                let ids: Vec<u32> = ids.by_ref().take(usize::try_from(kept.blocks)?).collect();
                Ok(BlockTable { first_token: kept.first_token, ids: ids.into() })
            };
            let kept = rank.kept(span.resume_at, span.valid);
            tables.push(kept.map(table).collect::<Result<_, _>>()?);
        }
        Ok(Self { layouts: shape.layouts(model, POOL)?, tables })
    }

    fn layouts(&self) -> Vec<&CacheLayout> {
        self.layouts.iter().collect()
    }
}

impl Case {
    /// A prompt whose last token the target computes again.
    fn new(
        model: &Model,
        from: EngineShape,
        to: EngineShape,
        tokens: u64,
    ) -> Result<Self, Box<dyn Error>> {
        let span = Span { valid: tokens, resume_at: tokens - 1 };
        let rank = to.tensor as usize / 2;
        let from = Engine::new(model, from, span, 1709)?;
        Ok(Self { from, to: Engine::new(model, to, span, 2377)?, rank, span })
    }

    /// Block ids in the tables of the rank that reads.
    fn ids(&self) -> u64 {
        self.to.tables[self.rank].iter().map(|table| table.ids.len() as u64).sum()
    }

    fn plan(&self) -> Result<Plan, PlanError> {
        let holding = |(layout, tables)| Holding { layout, tables };
        let tables = self.from.tables.iter().map(Vec::as_slice);
        let sources: Vec<Holding<'_>> = self.from.layouts.iter().zip(tables).map(holding).collect();
        let (ranks, rank) = (&self.to.layouts()[..], self.rank);
        let target = Target { ranks, rank, tables: &self.to.tables[rank], hits: &[] };
        plan(black_box(&sources), black_box(target), self.span)
    }

    fn planner(&self) -> Result<Planner, PlanError> {
        Planner::new(&self.from.layouts(), &self.to.layouts(), self.rank)
    }

    fn request(&self, planner: &Planner) -> Result<Plan, PlanError> {
        let sources: Vec<&[BlockTable]> = self.from.tables.iter().map(Vec::as_slice).collect();
        planner.plan(black_box(&sources), &self.to.tables[self.rank], &[], self.span)
    }
}

fn gemma(from: u32, to: u32, tokens: u64) -> Result<Case, Box<dyn Error>> {
    let model = Model::from_config(GEMMA, "gemma-3-4b-it.json")?;
    let shape = |block_size| EngineShape::single(block_size, PageOrder::Joint);
    Case::new(&model, shape(from), shape(to), tokens)
}

/// 12 layers of attention, 36 of gated delta nets with states as large as a block.
fn qwen() -> Result<Case, Box<dyn Error>> {
    let model = Model::from_config(QWEN, "Qwen3-Next-80B-A3B.json")?;
    let shape = EngineShape::single(16, PageOrder::Joint);
    Case::new(&model, shape, shape, LONG)
}

/// Heads after tokens: the heads of a rank are a dimension of the pattern.
fn gpt_oss() -> Result<Case, Box<dyn Error>> {
    let model = Model::from_config(GPT_OSS, "gpt-oss-120b.json")?;
    let shape =
        |tensor| EngineShape { tensor, ..EngineShape::single(16, PageOrder::TokensOutside) };
    Case::new(&model, shape(4), shape(8), LONG)
}

fn planning(criterion: &mut Criterion) -> Result<(), Box<dyn Error>> {
    let cases = [
        ("gemma-3-4b, 4,000 tokens", gemma(64, 64, 4000)?),
        ("Qwen3-Next, 128k tokens", qwen()?),
        ("gpt-oss-120b, 128k tokens, TP4 to TP8", gpt_oss()?),
    ];
    let mut group = criterion.benchmark_group("plan");
    for (name, case) in &cases {
        let planner = case.planner()?;
        let plan = case.plan()?;
        println!("{name}: {} ids, {} copies", case.ids(), plan.copies().count());
        group.throughput(Throughput::Elements(case.ids()));
        group.bench_function(BenchmarkId::new("alone", name), |b| b.iter(|| case.plan()));
        group.bench_function(BenchmarkId::new("prepare", name), |b| b.iter(|| case.planner()));
        group.bench_function(BenchmarkId::new("request", name), |b| {
            b.iter(|| case.request(&planner));
        });
    }
    group.finish();
    Ok(())
}

fn growing(criterion: &mut Criterion) -> Result<(), Box<dyn Error>> {
    let layer = |i| Layer::attention(format!("layers.{i}"), Kind::Full, 8, 256, 256);
    let layers = (0..32).map(layer).collect();
    let model = Model { model_type: "llama".to_owned(), dtype: DType::Bf16, layers };
    let shape = EngineShape::single(16, PageOrder::Joint);
    let mut group = criterion.benchmark_group("blocks");
    for blocks in [1_000, 10_000, 100_000, 1_000_000] {
        let cases = [
            ("32 layers of one group", Case::new(&model, shape, shape, blocks * 16)?),
            ("gemma-3-4b", gemma(64, 64, blocks * 64)?),
            ("gemma-3-4b, blocks of 16 to 64", gemma(16, 64, blocks * 16)?),
        ];
        group.throughput(Throughput::Elements(blocks));
        for (name, case) in &cases {
            group.bench_function(BenchmarkId::new(*name, blocks), |b| b.iter(|| case.plan()));
        }
    }
    group.finish();
    Ok(())
}

fn lowering(criterion: &mut Criterion) -> Result<(), Box<dyn Error>> {
    let case = gemma(64, 64, 4000)?;
    let plan = case.plan()?;
    let stride = |engine: &Engine, rank: usize, blocks: &strided::Blocks| {
        engine.layouts[rank].regions[blocks.region().0 as usize].block_stride
    };
    let ranges = || {
        plan.copies().flat_map(|copy| {
            let (from, to) = (copy.source(), copy.target());
            copy.ranges(stride(&case.from, 0, from), stride(&case.to, 0, to))
        })
    };
    let mut group = criterion.benchmark_group("lower");
    group.throughput(Throughput::Elements(ranges().count() as u64));
    group.bench_function("gemma-3-4b, 4,000 tokens", |bencher| {
        bencher.iter(|| ranges().fold(0, |sum, range| sum ^ range.source ^ range.target));
    });
    let count = MergeRuns::merged(ranges()).count();
    println!("{} ranges, {count} once merged", ranges().count());
    group.finish();
    Ok(())
}

fn describing(criterion: &mut Criterion) -> Result<(), Box<dyn Error>> {
    let layer = |i| Layer::attention(format!("layers.{i}"), Kind::Full, 8, 256, 256);
    let layers = (0..64).map(layer).collect();
    let model = Model { model_type: "llama".to_owned(), dtype: DType::Bf16, layers };
    let describe = || -> Result<Vec<u8>, Box<dyn Error>> {
        let grouping = Grouping::new(&model, 16)?;
        let layout = CacheLayout::new(&model, &grouping, PageOrder::Joint, 1_000_000);
        Ok(serde_json::to_vec(&layout)?)
    };
    let bytes = describe()?.len();
    println!("a peer of 1,000,000 blocks × 64 regions is described in {bytes} bytes");
    let mut group = criterion.benchmark_group("kv_layout");
    group.throughput(Throughput::Bytes(bytes as u64));
    group.bench_function("describe 1,000,000 blocks × 64 regions", |bencher| {
        bencher.iter(|| describe().map(black_box));
    });
    group.finish();
    Ok(())
}
