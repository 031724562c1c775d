//! Why a task stopped.

use std::io;
use std::path::PathBuf;

use crate::tests_stage::Tally;

/// Why a stage failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A program is missing, or may not be run.
    #[error("cannot run `{program}`: {source}")]
    Spawn { program: String, source: io::Error },
    /// A program ran and said no.
    #[error("`{command}` ended with {status}")]
    Exit { command: String, status: String },
    /// A file of the repository cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// A file or folder cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
    /// Cargo does not understand the workspace.
    #[error("cargo metadata: {0}")]
    Metadata(#[from] cargo_metadata::Error),
    /// A test failed.
    #[error("{} of {} tests", .0.failed, .0.passed + .0.failed)]
    Tests(Tally),
    /// No test ran, which says nothing about the code.
    #[error("no test ran")]
    NoTests,
    /// The tree breaks rules of the house.
    #[error("{0} places break a rule")]
    Tidy(usize),
    /// A page shows commands that do not do what it says.
    #[error("{0} commands do not do what their page says")]
    DocCommands(usize),
    /// There is no fuzz target of this name.
    #[error("no fuzz target is called `{name}`; there are {known}")]
    Target { name: String, known: String },
    /// Inputs were found that break a promise.
    #[error("{0} targets broke a promise")]
    Fuzz(usize),
    /// A transfer engine, ours or another, put bytes where they do not belong.
    #[error("{case}: {bytes} bytes of {workload} arrived wrong")]
    WrongBytes { case: String, workload: String, bytes: u64 },
    /// A program that measures, and this one, no longer agree on what is said.
    #[error("{case} said what cannot be read: {source}: {line}")]
    Line { case: String, line: String, source: serde_json::Error },
    /// A page lacks one of two marks, or has them the wrong way round.
    #[error("{}: `{begin}` and `{end}` must stand in this order, or neither", path.display())]
    Marks { path: PathBuf, begin: &'static str, end: &'static str },
}
