//! The shapes of two engines.

use std::path::PathBuf;

use clap::Args;
use kv_layout::{EngineShape, PageOrder};
use serde_json::Value;

use super::{MAX_BLOCK_SIZE, up_to};
use crate::failure::Failure;
use crate::model;
use crate::pair::Role;

/// Ranks of both engines, each of which is a process.
pub(crate) const MAX_PROCESSES: u64 = 64;

/// Two engines that hand over, each by flags or by a file.
#[derive(Clone, Debug, Args)]
pub(crate) struct ShapeArgs {
    #[command(flatten)]
    prefill: PrefillFlags,
    #[command(flatten)]
    decode: DecodeFlags,
}

/// The flags of one side's engine: the same for both, but for their names.
macro_rules! flags {
    ($name:ident, $side:literal, $file:literal) => {
        #[derive(Clone, Debug, Args)]
        #[command(next_help_heading = concat!("Shape of the ", $side, " engine"))]
        struct $name {
            #[arg(
                id = $file, long = $file, value_name = "FILE.json",
                help = concat!(
                    "All of it as JSON: tensor, pipeline, context, block_size, kernel_block, ",
                    "order; what is left out is one rank"
                )
            )]
            file: Option<PathBuf>,
            #[arg(
                id = concat!($side, "-tp"), long = concat!($side, "-tp"), value_name = "N",
                conflicts_with = $file, value_parser = up_to::<u32>(MAX_PROCESSES),
                help = "Ranks that share the heads of each layer [default: 1]"
            )]
            tensor: Option<u32>,
            #[arg(
                id = concat!($side, "-pp"), long = concat!($side, "-pp"), value_name = "N",
                conflicts_with = $file, value_parser = up_to::<u32>(MAX_PROCESSES),
                help = "Stages that share the layers [default: 1]"
            )]
            pipeline: Option<u32>,
            #[arg(
                id = concat!($side, "-context"), long = concat!($side, "-context"), value_name = "N",
                conflicts_with = $file, value_parser = up_to::<u32>(MAX_PROCESSES),
                help = "Ranks, of those that share the heads, that share the sequence instead \
                        [default: 1]"
            )]
            context: Option<u32>,
            #[arg(
                id = concat!($side, "-block-size"), long = concat!($side, "-block-size"),
                value_name = "TOKENS", conflicts_with = $file, value_parser = up_to::<u32>(MAX_BLOCK_SIZE),
                help = "Tokens per block, where not those of --block-size"
            )]
            block_size: Option<u32>,
            #[arg(
                id = concat!($side, "-kernel-block"), long = concat!($side, "-kernel-block"),
                value_name = "TOKENS", conflicts_with = $file, value_parser = up_to::<u32>(MAX_BLOCK_SIZE),
                help = "Tokens per kernel block, where blocks are cut"
            )]
            kernel_block: Option<u32>,
            #[arg(
                id = concat!($side, "-order"), long = concat!($side, "-order"), value_name = "ORDER",
                conflicts_with = $file, value_parser = order,
                help = "How bytes lie: joint, tokens_outside, apart or block_outermost \
                        [default: joint]"
            )]
            order: Option<PageOrder>,
        }

        impl $name {
            /// Whether the command line says anything of this engine alone.
            fn given(&self) -> bool {
                let Self { file, tensor, pipeline, context, block_size, kernel_block, order } = self;
                let sizes = [tensor, pipeline, context, block_size, kernel_block];
                file.is_some() || order.is_some() || sizes.iter().any(|size| size.is_some())
            }

            fn load(&self, block_size: u32) -> Result<EngineShape, Failure> {
                if let Some(path) = &self.file {
                    return model::load_shape(path, block_size);
                }
                let block_size = self.block_size.unwrap_or(block_size);
                let one = EngineShape::single(block_size, self.order.unwrap_or(PageOrder::Joint));
                Ok(EngineShape {
                    tensor: self.tensor.unwrap_or(one.tensor),
                    pipeline: self.pipeline.unwrap_or(one.pipeline),
                    context: self.context.unwrap_or(one.context),
                    kernel_block: self.kernel_block,
                    ..one
                })
            }
        }
    };
}

flags!(PrefillFlags, "prefill", "from");
flags!(DecodeFlags, "decode", "to");

impl ShapeArgs {
    /// One of the engines; blocks are of `block_size` tokens where nothing else is said.
    pub(crate) fn load(&self, role: Role, block_size: u32) -> Result<EngineShape, Failure> {
        match role {
            Role::Prefill => self.prefill.load(block_size),
            Role::Decode => self.decode.load(block_size),
        }
    }

    /// Whether the command line says anything of one of the engines.
    pub(crate) fn given(&self, role: Role) -> bool {
        match role {
            Role::Prefill => self.prefill.given(),
            Role::Decode => self.decode.given(),
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
