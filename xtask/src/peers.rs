//! `cargo xtask bench-peers`: other transfer engines and kvferry, on the same blocks in the same
//! run.
//!
//! Every case has its turn in each round, with a fresh pair of processes, so that a busy machine
//! slows all of them. All bytes are verified; a wrong one ends the run.

mod cases;
mod figures;
mod host;
mod lines;
mod page;
mod section;
mod table;
mod turn;
mod venv;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anstyle::Style;
use clap::Args;

use crate::error::Error;
use crate::exec;
use crate::stage::locked;
use crate::workspace::Workspace;
use cases::{CASES, Case, Peer};
use figures::Results;
use host::Host;
use section::Section;
use turn::Turn;
use venv::Venv;

const BOLD: Style = Style::new().bold();

/// Of `kvferry bench`: those that a person of an engine can name.
const WORKLOADS: [&str; 4] = ["W1", "W2", "W3", "W4"];

/// What the page must rest on.
const ROUNDS: u32 = 3;

/// Repetitions that count of each pair of processes.
const REPETITIONS: u32 = 3;

/// Where each line that was said is kept.
const RAW: &str = "target/bench-peers.jsonl";

/// What to measure, with what, and where to write it.
#[derive(Args)]
pub struct PeersArgs {
    /// The environment with the engines. One that is there already is taken as it is [default: a
    /// folder of the user's cache, made when it is missing]
    #[arg(long, value_name = "DIR")]
    venv: Option<PathBuf>,
    /// In each, every case has its turn with fresh processes
    #[arg(long, value_name = "N", default_value_t = ROUNDS,
        value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Several between commas
    #[arg(long, value_name = "NAME[,NAME…]", value_delimiter = ',', ignore_case = true,
        value_parser = WORKLOADS, default_values = WORKLOADS)]
    workload: Vec<String>,
    /// Write there, and not into the page of the repository, which takes whole runs alone
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// A peer that has no cases in this run, and why.
struct Skipped {
    peer: Peer,
    why: String,
}

/// Measures, prints the tables and writes the section of the page.
pub fn run(args: &PeersArgs, workspace: &Workspace) -> Result<(), Error> {
    exec::run(locked(workspace, "build --release --bin kvferry"))?;
    let venv = Venv::prepare(args.venv.as_deref())?;
    let peers = Peers::look(&venv, workspace)?;
    let before = host::load();
    let results = Measuring { workspace, venv: &venv, args }.all(&peers.cases())?;
    let tables = table::all(&args.workloads(), &results);
    for table in &tables {
        anstream::println!("\n{BOLD}{}{BOLD:#}\n{}", table.title, table.plain());
    }
    for Skipped { peer, why } in &peers.skipped {
        anstream::println!("skipped {peer}: {why}");
    }
    let host = Host::look(workspace, &peers.versions, [before, host::load()])?;
    let section = Section { rounds: args.rounds, host, tables, skipped: &peers.skipped };
    write(args, workspace, &section.text())
}

/// Which engines have cases in this run.
#[derive(Default)]
struct Peers {
    versions: Vec<(Peer, String)>,
    skipped: Vec<Skipped>,
}

impl Peers {
    fn look(venv: &Venv, workspace: &Workspace) -> Result<Self, Error> {
        let mut peers = Self::default();
        for peer in [Peer::Nixl, Peer::Mooncake] {
            match venv.version(workspace, peer)? {
                Ok(version) => peers.versions.push((peer, version)),
                Err(why) => {
                    anstream::println!("{peer} is skipped: {why}");
                    peers.skipped.push(Skipped { peer, why });
                }
            }
        }
        Ok(peers)
    }

    fn cases(&self) -> Vec<&'static Case> {
        let has = |case: &&Case| self.versions.iter().any(|(peer, _)| *peer == case.peer);
        CASES.iter().filter(has).collect()
    }
}

/// Everything that one turn of a case needs.
struct Measuring<'a> {
    workspace: &'a Workspace,
    venv: &'a Venv,
    args: &'a PeersArgs,
}

