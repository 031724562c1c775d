//! The pairs of shapes. A shape is written as `tp4 pp2 cp2 b16 k4 apart`: ranks that share
//! heads, stages, ranks that share the sequence, tokens of a block and of a kernel block, page
//! order; what is 1 or absent is left out.

use kv_layout::{EngineShape, PageOrder};

/// Model, source, target.
pub type Pair = (&'static str, &'static str, &'static str);

pub fn shape(words: &str) -> EngineShape {
    let mut shape = EngineShape::single(16, PageOrder::Joint);
    for word in words.split(' ') {
        let digits = word.trim_start_matches(char::is_alphabetic);
        let number = || digits.parse().unwrap();
        match &word[..word.len() - digits.len()] {
            "tp" => shape.tensor = number(),
            "pp" => shape.pipeline = number(),
            "cp" => shape.context = number(),
            "b" => shape.block_size = number(),
            "k" => shape.kernel_block = Some(number()),
            "joint" => shape.order = PageOrder::Joint,
            "tokens" => shape.order = PageOrder::TokensOutside,
            "apart" => shape.order = PageOrder::Apart,
            "blocks" => shape.order = PageOrder::BlockOutermost,
            _ => panic!("{word} in {words}"),
        }
    }
    shape
}

pub fn of(models: &[&str]) -> Vec<Pair> {
    ALL.iter().filter(|pair| models.contains(&pair.0)).copied().collect()
}

pub const ALL: &[Pair] = &[
    ("six heads", "tp1 b8 joint", "tp1 b8 joint"),
    ("six heads", "tp1 b8 joint", "tp1 b8 tokens"),
    ("six heads", "tp1 b8 tokens", "tp1 b8 apart"),
    ("six heads", "tp1 b8 apart", "tp1 b8 blocks"),
    ("six heads", "tp1 b8 blocks", "tp1 b8 joint"),
    ("six heads", "tp1 b4 joint", "tp1 b16 apart"),
    ("six heads", "tp1 b16 apart", "tp1 b4 tokens"),
    ("six heads", "tp1 b6 joint", "tp1 b4 joint"),
    ("six heads", "tp1 b4 blocks", "tp1 b6 blocks"),
    ("six heads", "tp1 b6 tokens", "tp1 b16 joint"),
    ("six heads", "tp1 b16 k4 joint", "tp1 b16 joint"),
    ("six heads", "tp1 b16 k8 apart", "tp1 b16 k4 tokens"),
    ("six heads", "tp1 b6 k3 blocks", "tp1 b8 k2 joint"),
    ("six heads", "tp2 b8 joint", "tp3 b8 joint"),
    ("six heads", "tp3 b4 tokens", "tp2 b16 k8 blocks"),
    ("six heads", "tp1 b8 joint", "tp6 b8 k4 apart"),
    ("six heads", "tp6 b4 apart", "tp1 b8 joint"),
    ("six heads", "tp3 b8 joint", "tp12 b4 tokens"),
    ("six heads", "tp12 b8 blocks", "tp2 b8 apart"),
    ("six heads", "tp2 pp2 b6 joint", "tp1 b4 joint"),
    ("six heads", "tp1 pp2 b8 apart", "tp3 b8 tokens"),
    ("six heads", "tp1 pp3 b8 joint", "tp1 pp2 b16 k4 apart"),
    ("six heads", "tp2 cp2 b8 joint", "tp1 b8 joint"),
    ("six heads", "tp1 b4 tokens", "tp2 cp2 b4 apart"),
    ("two heads", "tp1 b8 joint", "tp2 b8 joint"),
    ("two heads", "tp2 b8 tokens", "tp4 b8 joint"),
    ("two heads", "tp4 b8 apart", "tp2 b4 joint"),
    ("two heads", "tp4 b16 joint", "tp8 b6 blocks"),
    ("two heads", "tp8 b6 apart", "tp1 b16 k8 apart"),
    ("two heads", "tp1 b4 blocks", "tp8 b8 k4 tokens"),
    ("two heads", "tp4 pp2 b8 joint", "tp2 pp2 b8 tokens"),
    ("two heads", "tp1 b6 k2 tokens", "tp4 b4 k2 apart"),
    ("two heads", "tp4 cp2 b8 joint", "tp4 b8 joint"),
    ("two heads", "tp2 b4 joint", "tp8 cp4 b4 tokens"),
    ("two heads", "tp4 cp2 b8 apart", "tp8 cp2 b8 blocks"),
    ("twelve heads", "tp3 b8 joint", "tp4 b8 joint"),
    ("twelve heads", "tp4 b4 tokens", "tp3 b6 apart"),
    ("twelve heads", "tp2 b16 blocks", "tp3 b8 k4 joint"),
    ("twelve heads", "tp4 pp2 b6 k2 apart", "tp1 b16 k4 blocks"),
    ("twelve heads", "tp6 b8 joint", "tp4 b8 tokens"),
    ("twelve heads", "tp1 b6 apart", "tp12 pp2 b8 joint"),
    ("two widths", "tp1 b4 joint", "tp1 b4 tokens"),
    ("two widths", "tp1 b4 joint", "tp2 b8 apart"),
    ("two widths", "tp2 b4 tokens", "tp4 b4 joint"),
    ("two widths", "tp4 b8 blocks", "tp1 b4 k2 blocks"),
    ("two widths", "tp8 b6 joint", "tp2 pp2 b8 joint"),
    ("two widths", "tp2 b6 k3 apart", "tp8 b16 tokens"),
    ("delta net", "tp1 b16 joint", "tp1 b16 joint"),
    ("delta net", "tp1 b16 joint", "tp2 b16 tokens"),
    ("delta net", "tp1 b16 tokens", "tp4 b16 joint"),
    ("delta net", "tp4 b16 k8 apart", "tp1 b16 joint"),
    ("delta net", "tp2 b16 blocks", "tp4 b16 k16 apart"),
    ("delta net", "tp4 b8 joint", "tp2 pp2 b16 k4 blocks"),
    ("delta net", "tp1 pp2 b24 joint", "tp2 b16 joint"),
    ("delta net", "tp1 pp3 b16 joint", "tp4 pp2 b24 k8 tokens"),
    ("mamba", "tp1 b16 joint", "tp2 b16 tokens"),
    ("mamba", "tp2 b16 joint", "tp3 b16 k8 apart"),
    ("mamba", "tp3 b16 tokens", "tp4 b24 blocks"),
    ("mamba", "tp4 b24 k4 apart", "tp3 pp2 b16 joint"),
    ("mamba", "tp12 b16 blocks", "tp1 b16 k8 joint"),
    ("mamba", "tp4 pp2 b16 joint", "tp6 b16 joint"),
    ("latent", "tp1 b8 joint", "tp1 b8 joint"),
    ("latent", "tp1 b16 joint", "tp4 b4 joint"),
    ("latent", "tp4 b4 tokens", "tp1 b6 apart"),
    ("latent", "tp4 b6 blocks", "tp2 b16 k8 joint"),
    ("latent", "tp8 b8 joint", "tp4 pp2 b8 k4 apart"),
    ("latent", "tp2 cp2 b4 joint", "tp1 b4 joint"),
    ("latent", "tp1 b8 joint", "tp4 cp4 b8 k4 tokens"),
    ("latent", "tp4 cp2 b6 joint", "tp4 cp4 b6 joint"),
    ("latent", "tp4 cp4 b4 apart", "tp8 cp2 pp2 b4 blocks"),
    ("latent", "tp2 cp2 b8 joint", "tp6 cp3 b8 joint"),
    ("latent and delta", "tp1 b16 joint", "tp2 b16 joint"),
    ("latent and delta", "tp4 b16 k8 tokens", "tp1 b16 blocks"),
    ("latent and delta", "tp2 b16 apart", "tp4 pp2 b16 k16 joint"),
    ("latent and delta", "tp4 cp4 b48 joint", "tp4 cp2 b48 joint"),
];
