//! Shapes at random, from one seed.

use kv_layout::EngineShape;
use sim::toy::{Engine, Garbage};

use super::pairs::{Pair, shape};
use super::play::{Case, HITS, Pairing, Truth};

pub const MODELS: [&str; 8] = [
    "six heads",
    "two heads",
    "twelve heads",
    "two widths",
    "delta net",
    "mamba",
    "latent",
    "latent and delta",
];

/// Of each model.
pub const PAIRS: usize = 8;
const CASES: usize = 4;

const TENSOR: [u64; 6] = [1, 2, 3, 4, 6, 8];
const BLOCKS: [u64; 7] = [4, 6, 8, 12, 16, 24, 48];
const KERNELS: [u64; 5] = [2, 3, 4, 8, 16];
const ORDERS: [&str; 4] = ["joint", "tokens", "apart", "blocks"];

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, count: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % count as u64).unwrap()
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    fn shape(&mut self, block: Option<u64>) -> String {
        let (tensor, block) = (self.pick(&TENSOR), block.unwrap_or(self.pick(&BLOCKS)));
        let mut words = format!("tp{tensor} b{block} {}", self.pick(&ORDERS));
        let context = self.pick(&[1, 1, 1, 2, 3, 4]);
        if tensor % context == 0 && context > 1 {
            words += &format!(" cp{context}");
        }
        let kernel = self.pick(&KERNELS);
        if block % kernel == 0 && self.below(2) == 0 {
            words += &format!(" k{kernel}");
        }
        match self.below(4) {
            stages @ 2..=3 => words + &format!(" pp{stages}"),
            _ => words,
        }
    }
}

/// `count` pairs of shapes that the model can have.
pub fn pairs(model: &'static str, truth: &Truth, count: usize) -> Vec<Pair> {
    let mut random = Random(seed(model));
    let possible = |words: &str| {
        let shape: EngineShape = shape(words);
        Engine::new(truth.toy.kept(), &shape, 2, Garbage::Numbers, 0).is_ok()
    };
    let mut pairs: Vec<Pair> = Vec::new();
    while pairs.len() < count {
        let from = random.shape(None);
        // Shares of a sequence go together with equal blocks.
        let block = from.split_once(" b").and_then(|(_, rest)| rest.split(' ').next());
        let same = from.contains("cp") || random.below(3) == 0;
        let block = block.filter(|_| same).and_then(|digits| digits.parse().ok());
        let to = random.shape(block);
        if possible(&from) && possible(&to) {
            pairs.push((model, from.leak(), to.leak()));
        }
    }
    pairs
}

/// Whether a sequence is shared block by block, and the blocks are not the same.
pub fn interleaved(pairing: &Pairing<'_>) -> bool {
    let engines = [&pairing.source, &pairing.target];
    let shared = |engine: &Engine| {
        engine.layouts().iter().any(|it| it.groups.iter().any(|group| group.context.ways > 1))
    };
    let blocks = |engine: &Engine| {
        let mut groups: Vec<_> = engine.groups().iter().map(|it| format!("{it:?}")).collect();
        groups.retain(|group| !group.contains("Recurrent"));
        groups.sort();
        groups.dedup();
        groups
    };
    engines.into_iter().any(shared) && blocks(engines[0]) != blocks(engines[1])
}

/// A few hand-offs of a pair, of rising length.
pub fn cases(pairing: &Pairing<'_>) -> Vec<Case> {
    let lengths = pairing.lengths();
    let mut random = Random(lengths.iter().sum());
    let mut lengths: Vec<u64> = (0..CASES).map(|_| random.pick(&lengths)).collect();
    lengths.sort_unstable();
    let case = |tokens| {
        let (hit, ahead) = (random.pick(&HITS), random.pick(&[0, 1]));
        Case { tokens, back: 1, hit, ahead }
    };
    lengths.into_iter().map(case).collect()
}

fn seed(model: &str) -> u64 {
    model.bytes().fold(7, |seed, byte| seed.wrapping_mul(31).wrapping_add(byte.into()))
}
