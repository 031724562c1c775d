//! Two engines as the command line describes them, checked before any process is started.

use std::sync::Arc;

use kv_layout::{BlockTable, EngineShape, Kept, Kind, Model, RankShape, ShapeError, baseline};

use super::{Role, resume_at};
use crate::args::{MAX_PROCESSES, ShapeArgs};
use crate::failure::{Code, Failure};
use crate::{output, plan};

/// Tokens of the prompt by which a pair is tried: whether two engines can exchange anything is
/// decided by their shapes, and shows at any length.
const TRIED_TOKENS: u64 = 1000;

/// What is made of which model.
pub(crate) struct Shapes {
    pub(crate) model: Model,
    prefill: Arc<Shape>,
    decode: Arc<Shape>,
}

/// One of the two engines.
pub(crate) struct Shape {
    pub(super) engine: EngineShape,
    ranks: Vec<RankShape>,
}

impl Shapes {
    /// # Errors
    /// An engine that the model cannot be spread over, or two that cannot exchange its KV cache.
    pub(crate) fn load(model: Model, args: &ShapeArgs, block_size: u32) -> Result<Self, Failure> {
        let from = args.load(Role::Prefill, block_size)?;
        let to = args.load(Role::Decode, block_size)?;
        few_enough(&[from, to])?;
        let prefill = Shape::new(&model, from, Role::Prefill)?;
        let decode = Shape::new(&model, to, Role::Decode)?;
        Self::checked(model, prefill, decode)
    }

    /// The decode engine as the command line describes it, and the prefill engine as its host
    /// does, where it is an engine of some model already.
    ///
    /// # Errors
    /// As above.
    pub(crate) fn beside(model: Model, from: EngineShape, decode: Shape) -> Result<Self, Failure> {
        few_enough(&[from, decode.engine])?;
        let prefill = Shape::new(&model, from, Role::Prefill)
            .map_err(|why| why.hint("give both hosts the same MODEL.json"))?;
        Self::checked(model, prefill, decode)
    }

    fn checked(model: Model, prefill: Shape, decode: Shape) -> Result<Self, Failure> {
        let (from, to) = (prefill.engine, decode.engine);
        plan::check_pair(&model, from, to, TRIED_TOKENS).map_err(|why| match why.code {
            Code::Unsupported => why.hint(
                "give both engines blocks of one size (models with states round theirs up, \
                     by their share of the heads), or let none share a sequence",
            ),
            _ => why,
        })?;
        Ok(Self { model, prefill: prefill.into(), decode: decode.into() })
    }

    pub(crate) fn of(&self, role: Role) -> &Arc<Shape> {
        match role {
            Role::Prefill => &self.prefill,
            Role::Decode => &self.decode,
        }
    }

    /// What the decode engine would read with every layer as full attention.
    pub(crate) fn full_attention_bytes(&self, tokens: u64) -> u64 {
        let bytes = |rank: &RankShape| {
            let tokens = tokens.div_ceil(u64::from(rank.shard.context.ways));
            baseline::all_full(&rank.shard.model, &rank.grouping, tokens).bytes
        };
        self.decode.ranks.iter().map(bytes).fold(0, u64::saturating_add)
    }

    /// Both engines in words; `None` where they are alike and of one rank each, with blocks as
    /// the command line says.
    pub(crate) fn words(&self) -> Option<String> {
        let shape = |role| self.of(role).engine;
        let (from, to) = (shape(Role::Prefill), shape(Role::Decode));
        let plain = from == to && self.prefill.ranks() == 1;
        let words = |role| format!("{role} {}", self.of(role).words());
        (!plain).then(|| format!("{} · {}", words(Role::Prefill), words(Role::Decode)))
    }

    /// How many processes hand over.
    pub(crate) fn processes(&self) -> String {
        match self.prefill.ranks() + self.decode.ranks() {
            2 => "two processes".to_owned(),
            more => format!("{more} processes"),
        }
    }
}