impl Measuring<'_> {
    fn all(&self, cases: &[&Case]) -> Result<Results, Error> {
        let mut results = Results::default();
        let ended = self.rounds(cases, &mut results);
        // Kept of a run that failed as well: it is what tells why.
        let raw = self.workspace.root.join(RAW);
        anstream::println!("\nwhat each repetition took is in {RAW}");
        fs::write(&raw, results.raw()).map_err(|source| Error::Write { path: raw, source })?;
        ended.map(|()| results)
    }

    fn rounds(&self, cases: &[&Case], results: &mut Results) -> Result<(), Error> {
        for workload in self.args.workloads() {
            for round in 1..=self.args.rounds {
                self.round(workload, round, cases, results)?;
            }
        }
        Ok(())
    }

    /// Ours first, then each peer that has not failed with this workload.
    fn round(
        &self,
        workload: &str,
        round: u32,
        cases: &[&Case],
        results: &mut Results,
    ) -> Result<(), Error> {
        anstream::println!("{workload}, round {round} of {}", self.args.rounds);
        let turn = Turn::take(self.ours(workload, round))?;
        results.hear("kvferry", &turn.lines)?;
        if let Err(why) = turn.ended {
            return Err(Error::Exit { command: "kvferry bench".to_owned(), status: why });
        }
        for case in cases {
            if results.has_failed(workload, case.name) {
                continue;
            }
            let turn = Turn::take(self.theirs(case, workload, round))?;
            results.hear(case.name, &turn.lines)?;
            if let Err(why) = turn.ended {
                results.fail(workload, case.name, why);
            }
            anstream::println!("  {}", results.shortly(workload, case.name));
        }
        Ok(())
    }

    fn ours(&self, workload: &str, seed: u32) -> Command {
        let mut command = Command::new(self.workspace.root.join("target/release/kvferry"));
        command.args(["bench", "--json", "--workload", workload]);
        arguments(&mut command, &[("--rounds", REPETITIONS), ("--seed", seed)]);
        command
    }

    fn theirs(&self, case: &Case, workload: &str, seed: u32) -> Command {
        let mut command = self.venv.peer(self.workspace, case.peer);
        command.args(["--case", case.name, "--workload", workload]).args(case.arguments);
        arguments(&mut command, &[("--reps", REPETITIONS), ("--seed", seed)]);
        command.envs(case.environment.iter().copied());
        command
    }
}

fn arguments(command: &mut Command, named: &[(&str, u32)]) {
    for (name, value) in named {
        command.arg(name).arg(value.to_string());
    }
}

impl PeersArgs {
    /// Each once, in the usual order.
    fn workloads(&self) -> Vec<&'static str> {
        let named = |name: &str| self.workload.iter().any(|one| one.eq_ignore_ascii_case(name));
        WORKLOADS.into_iter().filter(|name| named(name)).collect()
    }

    /// Whether the page may rest on this run.
    fn is_whole(&self) -> bool {
        self.rounds >= ROUNDS && self.workloads().len() == WORKLOADS.len()
    }
}

fn write(args: &PeersArgs, workspace: &Workspace, section: &str) -> Result<(), Error> {
    match &args.out {
        Some(path) => put(path, section),
        None if args.is_whole() => {
            let path = workspace.root.join(page::PATH);
            let old = fs::read_to_string(&path)
                .map_err(|source| Error::Read { path: path.clone(), source })?;
            put(&path, &page::replace(&path, &old, section)?)
        }
        None => {
            anstream::println!("{} rests on whole runs alone; --out FILE writes this", page::PATH);
            Ok(())
        }
    }
}

fn put(path: &Path, text: &str) -> Result<(), Error> {
    fs::write(path, text).map_err(|source| Error::Write { path: path.to_owned(), source })?;
    anstream::println!("written: {}", path.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(rounds: u32, workload: &[&str]) -> PeersArgs {
        let workload = workload.iter().map(|&name| name.to_owned()).collect();
        PeersArgs { venv: None, rounds, workload, out: None }
    }

    #[test]
    fn a_part_of_the_rounds_or_workloads_is_no_page() {
        assert!(args(3, &WORKLOADS).is_whole());
        assert!(args(9, &["w4", "w3", "W2", "w1", "w1"]).is_whole());
        assert!(!args(2, &WORKLOADS).is_whole());
        assert!(!args(3, &["W1", "W2", "W3"]).is_whole());
    }

    /// What stands behind the name of a workload in this file.
    fn numbers(file: &str, name: &str) -> String {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file);
        let text = fs::read_to_string(path).unwrap();
        let name = format!("\"{name}\", ");
        let (_, rest) = text.lines().find_map(|line| line.split_once(&name)).unwrap();
        rest.trim_matches(|c: char| !c.is_ascii_digit()).to_owned()
    }

    #[test]
    fn both_programs_move_the_same_blocks() {
        assert_eq!(numbers("benches/peers/workload.py", "W1"), "10, 400, 165, 128 << 10");
        for name in WORKLOADS {
            let ours = numbers("crates/cli/src/bench/workload.rs", name);
            assert_eq!(numbers("benches/peers/workload.py", name), ours);
        }
    }

    #[test]
    fn workloads_come_in_the_usual_order() {
        assert_eq!(args(1, &["w4", "W2", "w4"]).workloads(), ["W2", "W4"]);
    }
}
