//! The ranks of an engine: who keeps which layers, heads and blocks.

use serde::{Deserialize, Serialize};

use crate::{
    CacheLayout, ContextShare, GroupError, Grouping, Kept, LayerPart, Model, PageOrder, Placement,
    Shard, kept,
};

/// Ranks of one engine at most. A shape is a few numbers and a rank is a copy of the model: without
/// a limit, a text of one line would ask for billions of them.
const MAX_RANKS: u64 = 4096;

/// How an engine spreads a model over its ranks, and how each places its share.
///
/// Read from JSON, what is left out is one rank with blocks of 16 tokens; unknown keys are
/// refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EngineShape {
    /// Ranks that share the heads of each layer.
    pub tensor: u32,
    /// Stages that share the layers.
    pub pipeline: u32,
    /// Ranks, of those that share the heads, that keep the same heads and share the sequence
    /// block by block; divides `tensor`.
    pub context: u32,
    /// Tokens per block, as configured.
    pub block_size: u32,
    /// Tokens per kernel block, where blocks are cut.
    pub kernel_block: Option<u32>,
    /// How the bytes of a slot lie.
    pub order: PageOrder,
}

/// One rank of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankShape {
    /// Its share of the model.
    pub shard: Shard,
    /// How its layers share blocks and memory; the same groups on all ranks.
    pub grouping: Grouping,
}

/// Why an engine cannot have this shape.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ShapeError {
    /// A size of zero.
    #[error("{what} 0: at least 1")]
    Zero {
        /// Which.
        what: &'static str,
    },
    /// More ranks than any engine has.
    #[error("{tensor} tensor ranks in {pipeline} stages: at most {MAX_RANKS} ranks")]
    Ranks {
        /// Ranks that share the heads of each layer.
        tensor: u32,
        /// Stages that share the layers.
        pipeline: u32,
    },
    /// Units that cannot be shared out evenly, nor kept by several ranks each.
    #[error("{layer}: {units} units of {role} cannot be shared by {ranks} ranks")]
    Units {
        /// The layer.
        layer: String,
        /// Which of its bytes.
        role: crate::Role,
        /// How many there are.
        units: u32,
        /// How many ranks.
        ranks: u32,
    },
    /// More stages than layers, or context parallelism that does not divide.
    #[error("{what} {value} does not go with {of}")]
    Mismatch {
        /// Which.
        what: &'static str,
        /// Its value.
        value: u32,
        /// What it does not go with.
        of: String,
    },
    /// Kernel blocks that do not divide the block.
    #[error("kernel blocks of {kernel} tokens do not divide a block of {block}")]
    Kernel {
        /// Tokens per kernel block.
        kernel: u32,
        /// Tokens per block.
        block: u32,
    },
    /// The layers of a rank cannot be grouped.
    #[error(transparent)]
    Group(#[from] GroupError),
}

impl Default for EngineShape {
    fn default() -> Self {
        Self::single(16, PageOrder::Joint)
    }
}

impl RankShape {
    /// What the rank keeps of a prompt of `tokens`, group by group, so that it, or a peer, can
    /// compute from `resume_at` on: only its own share of the sequence.
    pub fn kept(&self, resume_at: u64, tokens: u64) -> impl Iterator<Item = Kept> + '_ {
        self.grouping.groups.iter().map(move |group| {
            let all = kept(group.kind, group.block_size, resume_at, tokens);
            if group.kind.is_recurrent() {
                // A state belongs to the whole sequence.
                return all;
            }
            all.of_share(group.block_size, self.shard.context)
        })
    }
}

impl EngineShape {
    /// One rank.
    #[must_use]
    pub fn single(block_size: u32, order: PageOrder) -> Self {
        Self { tensor: 1, pipeline: 1, context: 1, block_size, kernel_block: None, order }
    }

    /// All ranks, stage by stage and within a stage by heads.
    ///
    /// # Errors
    /// [`ShapeError`].
    pub fn ranks(&self, model: &Model) -> Result<Vec<RankShape>, ShapeError> {
        self.check(model)?;
        let mut ranks = Vec::new();
        for stage in 0..self.pipeline {
            for rank in 0..self.tensor {
                ranks.push(self.rank(model, stage, rank)?);
            }
        }
        Ok(ranks)
    }

