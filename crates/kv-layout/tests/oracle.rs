//! The planner against brute force: attention masks token by token, layouts byte by byte.
//!
//! Nothing here shares code with the planner. A layout's numbers are taken as data; what the
//! planner writes is executed byte by byte, on bytes that know what they are, and every byte of
//! every rank is judged.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::cast_possible_truncation)]

use std::fmt::Display;
use std::io::Write;
use std::ops::Range;
use std::time::Instant;

use kv_layout::{EngineShape, PageOrder};

mod oracle {
    pub mod coverage;
    pub mod expect;
    pub mod garbage;
    pub mod grid;
    pub mod judge;
    pub mod limits;
    pub mod mask;
    pub mod memory;
    pub mod models;
    pub mod pages;
    pub mod random;
    pub mod rng;
    pub mod shapes;
    pub mod tables;
    pub mod tally;
    pub mod threads;
}

use oracle::grid::{self, ORDERS, Pair};
use oracle::judge::{World, judge};
use oracle::memory::Rank;
use oracle::random::Case;
use oracle::rng::Rng;
use oracle::tally::Tally;
use oracle::{garbage, models, threads};

const TENSOR: [u32; 5] = [1, 2, 3, 4, 8];
const KERNELS: [Option<u32>; 3] = [None, Some(2), Some(4)];
const BLOCK_PAIRS: [(u32, u32); 11] =
    [(4, 4), (8, 8), (16, 16), (4, 8), (8, 4), (4, 16), (16, 4), (8, 16), (16, 8), (4, 6), (6, 4)];

/// Not a print: the line is to stand in the log of a run that passes too.
fn say(what: &str, started: Instant, counts: &dyn Display) {
    let took = started.elapsed().as_secs_f64();
    let line = format!("{what}: {counts} in {took:.1} s\n");
    std::io::stderr().write_all(line.as_bytes()).unwrap();
}

fn shape(tensor: u32, block_size: u32, kernel_block: Option<u32>, order: PageOrder) -> EngineShape {
    EngineShape { tensor, pipeline: 1, context: 1, block_size, kernel_block, order }
}

/// Models × tensor sizes² × block sizes² × prompts; all else so that every pair of values meets.
#[test]
fn every_model_and_pair_of_tensor_and_block_sizes() {
    let started = Instant::now();
    let models = models::all();
    let mut pairs = Vec::new();
    let mut rng = Rng::new(1);
    for (model, from, to) in product(0..models.len(), &TENSOR, &TENSOR) {
        for blocks in BLOCK_PAIRS {
            let mut shape = |tensor, block_size: u32| EngineShape {
                pipeline: 1 + rng.below(2) as u32,
                ..shape(tensor, block_size, rng.pick(&KERNELS[..2]), rng.pick(&ORDERS))
            };
            let (from, to) = (shape(from, blocks.0), shape(to, blocks.1));
            pairs.push(Pair { model, from, to, every: 1, opaque: false });
        }
    }
    let (tally, coverage) = grid::run(&models, &pairs);
    say("models × tensor² × blocks²", started, &tally);
    coverage.assert_complete();
    assert!(tally.cases() >= 50_000);
}

/// Orders² × kernel blocks² × block sizes² of some models and tensor sizes.
#[test]
fn every_pair_of_layouts() {
    let started = Instant::now();
    let models =
        models::some(&["full and window 8", "Mamba-2 and window 17", "latent", "delta net"]);
    let mut pairs = Vec::new();
    for (order_from, order_to, model) in product(0..4, &ORDERS, &[0, 1, 2, 3]) {
        for (kernel, kernel_to, (tensor, tensor_to)) in
            product(0..3, &KERNELS, &[(1, 2), (3, 2), (2, 8), (4, 4)])
        {
            for (block, block_to) in [(4, 4), (4, 8), (8, 4), (4, 6), (6, 4)] {
                let divides = |block: u32, kernel: Option<u32>| {
                    kernel.is_none_or(|kernel| block.is_multiple_of(kernel))
                };
                if !divides(block, KERNELS[kernel]) || !divides(block_to, kernel_to) {
                    continue;
                }
                let from = shape(tensor, block, KERNELS[kernel], ORDERS[order_from]);
                let to = shape(tensor_to, block_to, kernel_to, order_to);
                pairs.push(Pair { model, from, to, every: 7, opaque: false });
            }
        }
    }
    let (tally, _) = grid::run(&models, &pairs);
    say("orders² × kernel blocks² × blocks²", started, &tally);
}

