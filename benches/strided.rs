//! What walking and merging cost: `cargo bench -p benches --bench strided`.
//!
//! * **walk**: 10,000 pages of one piece, and of 64 rows each (heads of a token-major page).
//! * **merge**: the same pages with contiguous ids, fused into one range; and 18,880 pages, 118 in
//!   each of 160 regions, fused into 160.

use std::error::Error;

use criterion::{BenchmarkId, Criterion, Throughput};
use strided::{BlockCopy, Blocks, Dim, MergeRuns, Pattern, RegionId};

const PAGE: u64 = 64 << 10;

fn main() -> Result<(), Box<dyn Error>> {
    let mut criterion = Criterion::default().configure_from_args();
    let mut group = criterion.benchmark_group("strided");
    let whole = Pattern::contiguous(0, PAGE)?;
    let rows = Pattern::new(0, &[Dim { count: 64, stride: 1024 }], 256)?;
    for (name, pattern) in [("whole pages", whole), ("64 rows a page", rows)] {
        let copy = copy(pattern, 10_000)?;
        group.throughput(Throughput::Elements(copy.ranges(PAGE, PAGE).count() as u64));
        group.bench_function(BenchmarkId::new("walk", name), |bencher| {
            bencher.iter(|| copy.ranges(PAGE, PAGE).fold(0, |sum, r| sum ^ r.source ^ r.target));
        });
    }
    let pages = copy(whole, 10_000)?;
    group.throughput(Throughput::Elements(pages.source().ids().len() as u64));
    group.bench_function("merge contiguous ids", |bencher| {
        bencher.iter(|| MergeRuns::merged(pages.ranges(PAGE, PAGE)).count());
    });
    let copies = vec![copy(whole, 118)?; 160];
    let ranges = || copies.iter().flat_map(|copy| MergeRuns::merged(copy.ranges(PAGE, PAGE)));
    group.throughput(Throughput::Elements(160 * 118));
    group.bench_function("merge 18,880 ranges to 160", |bencher| bencher.iter(|| ranges().count()));
    group.finish();
    criterion.final_summary();
    Ok(())
}

fn copy(pattern: Pattern, blocks: u32) -> Result<BlockCopy, strided::Error> {
    let ids: Vec<u32> = (0..blocks).collect();
    let blocks = |region| Blocks::new(RegionId(region), ids.clone(), pattern);
    BlockCopy::new(blocks(0)?, blocks(1)?)
}
