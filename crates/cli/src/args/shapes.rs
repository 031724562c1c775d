//! The shapes of two engines.

use clap::Args;
use kv_layout::{EngineShape, PageOrder};
use serde_json::Value;

use super::{MAX_BLOCK_SIZE, PairArgs, up_to};
use crate::failure::Failure;
use crate::model;

/// Ranks of both engines, each of which is a process.
pub(crate) const MAX_PROCESSES: u64 = 64;

/// Two engines that hand over, by flags or by files.
#[derive(Clone, Debug, Args)]
pub(crate) struct ShapeArgs {
    #[command(flatten)]
    files: PairArgs,
    #[command(flatten)]
    prefill: PrefillFlags,
    #[command(flatten)]
    decode: DecodeFlags,
}

/// The flags of one side's engine: the same for both, but for their names.
macro_rules! flags {
    ($name:ident, $side:literal) => {
        #[derive(Clone, Debug, Args)]
        #[command(next_help_heading = concat!("Shape of the ", $side, " engine (or --from and --to)"))]
        struct $name {
            #[arg(
                id = concat!($side, "-tp"), long = concat!($side, "-tp"), value_name = "N",
                conflicts_with = "from", default_value_t = 1, value_parser = up_to::<u32>(MAX_PROCESSES),
                help = "Ranks that share the heads of each layer"
            )]
            tensor: u32,
            #[arg(
                id = concat!($side, "-pp"), long = concat!($side, "-pp"), value_name = "N",
                conflicts_with = "from", default_value_t = 1, value_parser = up_to::<u32>(MAX_PROCESSES),
                help = "Stages that share the layers"
            )]
            pipeline: u32,
            #[arg(
                id = concat!($side, "-context"), long = concat!($side, "-context"), value_name = "N",
                conflicts_with = "from", default_value_t = 1, value_parser = up_to::<u32>(MAX_PROCESSES),
                help = "Ranks, of those that share the heads, that share the sequence instead"
            )]
            context: u32,
            #[arg(
                id = concat!($side, "-block-size"), long = concat!($side, "-block-size"),
                value_name = "TOKENS", conflicts_with = "from", value_parser = up_to::<u32>(MAX_BLOCK_SIZE),
                help = "Tokens per block, where not those of --block-size"
            )]
            block_size: Option<u32>,
            #[arg(
                id = concat!($side, "-kernel-block"), long = concat!($side, "-kernel-block"),
                value_name = "TOKENS", conflicts_with = "from", value_parser = up_to::<u32>(MAX_BLOCK_SIZE),
                help = "Tokens per kernel block, where blocks are cut"
            )]
            kernel_block: Option<u32>,
            #[arg(
                id = concat!($side, "-order"), long = concat!($side, "-order"), value_name = "ORDER",
                conflicts_with = "from", default_value = "joint", value_parser = order,
                help = "How bytes lie: joint, tokens_outside, apart or block_outermost"
            )]
            order: PageOrder,
        }

        impl $name {
            fn shape(&self, block_size: u32) -> EngineShape {
                let Self { tensor, pipeline, context, kernel_block, order, .. } = *self;
                let block_size = self.block_size.unwrap_or(block_size);
                EngineShape { tensor, pipeline, context, block_size, kernel_block, order }
            }
        }
    };
}

flags!(PrefillFlags, "prefill");
flags!(DecodeFlags, "decode");

impl ShapeArgs {
    /// The prefill and the decode engine; blocks are of `block_size` tokens where nothing else
    /// is said.
    pub(crate) fn load(&self, block_size: u32) -> Result<[EngineShape; 2], Failure> {
        match (&self.files.from, &self.files.to) {
            (Some(from), Some(to)) => {
                let shape = |path| model::load_shape(path, block_size);
                Ok([shape(from)?, shape(to)?])
            }
            _ => Ok([self.prefill.shape(block_size), self.decode.shape(block_size)]),
        }
    }
}

/// Parses a shape that a parent wrote.
pub(super) fn from_json(text: &str) -> Result<EngineShape, String> {
    serde_json::from_str(text).map_err(|why| why.to_string())
}

fn order(text: &str) -> Result<PageOrder, String> {
    serde_json::from_value(Value::from(text)).map_err(|why| why.to_string())
}
