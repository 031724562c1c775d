//! What the command line accepts.

use std::path::PathBuf;

use clap::builder::Styles;
use clap::builder::styling::AnsiColor;
use clap::{Args, Parser, Subcommand};

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

const EXIT_CODES: &str = "\
Exit codes: 0 right · 1 failed · 2 usage or input · 3 not supported · 4 bytes wrong · \
5 peer or address";

/// Hands the KV cache of a request from a prefill engine to a decode engine.
#[derive(Debug, Parser)]
#[command(name = "kvferry", version, styles = STYLES, after_help = EXIT_CODES)]
pub(crate) struct Arguments {
    /// Print JSON instead of text.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show what a hand-off of a prompt would move, and what other schemes would.
    Plan(PlanArgs),
}

/// A model and how an engine cuts its KV cache.
#[derive(Clone, Debug, Args)]
pub(crate) struct ModelArgs {
    /// A Hugging Face config.json; some published ones are in models/.
    #[arg(value_name = "MODEL.json")]
    pub(crate) model: PathBuf,
    /// Tokens per block.
    #[arg(long, value_name = "TOKENS", default_value_t = 64, value_parser = at_least_one::<u32>)]
    pub(crate) block_size: u32,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct PlanArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    /// Tokens of the prompt; the decode engine recomputes the last one.
    #[arg(long, value_name = "N", default_value_t = 4000, value_parser = at_least_one::<u64>)]
    pub(crate) tokens: u64,
    /// Draw the block map into this file: a row per layer, a cell per block.
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
}

/// Parses a whole number that is not 0.
fn at_least_one<T>(text: &str) -> Result<T, String>
where
    T: std::str::FromStr + PartialEq + From<u8>,
    T::Err: std::fmt::Display,
{
    let number: T = text.replace([',', '_'], "").parse().map_err(|why: T::Err| why.to_string())?;
    if number == T::from(0) { Err("must be at least 1".to_owned()) } else { Ok(number) }
}
