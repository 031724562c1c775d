//! The model: embedding, mixers, logits.

use kv_layout::{DType, Kind, Layer, Model};

use super::attention::Attention;
use super::recurrence::{Convolution, Linear, Rule};
use super::weights::{Draw, Matrix, add, normed};
use super::{Cache, Fault, index};

/// Width of the residual stream.
pub(super) const WIDTH: usize = 8;
const WORDS: usize = 24;
const STORY: usize = 512;

/// One layer to build.
#[derive(Clone, Copy, Debug)]
pub enum Spec {
    /// Attention of any kind.
    Attention {
        /// What a query sees.
        kind: Kind,
        /// Query heads.
        queries: u32,
        /// Heads of keys and values.
        heads: u32,
        /// Numbers in a key.
        key: u32,
        /// Numbers in a value; 0 for a latent that is both, as MLA keeps it.
        value: u32,
    },
    /// A gated delta net with a short convolution.
    Delta {
        /// Heads of queries and keys.
        keys: u32,
        /// Heads of values, each with a state.
        values: u32,
        /// Numbers of a head; a state has their square.
        width: u32,
    },
    /// Mamba-2: the same without the delta, keys and queries shared by a group.
    Mamba2 {
        /// Groups of B and C.
        groups: u32,
        /// Heads, each with a state.
        heads: u32,
        /// Numbers of a head; a state has their square.
        width: u32,
    },
    /// A short convolution alone.
    Convolution {
        /// Channels.
        channels: u32,
    },
}

/// A model with all its weights, and the sequence of tokens that it is run on.
#[derive(Clone, Debug)]
pub struct Toy {
    kept: Model,
    layers: Vec<(Mixer, Matrix)>,
    embedding: Matrix,
    head: Matrix,
    story: Vec<usize>,
}

#[derive(Clone, Debug)]
enum Mixer {
    Attention(Attention),
    Linear(Linear),
    Convolution(Convolution),
}

impl Toy {
    /// The model of these layers whose weights and tokens `seed` decides.
    #[must_use]
    pub fn new(name: &str, seed: u64, specs: &[Spec]) -> Self {
        let mut draw = Draw::new(seed);
        let embedding = draw.matrix(WORDS, WIDTH);
        let mut layers = Vec::new();
        for spec in specs {
            let mixer = spec.build(&mut draw);
            let back = draw.matrix(WIDTH, mixer.width());
            layers.push((mixer, back));
        }
        let layer = |(index, (mixer, _)): (usize, &(Mixer, Matrix))| mixer.layer(index);
        let kept = Model {
            model_type: name.to_owned(),
            dtype: DType::F32,
            layers: layers.iter().enumerate().map(layer).collect(),
        };
        let head = draw.matrix(WORDS, WIDTH);
        let story = draw.below(WORDS, STORY);
        Self { kept, layers, embedding, head, story }
    }

    /// The same weights with another sequence of tokens.
    #[must_use]
    pub fn telling(&self, seed: u64) -> Self {
        Self { story: Draw::new(seed).below(WORDS, STORY), ..self.clone() }
    }

    /// What its layers keep.
    #[must_use]
    pub fn kept(&self) -> &Model {
        &self.kept
    }

    /// Reads the token at `position`, with everything before it in `cache`, and gives the logits
    /// of the next.
    ///
    /// # Errors
    /// The cache's [`Fault`].
    pub fn step(&self, cache: &mut dyn Cache, position: u64) -> Result<Vec<f64>, Fault> {
        let mut stream = self.embed(position);
        for (layer, (mixer, back)) in self.layers.iter().enumerate() {
            let mixed = mixer.mix(cache, layer, position, &normed(&stream))?;
            add(&mut stream, 0.5, &back.times(&mixed));
        }
        Ok(self.head.times(&normed(&stream)))
    }

    /// The token's embedding and its place: equal tokens must not have equal keys.
    fn embed(&self, position: u64) -> Vec<f64> {
        let word = self.story[index(position) % STORY];
        let angle = |channel: usize| position as f64 / 1.7_f64.powf(channel as f64);
        let place = (0..WIDTH).map(|channel| angle(channel).sin());
        self.embedding.row(word).iter().zip(place).map(|(word, place)| word + place).collect()
    }
}

impl Spec {
    fn build(self, draw: &mut Draw) -> Mixer {
        match self {
            Self::Attention { kind, queries, heads, key, value } => {
                Mixer::Attention(Attention::new(draw, kind, [queries, heads], [key, value]))
            }
            Self::Delta { keys, values, width } => {
                Mixer::Linear(Linear::new(draw, Rule::Delta, [keys, values], width))
            }
            Self::Mamba2 { groups, heads, width } => {
                Mixer::Linear(Linear::new(draw, Rule::Mamba2, [groups, heads], width))
            }
            Self::Convolution { channels } => Mixer::Convolution(Convolution::new(draw, channels)),
        }
    }
}

impl Mixer {
    fn width(&self) -> usize {
        match self {
            Self::Attention(attention) => attention.width(),
            Self::Linear(linear) => linear.width(),
            Self::Convolution(convolution) => convolution.width(),
        }
    }

    fn layer(&self, index: usize) -> Layer {
        let name = format!("layers.{index}");
        match self {
            Self::Attention(attention) => attention.layer(name),
            Self::Linear(linear) => linear.layer(name),
            Self::Convolution(convolution) => convolution.layer(name),
        }
    }

    fn mix(
        &self,
        cache: &mut dyn Cache,
        layer: usize,
        position: u64,
        input: &[f64],
    ) -> Result<Vec<f64>, Fault> {
        match self {
            Self::Attention(attention) => attention.mix(cache, layer, position, input),
            Self::Linear(linear) => linear.mix(cache, layer, position, input),
            Self::Convolution(convolution) => convolution.mix(cache, layer, position, input),
        }
    }
}