impl Shape {
    /// # Errors
    /// An engine that the model cannot be spread over.
    pub(crate) fn load(
        model: &Model,
        args: &ShapeArgs,
        role: Role,
        block_size: u32,
    ) -> Result<Self, Failure> {
        let engine = args.load(role, block_size)?;
        few_enough(&[engine])?;
        Self::new(model, engine, role)
    }

    fn new(model: &Model, engine: EngineShape, role: Role) -> Result<Self, Failure> {
        let ranks = engine.ranks(model).map_err(|why| refused(&why, role))?;
        Ok(Self { engine, ranks })
    }

    /// Tokens of a prompt that a prefill engine computes.
    pub(super) fn prefill_tokens(&self, tokens: u64) -> u64 {
        let layers = self.ranks.iter().flat_map(|rank| &rank.shard.model.layers);
        Kind::prefill_tokens(layers.map(|layer| layer.kind), tokens)
    }

    pub(crate) fn ranks(&self) -> usize {
        self.ranks.len()
    }

    pub(crate) fn block_size(&self) -> u32 {
        self.engine.block_size
    }

    /// In words.
    pub(crate) fn words(&self) -> String {
        let ranks = match self.ranks() {
            1 => "1 rank".to_owned(),
            more => format!("{more} ranks"),
        };
        format!("{ranks}, blocks of {}", self.engine.block_size)
    }

    /// Blocks that a prompt of `tokens` takes at the rank where it takes most.
    pub(super) fn blocks(&self, tokens: u64) -> u64 {
        self.ranks.iter().map(|rank| blocks(rank, tokens)).max().unwrap_or(0)
    }

    /// As many blocks as a prompt of `tokens` takes at the rank where it takes most. Which these
    /// are is each rank's own affair.
    pub(super) fn tables(&self, tokens: u64) -> Vec<BlockTable> {
        let table = |Kept { first_token, blocks }| {
            let ids = (0..blocks).map(|_| 0).collect();
            BlockTable { first_token, ids }
        };
        let most = self.ranks.iter().max_by_key(|rank| blocks(rank, tokens));
        most.into_iter().flat_map(|rank| kept(rank, tokens)).map(table).collect()
    }

    /// Twice what one request takes at a rank: ids come from all over a pool that is half empty.
    pub(crate) fn pool_for(&self, tokens: u64) -> u64 {
        let block = self.ranks.iter().map(|rank| rank.grouping.block_bytes()).max().unwrap_or(0);
        self.blocks(tokens).saturating_mul(2).saturating_add(1).saturating_mul(block)
    }
}

fn kept(rank: &RankShape, tokens: u64) -> impl Iterator<Item = Kept> + '_ {
    rank.kept(resume_at(tokens), tokens)
}

fn blocks(rank: &RankShape, tokens: u64) -> u64 {
    kept(rank, tokens).map(|kept| kept.blocks).sum()
}

fn few_enough(engines: &[EngineShape]) -> Result<(), Failure> {
    let ranks = |shape: &EngineShape| u64::from(shape.tensor) * u64::from(shape.pipeline);
    let all = engines.iter().map(ranks);
    if all.clone().fold(0, u64::saturating_add) <= MAX_PROCESSES {
        return Ok(());
    }
    let which = if engines.len() == 1 { "an engine" } else { "engines" };
    let ranks = all.map(output::count).collect::<Vec<_>>().join(" and ");
    Err(Failure::input(format!(
        "{which} of {ranks} ranks: at most {MAX_PROCESSES} processes in all"
    ))
    .hint("use fewer ranks; `kvferry plan` computes engines of any size"))
}

fn refused(why: &ShapeError, role: Role) -> Failure {
    Failure::input(format!("the {role} engine: {why}")).hint(format!(
        "see --{role}-tp, --{role}-pp, --{role}-context and the block sizes, or the same in {}",
        if role == Role::Prefill { "--from" } else { "--to" }
    ))
}
