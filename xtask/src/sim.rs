//! Plays many simulated worlds, a few hundred at a time, and goes on where it stopped.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::error::Error;
use crate::exec;
use crate::stage;
use crate::workspace::Workspace;

/// Worlds between two lines of the log.
const AT_A_TIME: u64 = 500;

/// How many worlds, and from where on.
#[derive(Args)]
pub struct SimArgs {
    /// How many worlds to play
    #[arg(long, value_name = "N")]
    seeds: u64,
    /// Begin with this seed, and not with the first that the log does not have
    #[arg(long, value_name = "SEED")]
    from: Option<u64>,
}

/// Plays worlds until one breaks a rule, which the command says, or all are played. What was
/// played is written to a log under `target`.
pub fn run(args: &SimArgs, workspace: &Workspace) -> Result<(), Error> {
    let log = workspace.root.join("target/sim-seeds.log");
    let first = match args.from {
        Some(seed) => seed,
        None => next_seed(&log)?,
    };
    let end = first.saturating_add(args.seeds);
    let mut seed = first;
    while seed < end {
        let many = AT_A_TIME.min(end - seed);
        let words = "run --quiet --release --bin kvferry -- sim";
        let play = stage::cargo(workspace, &format!("{words} --seed {seed} --seeds {many}"));
        exec::run(play)?;
        seed += many;
        write(&log, seed)?;
        anstream::println!("{} of {} worlds", seed - first, args.seeds);
    }
    Ok(())
}

/// The seed after the last that was played; 0 where there is no log.
fn next_seed(log: &Path) -> Result<u64, Error> {
    match fs::read_to_string(log) {
        Ok(text) => Ok(last(&text)),
        Err(why) if why.kind() == std::io::ErrorKind::NotFound => Ok(0),
        Err(source) => Err(Error::Read { path: log.to_owned(), source }),
    }
}

/// Each line is the seed after those that were played.
fn last(log: &str) -> u64 {
    log.lines().filter_map(|line| line.trim().parse().ok()).max().unwrap_or(0)
}

fn write(log: &Path, seed: u64) -> Result<(), Error> {
    let failed = |source| Error::Write { path: PathBuf::from(log), source };
    let mut file = OpenOptions::new().create(true).append(true).open(log).map_err(failed)?;
    writeln!(file, "{seed}").map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goes_on_after_the_last_that_was_played() {
        assert_eq!(last(""), 0);
        assert_eq!(last("500\n1000\n"), 1000);
        assert_eq!(last("1000\n500\n15"), 1000, "an earlier stretch again, and a torn line");
    }
}
