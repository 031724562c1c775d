//! `cargo xtask fuzz`: runs the targets of `fuzz/` under the coverage-guided engine.
//!
//! The engine is libFuzzer, which any stable compiler can count for: the flags below ask LLVM for
//! the counters. What a run finds new lies under `target/fuzz`; `--keep` brings the smallest set
//! that reaches as much back into the repository.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::FuzzArgs;
use crate::error::Error;
use crate::exec::{self, Output};
use crate::stage::locked;
use crate::workspace::Workspace;

/// Coverage of edges, with the operands of comparisons, which the engine then tries.
const COUNTERS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares";

/// Bytes of an input at most, as `fuzz::short` has it.
const MAX_INPUT: &str = "-max_len=4096";

/// Seconds for one input, and MiB of the whole process: more is a finding.
const LIMITS: [&str; 2] = ["-timeout=10", "-rss_limit_mb=2048"];

/// What became of one target.
#[derive(Debug, Default, PartialEq, Eq)]
struct Run {
    executions: u64,
    /// The file of the input that broke a promise.
    found: Option<String>,
}

/// Where one target keeps what.
struct Places {
    target: String,
    /// In the repository.
    kept: PathBuf,
    /// What runs have added.
    work: PathBuf,
    /// Where what breaks a promise is written to.
    found: PathBuf,
}

/// Runs one target or all of them and prints a line for each.
pub fn run(args: &FuzzArgs, workspace: &Workspace) -> Result<(), Error> {
    let targets = chosen(args, &workspace.root.join("fuzz/corpus"))?;
    let engine = build(workspace)?;
    let mut lines = Vec::new();
    let mut broken = 0;
    for target in targets {
        let places = Places::new(&workspace.root, target)?;
        let before = places.inputs()?;
        let run = explore(&engine, &places, args.minutes)?;
        broken += usize::from(run.found.is_some());
        let after = places.inputs()?;
        if args.keep {
            keep(&engine, &places)?;
        }
        lines.push(places.line(&run, before, after)?);
    }
    lines.iter().for_each(|line| anstream::println!("{line}"));
    if broken == 0 { Ok(()) } else { Err(Error::Fuzz(broken)) }
}

/// The targets are the folders of the kept corpora.
fn chosen(args: &FuzzArgs, corpora: &Path) -> Result<Vec<String>, Error> {
    let mut known: Vec<String> = files(corpora)?
        .iter()
        .filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned()))
        .collect();
    known.sort();
    match &args.target {
        None => Ok(known),
        Some(name) if known.contains(name) => Ok(vec![name.clone()]),
        Some(name) => Err(Error::Target { name: name.clone(), known: known.join(", ") }),
    }
}

/// Builds the engine into a folder of its own, since all of it carries the counters. With a
/// target named, cargo leaves build scripts and macros without.
fn build(workspace: &Workspace) -> Result<PathBuf, Error> {
    let host = host()?;
    let words = "build --package fuzz --bin engine --features engine --profile fuzz";
    let mut command = locked(workspace, words);
    command.args(["--target", &host, "--target-dir", "target/fuzz/build"]);
    command.env("RUSTFLAGS", COUNTERS);
    exec::run(command)?;
    Ok(workspace.root.join(format!("target/fuzz/build/{host}/fuzz/engine")))
}

fn host() -> Result<String, Error> {
    let output = Command::new("rustc").arg("-vV").output();
    let output = output.map_err(|source| Error::Spawn { program: "rustc".to_owned(), source })?;
    let text = String::from_utf8_lossy(&output.stdout);
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| Error::Exit {
        command: "rustc -vV".to_owned(),
        status: "no host".to_owned(),
    })
}

/// Runs the engine for so long, or until it has found something.
fn explore(engine: &Path, places: &Places, minutes: f64) -> Result<Run, Error> {
    let mut command = places.engine(engine);
    command.arg(format!("-max_total_time={:.0}", (minutes * 60.0).max(1.0)));
    command.arg(format!("-artifact_prefix={}/", places.found.display()));
    command.arg("-print_final_stats=1").args(LIMITS).arg(&places.work).arg(&places.kept);
    let mut run = Run::default();
    match exec::sift(command, Output::Stderr, |line| run.see(line)) {
        // The input says why; the exit code says no more.
        Err(Error::Exit { .. }) if run.found.is_some() => Ok(run),
        other => other.map(|()| run),
    }
}

