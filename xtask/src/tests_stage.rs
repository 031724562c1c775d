//! The test stage: unit and integration tests with nextest where it is installed, doc tests with
//! cargo, and one line that sums both up.

use std::fmt;

use crate::error::Error;
use crate::exec::{self, Output};
use crate::stage::{cargo, locked};
use crate::workspace::Workspace;

/// How many tests passed and failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub passed: u64,
    pub failed: u64,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.failed == 0 { "ok" } else { "FAILED" };
        write!(f, "test result: {verdict}. {} passed; {} failed", self.passed, self.failed)
    }
}

/// Runs all tests; a test that fails is [`Error::Tests`], anything else that fails is not.
pub fn run(workspace: &Workspace) -> Result<Tally, Error> {
    let mut tally = Tally::default();
    let outcome = run_unit_tests(workspace, &mut tally)
        .and_then(|()| tally.must_have_run())
        .and_then(|()| run_doc_tests(workspace, &mut tally));
    tally.judge(outcome)
}

fn run_unit_tests(workspace: &Workspace, tally: &mut Tally) -> Result<(), Error> {
    if exec::succeeds(cargo(workspace, "nextest --version")) {
        let words = "nextest run --workspace --no-fail-fast --no-tests pass \
                     --status-level fail --final-status-level fail";
        let command = locked(workspace, words);
        return exec::watch(command, Output::Stderr, |line| tally.add(line, NEXTEST));
    }
    // `--tests` leaves the doc tests to the second command.
    let command = locked(workspace, "test --workspace --tests --no-fail-fast");
    exec::watch(command, Output::Stdout, |line| tally.add(line, CARGO))
}

/// Packages are named one by one: cargo refuses `--doc` for one that is a program alone.
fn run_doc_tests(workspace: &Workspace, tally: &mut Tally) -> Result<(), Error> {
    let mut command = locked(workspace, "test --no-fail-fast --doc");
    for member in workspace.members.iter().filter(|member| member.doc_tests) {
        command.args(["--package", &member.name]);
    }
    exec::watch(command, Output::Stdout, |line| tally.add(line, CARGO))
}

/// How the summary lines of the runners begin. Only the runner's own are looked for: nextest
/// shows what a failed test printed, and that ends with a line in the format of cargo.
const NEXTEST: &str = "Summary [";
const CARGO: &str = "test result: ";

impl Tally {
    /// What a run of tests came to: a failed test says more than the runner's exit status.
    pub fn judge(self, outcome: Result<(), Error>) -> Result<Self, Error> {
        match outcome {
            Err(_) if self.failed > 0 => Err(Error::Tests(self)),
            other => other.and_then(|()| self.must_have_run()).map(|()| self),
        }
    }

    /// Both together.
    pub fn plus(self, other: Self) -> Self {
        Self { passed: self.passed + other.passed, failed: self.failed + other.failed }
    }

    /// Adds what pytest's last line says: "3 failed, 41 passed, 2 skipped in 1.20s".
    pub fn add_pytest(&mut self, line: &str) {
        let (counts, time) = line.rsplit_once(" in ").unwrap_or_default();
        if time.ends_with('s') && counts.starts_with(|first: char| first.is_ascii_digit()) {
            self.add_counts(counts);
        }
    }

    /// A runner that finds no test is content; we are not.
    fn must_have_run(self) -> Result<(), Error> {
        match self {
            Self { passed: 0, failed: 0 } => Err(Error::NoTests),
            _ => Ok(()),
        }
    }

    /// Adds what a summary line says; other lines say nothing.
    fn add(&mut self, line: &str, summary: &str) {
        let line = line.trim_start();
        if line.starts_with(summary) {
            self.add_counts(line);
        }
    }

    /// In both formats a count stands before its word: "4 passed", "1 failed", "2 timed out".
    fn add_counts(&mut self, line: &str) {
        let words: Vec<&str> = line.split([' ', '(', ')', ',', ';']).collect();
        for pair in words.windows(2) {
            let Ok(count) = pair[0].parse::<u64>() else { continue };
            match pair[1] {
                "passed" => self.passed += count,
                "failed" | "timed" | "exec" | "error" | "errors" => self.failed += count,
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(lines: &[&str], summary: &str) -> (u64, u64) {
        let mut tally = Tally::default();
        lines.iter().for_each(|line| tally.add(line, summary));
        (tally.passed, tally.failed)
    }

    #[test]
    fn a_summary_of_nextest_is_counted() {
        let lines = ["     Summary [   1.250s] 12 tests run: 12 passed (1 slow), 3 skipped"];
        assert_eq!(tally(&lines, NEXTEST), (12, 0));
    }

    #[test]
    fn everything_that_nextest_did_not_pass_has_failed() {
        let lines = [
            "    test result: FAILED. 0 passed; 1 failed; 0 ignored",
            "Summary [ 0.1s] 9 tests run: 4 passed, 2 failed, 1 timed out, 2 exec failed, 0 skipped",
        ];
        assert_eq!(tally(&lines, NEXTEST), (4, 5));
    }

    #[test]
    fn the_summaries_of_cargo_are_summed() {
        let lines = [
            "test a::b ... ok",
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out",
            "test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out",
        ];
        assert_eq!(tally(&lines, CARGO), (5, 1));
    }

    #[test]
    fn the_summary_of_pytest_is_counted() {
        let mut tally = Tally::default();
        for line in [
            "FAILED tests/test_handoff.py::test_bytes - assert 3 passed in 4s",
            "2 failed, 41 passed, 3 skipped, 1 error in 12.34s",
        ] {
            tally.add_pytest(line);
        }
        assert_eq!((tally.passed, tally.failed), (41, 3));
    }

    #[test]
    fn a_run_without_tests_is_a_failure() {
        let tally = |passed, failed| Tally { passed, failed };
        assert!(matches!(tally(0, 0).must_have_run(), Err(Error::NoTests)));
        for some in [tally(1, 0), tally(0, 1)] {
            assert!(some.must_have_run().is_ok(), "{some}");
        }
        let mut none = Tally::default();
        none.add("     Summary [   0.001s] 0 tests run: 0 passed, 0 skipped", NEXTEST);
        assert!(matches!(none.must_have_run(), Err(Error::NoTests)));
    }

    #[test]
    fn the_tests_that_failed_are_told_before_all_else() {
        let tally = Tally { passed: 3, failed: 1 };
        assert!(matches!(tally.judge(Err(Error::Tidy(1))), Err(Error::Tests(_))));
        let none = Tally::default().judge(Err(Error::NoTests));
        assert!(matches!(none, Err(Error::NoTests)));
        assert_eq!(Tally { passed: 3, failed: 0 }.judge(Ok(())).unwrap().passed, 3);
    }

    #[test]
    fn the_last_line_reads_as_cargo_writes_it() {
        assert_eq!(
            Tally { passed: 312, failed: 0 }.to_string(),
            "test result: ok. 312 passed; 0 failed"
        );
        assert_eq!(
            Tally { passed: 3, failed: 1 }.to_string(),
            "test result: FAILED. 3 passed; 1 failed"
        );
    }
}
