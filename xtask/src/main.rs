//! The project's own tasks. `cargo xtask ci` is what a change must pass; each of its stages
//! also runs alone, `cargo xtask tidy` for one.
#![forbid(unsafe_code)]

mod chaos;
mod ci;
mod doc_commands;
mod error;
mod exec;
mod fuzz;
mod peers;
mod python;
mod sim;
mod stage;
mod tests_stage;
mod tidy;
mod workspace;

use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::chaos::ChaosArgs;
use crate::error::Error;
use crate::peers::PeersArgs;
use crate::python::WheelArgs;
use crate::sim::SimArgs;
use crate::stage::Stage;
use crate::workspace::Workspace;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "The project's own tasks")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Run every stage in order and say what each took
    Ci(CiArgs),
    /// Is the code formatted?
    Fmt,
    /// Lints, where a warning is an error
    Clippy,
    /// Unit, integration and doc tests
    Test,
    /// Build the wheel into an environment of its own and run its tests (needs Python 3.10)
    Python,
    /// API documentation, where a warning is an error
    Docs,
    /// The rules of the house that no compiler knows
    Tidy,
    /// Run the commands that the pages show
    DocCommands,
    /// Build the benchmarks without running them
    Benches,
    /// Search for inputs that break a promise, led by coverage (needs a C++ compiler)
    Fuzz(FuzzArgs),
    /// Play simulated worlds, from where the last run stopped; not a stage of ci
    Sim(SimArgs),
    /// Build the wheel that is given to others
    Wheel(WheelArgs),
    /// Kill, stop and cut off real processes, for longer than the test stage does
    Chaos(ChaosArgs),
    /// Measure other transfer engines beside kvferry, and write the page that compares them
    BenchPeers(PeersArgs),
}

/// What to search, and for how long.
#[derive(Args)]
struct FuzzArgs {
    /// Run this target only
    target: Option<String>,
    /// How long each target runs
    #[arg(long, value_name = "N", default_value_t = 1.0)]
    minutes: f64,
    /// Afterwards, keep the smallest set of inputs that reaches as much
    #[arg(long)]
    keep: bool,
}

/// Which stages `ci` runs, and whether it stops at the first that fails.
#[derive(Args, Default)]
struct CiArgs {
    /// Run on after a stage that fails
    #[arg(long)]
    keep_going: bool,
    /// Run this stage only (may be given more than once)
    #[arg(long, value_name = "STAGE", conflicts_with = "skip")]
    only: Vec<Stage>,
    /// Leave this stage out (may be given more than once)
    #[arg(long, value_name = "STAGE")]
    skip: Vec<Stage>,
}

impl CiArgs {
    fn selects(&self, stage: Stage) -> bool {
        !self.skip.contains(&stage) && (self.only.is_empty() || self.only.contains(&stage))
    }
}

impl Task {
    /// True if nothing failed.
    fn run(self, workspace: &Workspace) -> Result<bool, Error> {
        match self {
            Self::Fuzz(args) => fuzz::run(&args, workspace).map(|()| true),
            Self::Sim(args) => sim::run(&args, workspace).map(|()| true),
            Self::Wheel(args) => python::wheel(&args, workspace).map(|()| true),
            Self::Chaos(args) => chaos::run(&args, workspace).map(|()| true),
            Self::BenchPeers(args) => peers::run(&args, workspace).map(|()| true),
            Self::Ci(args) => Ok(ci::run(&args, workspace)),
            stage => Ok(ci::run(&stage.alone(), workspace)),
        }
    }

    /// A stage alone is a `ci` with only that stage.
    fn alone(self) -> CiArgs {
        let stage = match self {
            Self::Ci(_)
            | Self::Fuzz(_)
            | Self::Chaos(_)
            | Self::BenchPeers(_)
            | Self::Sim(_)
            | Self::Wheel(_) => return CiArgs::default(),
            Self::Fmt => Stage::Fmt,
            Self::Clippy => Stage::Clippy,
            Self::Test => Stage::Test,
            Self::Python => Stage::Python,
            Self::Docs => Stage::Docs,
            Self::Tidy => Stage::Tidy,
            Self::DocCommands => Stage::DocCommands,
            Self::Benches => Stage::Benches,
        };
        CiArgs { only: vec![stage], ..CiArgs::default() }
    }
}

fn main() -> ExitCode {
    let task = Cli::parse().task;
    match Workspace::load().and_then(|workspace| task.run(&workspace)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            anstream::eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
