//! The `kvferry` command line.

#![forbid(unsafe_code)]

mod args;
mod bench;
mod doctor;
mod failure;
mod handoff;
mod model;
mod output;
mod pair;
mod plan;
mod process;
mod replay;
mod sim;
mod summary;
mod trace;

use std::process::ExitCode;

use clap::Parser;
use tracing_subscriber::EnvFilter;

use crate::args::{Arguments, Command, WorkerArgs};
use crate::failure::{Code, Failure};
use crate::pair::Role;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(why) => return refuse(&why),
    };
    match log().and_then(|()| run(&arguments)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.print(arguments.json);
            failure.exit_code()
        }
    }
}

/// Help and version were asked for; anything else is a failure like any other.
fn refuse(why: &clap::Error) -> ExitCode {
    use clap::error::ErrorKind::{
        DisplayHelp, DisplayHelpOnMissingArgumentOrSubcommand, DisplayVersion,
    };
    let shown = [DisplayHelp, DisplayHelpOnMissingArgumentOrSubcommand, DisplayVersion];
    if shown.contains(&why.kind()) {
        why.exit();
    }
    let failure = Failure::usage(why);
    failure.print(std::env::args_os().any(|argument| argument == "--json"));
    failure.exit_code()
}

/// Logs go to standard error, at the levels that `RUST_LOG` names; only errors without it.
fn log() -> Result<(), Failure> {
    let levels = std::env::var_os("RUST_LOG").filter(|levels| !levels.is_empty());
    let levels = levels.unwrap_or_else(|| "error".into());
    let wrong = |why: &dyn std::fmt::Display| {
        Failure::input(format!("RUST_LOG is {}: {why}", levels.display()))
            .hint("give a level, such as RUST_LOG=info, or target=level pairs between commas")
    };
    let text = levels.to_str().ok_or_else(|| wrong(&"not UTF-8"))?;
    let filter = EnvFilter::try_new(text).map_err(|why| wrong(&why))?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
        // It would tell of a standard error that is gone on standard error.
        .log_internal_errors(false)
        .init();
    Ok(())
}

fn run(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.command {
        Command::Plan(plan) => plan::run(plan, arguments.json),
        Command::Handoff(handoff) => in_runtime(handoff::run(handoff, arguments.json)),
        Command::Replay(replay) => in_runtime(replay::run(replay, arguments.json)),
        Command::Bench(bench) => in_runtime(bench::run(bench, arguments.json)),
        Command::BenchSource(source) => in_runtime(bench::run_source(source)),
        Command::Doctor(doctor) => doctor::run(doctor, arguments.json),
        Command::Sim(sim) => sim::run(sim, arguments.json),
        Command::PrefillWorker(worker) => serve(Role::Prefill, worker),
        Command::DecodeWorker(worker) => serve(Role::Decode, worker),
    }
}

/// The parent hears of a failure over the pipe, and tells the user.
fn serve(role: Role, worker: &WorkerArgs) -> Result<(), Failure> {
    in_runtime(async {
        pair::worker::run(role, worker).await;
        Ok(())
    })
}

fn in_runtime(work: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Runtime::new()
        .map_err(|why| Failure::new(Code::Failed, format!("cannot start: {why}")))?;
    runtime.block_on(work)
}
