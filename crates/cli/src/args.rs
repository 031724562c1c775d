//! What the command line accepts.

mod network;
mod shapes;

use std::num::IntErrorKind;
use std::path::PathBuf;

use bytesize::ByteSize;
use clap::builder::Styles;
use clap::builder::styling::AnsiColor;
use clap::{Args, Parser, Subcommand};
use kv_layout::EngineShape;

use crate::output;
pub(crate) use network::{Allow, HostArgs, LinkArgs, TlsArgs};
pub(crate) use shapes::{MAX_PROCESSES, ShapeArgs};

/// Far above any context, and small enough that every sum of tokens fits.
const MAX_TOKENS: u64 = 1 << 30;

/// Requests of one run.
const MAX_REQUESTS: u64 = 1_000_000_000;

/// Far above any block of any engine.
const MAX_BLOCK_SIZE: u64 = 1 << 20;

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

const EXIT_CODES: &str = "\
Exit codes: 0 right · 1 failed · 2 usage or input · 3 not supported · 4 bytes wrong · \
5 peer or address";

const TWO_HOSTS: &str = "\
On two hosts, with the same MODEL.json and secret on both:
  10.0.0.1$ kvferry handoff MODEL.json --role prefill --listen 10.0.0.1:7000 --secret-file FILE
  10.0.0.2$ kvferry handoff MODEL.json --role decode --connect 10.0.0.1:7000 --secret-file FILE";

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
    /// Hand requests over between two engines, a process a rank, on this host or on two, and
    /// check every byte.
    Handoff(HandoffArgs),
    /// Hand over a real request trace, with bounded pools on both sides.
    Replay(ReplayArgs),
    /// Play engines that hand requests over while everything goes wrong, and check every rule.
    Sim(crate::sim::SimArgs),
    /// Measure how fast blocks are read between two processes, or two hosts, over every provider
    /// that both have, beside what plain sockets and memory can do.
    Bench(crate::bench::BenchArgs),
    /// Show what this host offers and lacks for each provider, and what mends it.
    Doctor(crate::doctor::DoctorArgs),
    /// A rank of the prefill side of `handoff` and `replay`; speaks JSON lines with its parent.
    #[command(hide = true)]
    PrefillWorker(WorkerArgs),
    /// The decode side; the same.
    #[command(hide = true)]
    DecodeWorker(WorkerArgs),
    /// The source of `bench`; says where it listens, and serves one reader.
    #[command(hide = true)]
    BenchSource(crate::bench::SourceArgs),
}

/// A model and how an engine cuts its KV cache.
#[derive(Clone, Debug, Args)]
pub(crate) struct ModelArgs {
    /// A Hugging Face config.json; some published ones are in models/.
    #[arg(value_name = "MODEL.json")]
    pub(crate) model: PathBuf,
    /// Tokens per block.
    #[arg(long, value_name = "TOKENS", default_value_t = 64, value_parser = up_to::<u32>(MAX_BLOCK_SIZE))]
    pub(crate) block_size: u32,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct PlanArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    /// Tokens of the prompt; the decode engine recomputes the last one.
    #[arg(long, value_name = "N", default_value_t = 4000, value_parser = up_to::<u64>(MAX_TOKENS))]
    pub(crate) tokens: u64,
    /// Draw the block map into this file: a row per layer, a cell per block.
    #[arg(long, value_name = "FILE", conflicts_with = "to")]
    pub(crate) svg: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) pair: PairArgs,
}

/// Two engines of several ranks.
#[derive(Clone, Debug, Args)]
#[group(id = "pair", multiple = true)]
pub(crate) struct PairArgs {
    /// Shape of the prefill engine as JSON: `tensor`, `pipeline`, `context`, `block_size`,
    /// `kernel_block`, `order` (joint, tokens_outside, apart, block_outermost); what is left out
    /// is one rank. Needs --to; shows who reads what from whom.
    #[arg(long, value_name = "P.json", requires = "to")]
    pub(crate) from: Option<PathBuf>,
    /// Shape of the decode engine.
    #[arg(long, value_name = "D.json", requires = "from")]
    pub(crate) to: Option<PathBuf>,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = TWO_HOSTS)]