    /// The layouts of all ranks, with `block_count` blocks each.
    ///
    /// # Errors
    /// [`ShapeError`].
    pub fn layouts(&self, model: &Model, block_count: u32) -> Result<Vec<CacheLayout>, ShapeError> {
        let placement = self.placement(block_count);
        let layout =
            |rank: &RankShape| CacheLayout::of_shard(&rank.shard, &rank.grouping, placement);
        Ok(self.ranks(model)?.iter().map(layout).collect())
    }

    /// How each rank places its share.
    #[must_use]
    pub fn placement(&self, block_count: u32) -> Placement {
        Placement { order: self.order, kernel_block: self.kernel_block, block_count }
    }

    fn check(&self, model: &Model) -> Result<(), ShapeError> {
        let sizes = [
            ("tensor", self.tensor),
            ("pipeline", self.pipeline),
            ("context", self.context),
            ("kernel_block", self.kernel_block.unwrap_or(1)),
        ];
        if let Some((what, _)) = sizes.into_iter().find(|&(_, size)| size == 0) {
            return Err(ShapeError::Zero { what });
        }
        let Self { tensor, pipeline, .. } = *self;
        if u64::from(tensor) * u64::from(pipeline) > MAX_RANKS {
            return Err(ShapeError::Ranks { tensor, pipeline });
        }
        let layers = model.layers.len();
        if usize::try_from(self.pipeline).is_ok_and(|stages| stages > layers.max(1)) {
            let of = format!("{layers} layers");
            return Err(ShapeError::Mismatch { what: "pipeline", value: self.pipeline, of });
        }
        if !self.tensor.is_multiple_of(self.context) {
            let of = format!("tensor {}", self.tensor);
            return Err(ShapeError::Mismatch { what: "context", value: self.context, of });
        }
        Ok(())
    }

    fn rank(&self, model: &Model, stage: u32, rank: u32) -> Result<RankShape, ShapeError> {
        let mut shard = Shard::whole(model);
        shard.context = ContextShare { ways: self.context, rank: rank % self.context };
        for (index, layer) in shard.model.layers.iter_mut().enumerate() {
            for (part, first) in layer.parts.iter_mut().zip(&mut shard.first_units[index]) {
                // A state is not shared along the sequence: every rank shares its units.
                let shared = if layer.kind.is_recurrent() { 1 } else { self.context };
                let ranks = self.tensor / shared;
                let share = share(part, ranks, rank / shared);
                let (start, count) = share.ok_or_else(|| ShapeError::Units {
                    layer: layer.name.clone(),
                    role: part.role,
                    units: part.units,
                    ranks,
                })?;
                (*first, part.units) = (start, count);
            }
        }
        let grouping = Grouping::new(&shard.model, self.block_size)?;
        self.check_kernel(&grouping)?;
        self.keep_stage(&mut shard, stage);
        Ok(RankShape { shard, grouping })
    }

    fn check_kernel(&self, grouping: &Grouping) -> Result<(), ShapeError> {
        let Some(kernel) = self.kernel_block else { return Ok(()) };
        let groups = grouping.groups.iter().filter(|group| !group.kind.is_recurrent());
        match groups.map(|group| group.block_size).find(|block| !block.is_multiple_of(kernel)) {
            Some(block) => Err(ShapeError::Kernel { kernel, block }),
            None => Ok(()),
        }
    }

    /// Groups are made for the whole model; a stage keeps its own layers of them.
    fn keep_stage(&self, shard: &mut Shard, stage: u32) {
        let layers = shard.model.layers.len();
        let bound = |stage: u32| layers * stage as usize / self.pipeline as usize;
        let kept = bound(stage)..bound(stage + 1);
        for (index, layer) in shard.model.layers.iter_mut().enumerate() {
            if !kept.contains(&index) {
                layer.parts.clear();
            }
        }
    }
}

/// First unit and number of units of one rank: an even share, or one unit that several ranks
/// keep.
fn share(part: &LayerPart, ranks: u32, rank: u32) -> Option<(u32, u32)> {
    let units = part.units;
    if units.is_multiple_of(ranks) {
        let each = units / ranks;
        Some((rank * each, each))
    } else if units > 0 && ranks.is_multiple_of(units) {
        Some((rank / (ranks / units), 1))
    } else {
        None
    }
}
