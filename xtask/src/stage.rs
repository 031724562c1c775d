//! The stages of `cargo xtask ci`, their order and their time budgets.

use std::fmt;
use std::process::Command;

use clap::ValueEnum;

use crate::error::Error;
use crate::tests_stage::Tally;
use crate::workspace::Workspace;
use crate::{doc_commands, exec, python, tests_stage, tidy};

/// One stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Stage {
    Fmt,
    Clippy,
    Test,
    Python,
    Docs,
    Tidy,
    DocCommands,
    Benches,
}

/// The order of the stages, and what each may take: seconds on two cores with an empty target
/// folder. All of them together stay within a quarter of an hour.
pub const BUDGETS: [(Stage, u64); 8] = [
    (Stage::Fmt, 10),
    (Stage::Clippy, 80),
    (Stage::Test, 300),
    (Stage::Python, 110),
    (Stage::Docs, 40),
    (Stage::Tidy, 10),
    (Stage::DocCommands, 150),
    (Stage::Benches, 200),
];

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Fmt => "fmt",
            Self::Clippy => "clippy",
            Self::Test => "test",
            Self::Python => "python",
            Self::Docs => "docs",
            Self::Tidy => "tidy",
            Self::DocCommands => "doc-commands",
            Self::Benches => "benches",
        })
    }
}

impl Stage {
    /// Runs this stage. Only the stages of tests count anything.
    pub fn run(self, workspace: &Workspace) -> Result<Option<Tally>, Error> {
        match self {
            Self::Fmt => exec::run(cargo(workspace, "fmt --all --check"))?,
            Self::Clippy => {
                exec::run(locked(workspace, "clippy --workspace --all-targets -- -D warnings"))?;
            }
            Self::Test => return tests_stage::run(workspace).map(Some),
            Self::Python => return python::test(workspace).map(Some),
            Self::Docs => {
                let mut command = locked(workspace, "doc --workspace --no-deps");
                command.env("RUSTDOCFLAGS", "-D warnings");
                exec::run(command)?;
            }
            Self::Tidy => tidy::run(workspace)?,
            Self::DocCommands => doc_commands::run(workspace)?,
            Self::Benches => exec::run(locked(workspace, "bench --workspace --no-run"))?,
        }
        Ok(None)
    }
}

/// `cargo` with these words, in the root of the repository.
pub fn cargo(workspace: &Workspace, words: &str) -> Command {
    // Set by the cargo that runs us, so that the stages use the same one.
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.args(words.split_whitespace()).current_dir(&workspace.root);
    command
}

/// [`cargo`] that builds from the lock file as it is, where the repository has one: a build that
/// would change it would not be the build of anybody else.
pub fn locked(workspace: &Workspace, words: &str) -> Command {
    match workspace.has_lock_file() {
        true => cargo(workspace, &with_locked(words)),
        false => cargo(workspace, words),
    }
}

/// Before the first option, since what stands behind `--` is for another program.
fn with_locked(words: &str) -> String {
    match words.split_once(" --") {
        Some((task, options)) => format!("{task} --locked --{options}"),
        None => format!("{words} --locked"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_stands_before_the_first_option() {
        for (words, expected) in [
            ("clippy --all-targets -- -D warnings", "clippy --locked --all-targets -- -D warnings"),
            ("nextest run --workspace", "nextest run --locked --workspace"),
            ("bench", "bench --locked"),
        ] {
            assert_eq!(with_locked(words), expected);
        }
    }

    #[test]
    fn the_lock_is_asked_for_where_the_repository_has_one() {
        let words = |root: &std::path::Path| {
            let (root, members, foreign) = (root.to_path_buf(), Vec::new(), Vec::new());
            let command = locked(&Workspace { root, members, foreign }, "bench --no-run");
            command.get_args().map(|arg| arg.to_string_lossy().into_owned()).collect::<Vec<_>>()
        };
        let ours = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        assert_eq!(words(&ours), ["bench", "--locked", "--no-run"]);
        assert_eq!(words(&std::env::temp_dir()), ["bench", "--no-run"]);
    }

    #[test]
    fn every_stage_has_one_budget_and_all_fit_in_a_quarter_of_an_hour() {
        for stage in Stage::value_variants() {
            assert_eq!(BUDGETS.iter().filter(|(s, _)| s == stage).count(), 1, "{stage}");
        }
        assert!(BUDGETS.iter().map(|(_, seconds)| seconds).sum::<u64>() <= 15 * 60);
    }

    #[test]
    fn a_stage_prints_as_the_name_that_the_command_line_takes() {
        for stage in Stage::value_variants() {
            assert_eq!(Stage::from_str(&stage.to_string(), false).as_ref(), Ok(stage));
        }
    }
}