/// Pipeline stages² of all models.
#[test]
fn every_pair_of_pipelines() {
    let started = Instant::now();
    let models = models::all();
    let mut pairs = Vec::new();
    for (model, pipeline, pipeline_to) in product(0..models.len(), &[1, 2], &[1, 2]) {
        for (tensor, tensor_to) in [(1, 1), (2, 4), (2, 1), (4, 2)] {
            for (block, block_to) in [(4, 4), (4, 8), (8, 4)] {
                let from = EngineShape { pipeline, ..shape(tensor, block, None, ORDERS[0]) };
                let to = shape(tensor_to, block_to, None, ORDERS[1]);
                let to = EngineShape { pipeline: pipeline_to, ..to };
                pairs.push(Pair { model, from, to, every: 3, opaque: false });
            }
        }
    }
    let (tally, _) = grid::run(&models, &pairs);
    say("models × stages² × tensor²", started, &tally);
}

/// Context parallelism, of latents and of heads.
#[test]
fn every_pair_of_context_shares() {
    const SHARES: [(u32, u32); 9] =
        [(1, 1), (2, 1), (2, 2), (4, 1), (4, 2), (4, 4), (8, 2), (8, 4), (3, 1)];
    let started = Instant::now();
    let models =
        models::some(&["latent", "latent and delta net", "two heads", "full and window 8"]);
    let mut pairs = Vec::new();
    for (model, from, to) in product(0..models.len(), &SHARES, &SHARES) {
        for (block, block_to) in [(4, 4), (8, 8), (4, 8), (8, 4)] {
            let from = EngineShape { context: from.1, ..shape(from.0, block, None, ORDERS[0]) };
            let to = EngineShape { context: to.1, ..shape(to.0, block_to, Some(2), ORDERS[3]) };
            pairs.push(Pair { model, from, to, every: 1, opaque: false });
        }
    }
    let (tally, _) = grid::run(&models, &pairs);
    say("context shares²", started, &tally);
}

/// Pages that are moved whole or not at all.
#[test]
fn opaque_pages() {
    let started = Instant::now();
    let models = models::all();
    let mut pairs = Vec::new();
    for (model, tensor, tensor_to) in product(0..models.len(), &[1, 2, 4], &[1, 2, 4]) {
        for (block, block_to) in [(4, 4), (4, 8), (8, 4)] {
            for (order, kernel) in [(0, 0), (1, 0), (2, 0), (3, 0), (0, 1)] {
                let from = shape(tensor, block, None, PageOrder::Joint);
                let to = shape(tensor_to, block_to, KERNELS[kernel], ORDERS[order]);
                pairs.push(Pair { model, from, to, every: 4, opaque: true });
            }
        }
    }
    let (tally, _) = grid::run(&models, &pairs);
    say("opaque pages", started, &tally);
}

/// A number from the environment: `KVFERRY_ORACLE_CASES` makes a longer run,
/// `KVFERRY_ORACLE_CASE` runs one case alone and shows all of it.
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|number| number.parse().ok())
}

fn cases() -> u64 {
    number("KVFERRY_ORACLE_CASES").unwrap_or(100_000)
}

#[test]
fn random_pairs_of_engines() {
    let started = Instant::now();
    let one = number("KVFERRY_ORACLE_CASE");
    let seeds = one.map_or(0..cases(), |seed| seed..seed + 1);
    let tally = threads::run(seeds, |seed, tally: &mut Tally| {
        let mut case = Case::new(seed);
        let shapes = one.map(|_| format!("{:#?}", (&case.sources, &case.targets)));
        let shapes = shapes.unwrap_or_default();
        let world = case.world();
        tally.count(judge(&world), || {
            let World { sources, targets, hits, span } = &world;
            let tables = |ranks: &[Rank<'_>]| {
                ranks.iter().map(|rank| format!("{:?}\n", rank.tables)).collect::<String>()
            };
            let (from, to) = (tables(sources), tables(targets));
            format!("KVFERRY_ORACLE_CASE={seed}\n{shapes}\n{span:?} {hits:?}\n{from}\n{to}")
        });
    });
    let tally = tally.into_iter().fold(Tally::default(), |mut all, tally| {
        all.add(&tally);
        all
    });
    say("random pairs of engines", started, &tally);
}

/// Spoiled numbers: an answer, soon, whatever they are.
#[test]
fn garbage_never_panics_nor_hangs() {
    let started = Instant::now();
    let models = models::all();
    let planned = threads::run(0..cases(), |seed, planned: &mut u64| {
        *planned += u64::from(garbage::survive(seed));
        garbage::survive_shape(&models[seed as usize % models.len()].model, seed);
    });
    let planned: u64 = planned.into_iter().sum();
    say("spoiled numbers", started, &format!("{} cases: {planned} planned", cases()));
}

/// All combinations.
fn product<B: Copy, C: Copy>(
    a: Range<usize>,
    b: &[B],
    c: &[C],
) -> impl Iterator<Item = (usize, B, C)> {
    let pairs = a.flat_map(move |a| b.iter().map(move |&b| (a, b)));
    pairs.flat_map(move |(a, b)| c.iter().map(move |&c| (a, b, c)))
}