/// Replaces what is kept with the smallest set of inputs that reaches as much as all together. How
/// often a place is reached does not count here: that would make it ten times as large.
fn keep(engine: &Path, places: &Places) -> Result<(), Error> {
    let merged = places.work.with_extension("merged");
    empty(&merged)?;
    let mut command = places.engine(engine);
    command
        .args(["-set_cover_merge=1", "-use_counters=0"])
        .arg(&merged)
        .arg(&places.kept)
        .arg(&places.work);
    exec::run(command)?;
    empty(&places.kept)?;
    for file in files(&merged)? {
        let Some(name) = file.file_name() else { continue };
        let to = places.kept.join(name);
        fs::copy(&file, &to).map_err(|source| Error::Write { path: to, source })?;
    }
    Ok(())
}

fn empty(folder: &Path) -> Result<(), Error> {
    let failed = |source| Error::Write { path: folder.to_owned(), source };
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    fs::create_dir_all(folder).map_err(failed)
}

fn files(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let failed = |source| Error::Read { path: folder.to_owned(), source };
    let entries = fs::read_dir(folder).map_err(failed)?;
    entries.map(|entry| entry.map(|entry| entry.path()).map_err(failed)).collect()
}

impl Places {
    fn new(root: &Path, target: String) -> Result<Self, Error> {
        let under = |folder: &str| root.join(folder).join(&target);
        let (work, found) = (under("target/fuzz/corpus"), under("target/fuzz/found"));
        for folder in [&work, &found] {
            fs::create_dir_all(folder)
                .map_err(|source| Error::Write { path: folder.clone(), source })?;
        }
        Ok(Self { kept: under("fuzz/corpus"), work, found, target })
    }

    fn engine(&self, engine: &Path) -> Command {
        let mut command = Command::new(engine);
        command.env("KVFERRY_FUZZ", &self.target).args(["-verbosity=0", MAX_INPUT]);
        command
    }

    /// Inputs of the corpus, kept and added.
    fn inputs(&self) -> Result<usize, Error> {
        Ok(files(&self.kept)?.len() + files(&self.work)?.len())
    }

    fn line(&self, run: &Run, before: usize, after: usize) -> Result<String, Error> {
        let (target, executions) = (&self.target, run.executions);
        let kept = files(&self.kept)?.len();
        let mut line = format!(
            "{target}: {executions} executions, corpus {before} -> {after} inputs, {kept} kept"
        );
        if let Some(file) = &run.found {
            line += &format!("\n  BROKEN by {file}\n  replay: {}", replay(target, file));
        }
        Ok(line)
    }
}

fn replay(target: &str, file: &str) -> String {
    format!("cargo run -p fuzz --bin replay -- {target} {file}")
}

impl Run {
    /// Reads a line; false if it is one of the dictionary that the engine recommends.
    fn see(&mut self, line: &str) -> bool {
        if let Some(count) = line.strip_prefix("stat::number_of_executed_units:") {
            self.executions = count.trim().parse().unwrap_or_default();
        }
        if let Some((_, file)) = line.split_once("Test unit written to ") {
            self.found = Some(file.trim().to_owned());
        }
        !line.starts_with(['"', '#'])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_engine_says_at_the_end_is_read() {
        let mut run = Run::default();
        assert!(run.see("stat::number_of_executed_units: 96573"));
        assert!(run.see("stat::new_units_added:          1"));
        assert!(!run.see("\"\\377\\377\" # Uses: 14"));
        assert_eq!(run, Run { executions: 96573, found: None });
        assert!(run.see("artifact_prefix='a/'; Test unit written to a/crash-c558"));
        assert_eq!(run.found.as_deref(), Some("a/crash-c558"));
    }

    #[test]
    fn a_target_is_chosen_by_its_corpus_and_an_unknown_one_names_those_there_are() {
        let corpora = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus");
        let args = |target: Option<&str>| FuzzArgs {
            target: target.map(str::to_owned),
            minutes: 1.0,
            keep: false,
        };
        assert!(chosen(&args(None), &corpora).unwrap().len() > 1);
        assert_eq!(chosen(&args(Some("planner")), &corpora).unwrap(), ["planner"]);
        let error = chosen(&args(Some("plan")), &corpora).unwrap_err().to_string();
        assert!(error.contains("`plan`") && error.contains("planner"), "{error}");
    }
}
