//! `cargo xtask chaos`: the long form of the tests that kill, stop and cut off real processes.
//!
//! Their short form is part of the test stage. This one runs each fault more often, the bounds
//! of the protocol as they are, and faults in any order for what is left of the time.

use anstyle::{AnsiColor, Style};
use clap::Args;

use crate::error::Error;
use crate::exec::{self, Output};
use crate::stage::locked;
use crate::workspace::Workspace;

const BOLD: Style = Style::new().bold();
const BAD: Style = AnsiColor::Red.on_default().bold();

/// Two tests at a time: mostly they wait, and a failed one is named on a line of its own.
const TESTS: &str = "test -p kvferry --test chaos -- --test-threads=2";

/// Seconds that all other scenarios take, on two cores. Faults in any order come over TCP and over
/// shared memory, side by side.
const OTHERS: f64 = 270.0;

/// Seconds of that at least.
const LEAST: f64 = 10.0;

/// How long to break things, and in which order.
#[derive(Args)]
pub struct ChaosArgs {
    /// How long all of it takes, about; five are the least
    #[arg(long, value_name = "N", default_value_t = 10.0)]
    minutes: f64,
    /// Decides which faults come when
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
}

/// What the tests said: a line for each scenario that ended, and the names of those that failed.
#[derive(Debug, Default, PartialEq, Eq)]
struct Told {
    results: Vec<(String, String)>,
    failed: Vec<String>,
}

/// Runs all scenarios and prints a table of what became of them.
pub fn run(args: &ChaosArgs, workspace: &Workspace) -> Result<(), Error> {
    let mut command = locked(workspace, TESTS);
    command.env("KVFERRY_CHAOS_SECONDS", seconds(args.minutes));
    command.env("KVFERRY_CHAOS_SEED", args.seed.to_string());
    let mut told = Told::default();
    let ended = exec::watch(command, Output::Stdout, |line| told.hear(line));
    told.print();
    ended
}

/// How long faults come in any order, of all the time that there is.
fn seconds(minutes: f64) -> String {
    format!("{:.0}", (minutes * 60.0 - OTHERS).max(LEAST))
}

impl Told {
    fn hear(&mut self, line: &str) {
        let result = line.strip_prefix("chaos: ").and_then(|line| line.split_once(": "));
        if let Some((scenario, result)) = result {
            self.results.push((scenario.to_owned(), result.to_owned()));
        }
        let test = line.strip_prefix("test ");
        if let Some(test) = test.and_then(|line| line.strip_suffix(" ... FAILED")) {
            self.failed.push(test.to_owned());
        }
    }

    fn print(&self) {
        let names = self.results.iter().map(|(name, _)| name).chain(&self.failed);
        let width = names.map(|name| name.chars().count()).max().unwrap_or(0);
        anstream::println!("\n{BOLD}{:<width$}  result{BOLD:#}", "scenario");
        for (scenario, result) in &self.results {
            anstream::println!("{scenario:<width$}  {result}");
        }
        for test in &self.failed {
            anstream::println!("{test:<width$}  {BAD}FAILED{BAD:#}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_and_failures_are_told_apart_from_the_rest() {
        let mut told = Told::default();
        for line in [
            "running 3 tests",
            "chaos: kill -9 of P: 12 faults, failed: none",
            "test kills::p ... ok",
            "test kills::d ... FAILED",
            "test result: FAILED. 1 passed; 1 failed",
        ] {
            told.hear(line);
        }
        let result = ("kill -9 of P".to_owned(), "12 faults, failed: none".to_owned());
        assert_eq!(told, Told { results: vec![result], failed: vec!["kills::d".to_owned()] });
    }

    #[test]
    fn what_is_left_of_the_time_is_for_faults_in_any_order() {
        assert_eq!(seconds(10.0), "330");
        assert_eq!(seconds(0.5), "10");
    }
}
