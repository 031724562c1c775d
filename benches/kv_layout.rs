//! What planning costs: `cargo bench -p benches --bench kv_layout`.
//!
//! * **plan**: gemma-3-4b at 4,000 tokens in blocks of 64, from 165 random block ids on each
//!   side: 34 layers in 7 groups, 808 pages.
//! * **lower**: the same plan as byte ranges, which allocates nothing.
//! * **describe**: what an engine tells a peer about 1,000,000 blocks × 64 regions.

#![allow(clippy::print_stdout, reason = "a bench is there to print")]

use std::error::Error;
use std::hint::black_box;

use criterion::{Criterion, Throughput};
use kv_layout::{
    BlockTable, CacheLayout, DType, Grouping, Holding, Kind, Layer, Model, PageOrder, Span, Target,
    kept, plan,
};

const GEMMA: &str = include_str!("../models/gemma-3-4b-it.json");
const TOKENS: u64 = 4000;
const BLOCK: u32 = 64;
const POOL: u32 = 4096;

fn main() -> Result<(), Box<dyn Error>> {
    let mut criterion = Criterion::default().configure_from_args();
    planning(&mut criterion)?;
    describing(&mut criterion)?;
    criterion.final_summary();
    Ok(())
}

fn planning(criterion: &mut Criterion) -> Result<(), Box<dyn Error>> {
    let model = Model::from_config(GEMMA, "gemma-3-4b-it.json")?;
    let grouping = Grouping::new(&model, BLOCK)?;
    let layout = CacheLayout::new(&model, &grouping, PageOrder::Joint, POOL);
    let (from, to) = (tables(&grouping, 1709)?, tables(&grouping, 2377)?);
    let source = Holding { layout: &layout, tables: &from };
    let target = Target { ranks: &[&layout], rank: 0, tables: &to, hits: &[] };
    let span = Span { valid: TOKENS, resume_at: TOKENS - 1 };
    let ids: usize = from.iter().map(|table| table.ids.len()).sum();
    let mut group = criterion.benchmark_group("kv_layout");
    group.throughput(Throughput::Elements(ids as u64));
    group.bench_function("plan gemma-3-4b, 4,000 tokens", |bencher| {
        bencher.iter(|| plan(black_box(&[source]), black_box(target), span));
    });
    let planned = plan(&[source], target, span)?;
    let stride = |blocks: &strided::Blocks| layout.regions[blocks.region().0 as usize].block_stride;
    group.bench_function("lower to ranges", |bencher| {
        bencher.iter(|| {
            let copies = planned.copies();
            let ranges = copies.flat_map(|c| c.ranges(stride(c.source()), stride(c.target())));
            ranges.fold(0, |sum, range| sum ^ range.source ^ range.target)
        });
    });
    group.finish();
    Ok(())
}

/// Ids from all over the pool, no two of them neighbours: multiples of a number that is prime
/// to its size.
fn tables(grouping: &Grouping, step: u32) -> Result<Vec<BlockTable>, Box<dyn Error>> {
    let mut ids = (1..POOL).map(|i| i.wrapping_mul(step) % POOL);
    let table = |group: &kv_layout::Group| {
        let kept = kept(group.kind, group.block_size, TOKENS - 1, TOKENS);
        let count = usize::try_from(kept.blocks)?;
        let ids: Vec<u32> = ids.by_ref().take(count).collect();
        Ok(BlockTable { first_token: kept.first_token, ids: ids.into() })
    };
    grouping.groups.iter().map(table).collect()
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