pub(crate) struct HandoffArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    /// Tokens of each prompt; the decode worker recomputes the last one.
    #[arg(long, value_name = "N", default_value_t = 4000, value_parser = up_to::<u64>(MAX_TOKENS))]
    pub(crate) tokens: u64,
    /// Requests to hand over, one after the other [default: 10]
    #[arg(long, value_name = "R", value_parser = up_to::<u64>(MAX_REQUESTS))]
    pub(crate) requests: Option<u64>,
    #[command(flatten)]
    pub(crate) host: HostArgs,
    #[command(flatten)]
    pub(crate) link: LinkArgs,
    #[command(flatten)]
    pub(crate) shapes: ShapeArgs,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ReplayArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    /// JSON lines with `timestamp` (ms), `input_length` and `output_length`. Where the file is
    /// not there, a generated trace of like lengths is used.
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// Memory of each side's KV cache, shared evenly by its ranks.
    #[arg(long, value_name = "BYTES")]
    pub(crate) pool: ByteSize,
    /// Stop after so many requests.
    #[arg(long, value_name = "N", value_parser = up_to::<u64>(MAX_REQUESTS))]
    pub(crate) limit: Option<u64>,
    /// How many times faster than in the trace requests arrive and tokens are decoded.
    #[arg(long, value_name = "X", default_value_t = 1.0, value_parser = factor)]
    pub(crate) speed: f64,
    /// Time that one decoded token takes at speed 1, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 20.0, value_parser = factor)]
    pub(crate) decode_ms: f64,
    #[command(flatten)]
    pub(crate) link: LinkArgs,
    #[command(flatten)]
    pub(crate) shapes: ShapeArgs,
}

/// What a worker's process must know of itself; written by its parent.
#[derive(Clone, Debug, Args)]
pub(crate) struct WorkerArgs {
    #[arg(value_name = "MODEL.json")]
    pub(crate) model: PathBuf,
    /// The shape of its engine, as JSON.
    #[arg(long, value_parser = shapes::from_json)]
    pub(crate) shape: EngineShape,
    /// The shape of the engine that it reads; only a decode rank needs it.
    #[arg(long, value_parser = shapes::from_json)]
    pub(crate) peer: Option<EngineShape>,
    /// Which rank of its engine it is.
    #[arg(long)]
    pub(crate) rank: u32,
    /// The life of its engine.
    #[arg(long)]
    pub(crate) epoch: u64,
    /// Bytes of the KV cache.
    #[arg(long)]
    pub(crate) pool: u64,
    #[command(flatten)]
    pub(crate) link: LinkArgs,
}

/// Parses a number that a time can be multiplied or divided by.
fn factor(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|why: std::num::ParseFloatError| why.to_string())?;
    if (1e-6..=1e9).contains(&number) {
        Ok(number)
    } else {
        Err("must be from 0.000001 to 1000000000".to_owned())
    }
}

/// Parses a whole number from 1 to `most`; commas and underscores between its digits are free.
fn up_to<T: TryFrom<u64>>(most: u64) -> impl Fn(&str) -> Result<T, String> + Clone {
    move |text| {
        let too_large = || format!("must be at most {}", output::count(most));
        match text.replace([',', '_'], "").parse::<u64>() {
            Ok(0) => Err("must be at least 1".to_owned()),
            Ok(number) if number <= most => T::try_from(number).map_err(|_| too_large()),
            Ok(_) => Err(too_large()),
            Err(why) if *why.kind() == IntErrorKind::PosOverflow => Err(too_large()),
            Err(why) => Err(why.to_string()),
        }
    }
}
