//! Runs the stages in order and says what each took.

use std::time::Instant;

use anstyle::{AnsiColor, Style};

use crate::CiArgs;
use crate::error::Error;
use crate::stage::{BUDGETS, Stage};
use crate::tests_stage::Tally;
use crate::workspace::Workspace;

const BOLD: Style = Style::new().bold();
const GOOD: Style = AnsiColor::Green.on_default();
const FLAG: Style = AnsiColor::Yellow.on_default();
const BAD: Style = AnsiColor::Red.on_default().bold();

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    Passed,
    Failed,
    Skipped,
    NotReached,
}

/// What became of one stage.
struct Row {
    stage: Stage,
    verdict: Verdict,
    used: u64,
    budget: u64,
}

/// Runs the chosen stages; true if none failed. The last line printed sums up the tests, where
/// they ran.
pub fn run(args: &CiArgs, workspace: &Workspace) -> bool {
    let mut tally = None;
    let rows = run_stages(args, |stage| run_stage(stage, workspace, &mut tally));
    print_table(&rows);
    if let Some(tally) = tally {
        anstream::println!("{tally}");
    }
    rows.iter().all(|row| row.verdict != Verdict::Failed)
}

fn run_stages(args: &CiArgs, mut run_one: impl FnMut(Stage) -> bool) -> Vec<Row> {
    let mut stopped = false;
    let mut rows = Vec::new();
    for (stage, budget) in BUDGETS {
        let started = Instant::now();
        let verdict = if !args.selects(stage) {
            Verdict::Skipped
        } else if stopped {
            Verdict::NotReached
        } else if run_one(stage) {
            Verdict::Passed
        } else {
            Verdict::Failed
        };
        stopped |= verdict == Verdict::Failed && !args.keep_going;
        rows.push(Row { stage, verdict, used: started.elapsed().as_secs(), budget });
    }
    rows
}

fn run_stage(stage: Stage, workspace: &Workspace, tally: &mut Option<Tally>) -> bool {
    anstream::println!("{BOLD}── {stage}{BOLD:#}");
    match stage.run(workspace) {
        Ok(counted) => {
            add(tally, counted);
            true
        }
        Err(error) => {
            if let Error::Tests(counted) = error {
                add(tally, Some(counted));
            }
            anstream::println!("{BAD}{stage} failed:{BAD:#} {error}");
            false
        }
    }
}

fn add(tally: &mut Option<Tally>, counted: Option<Tally>) {
    *tally = tally.iter().copied().chain(counted).reduce(Tally::plus);
}

fn print_table(rows: &[Row]) {
    anstream::println!("\n{BOLD}{:<14}{:>8}{:>8}{BOLD:#}", "stage", "used", "budget");
    for row in rows.iter().filter(|row| row.verdict != Verdict::Skipped) {
        let (style, note) = note(row);
        anstream::println!(
            "{:<14}{:>6} s{:>6} s  {style}{note}{style:#}",
            row.stage,
            row.used,
            row.budget
        );
    }
    let skipped: Vec<String> = rows
        .iter()
        .filter(|row| row.verdict == Verdict::Skipped)
        .map(|row| row.stage.to_string())
        .collect();
    if !skipped.is_empty() {
        anstream::println!("not asked for: {}", skipped.join(", "));
    }
}

/// Being late is a flag, not a failure: the machine may be slower than the one of the budgets.
fn note(row: &Row) -> (Style, String) {
    let over = row.used.saturating_sub(row.budget);
    match row.verdict {
        Verdict::Failed => (BAD, "FAILED".to_owned()),
        Verdict::NotReached => (FLAG, "not reached".to_owned()),
        _ if over > 0 => (FLAG, format!("ok, {over} s over budget")),
        _ => (GOOD, "ok".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdicts(args: &CiArgs, failing: &[Stage]) -> Vec<(Stage, Verdict)> {
        run_stages(args, |stage| !failing.contains(&stage))
            .into_iter()
            .filter(|row| row.verdict != Verdict::Skipped)
            .map(|row| (row.stage, row.verdict))
            .collect()
    }

    #[test]
    fn the_first_failure_stops_the_rest() {
        let rows = verdicts(&CiArgs::default(), &[Stage::Clippy]);
        assert_eq!(rows.len(), BUDGETS.len());
        assert_eq!(rows[..2], [(Stage::Fmt, Verdict::Passed), (Stage::Clippy, Verdict::Failed)]);
        assert!(rows[2..].iter().all(|(_, verdict)| *verdict == Verdict::NotReached));
    }

    #[test]
    fn keep_going_runs_the_stages_after_a_failure() {
        let args = CiArgs { keep_going: true, ..CiArgs::default() };
        let rows = verdicts(&args, &[Stage::Fmt]);
        assert_eq!(rows[0], (Stage::Fmt, Verdict::Failed));
        assert!(rows[1..].iter().all(|(_, verdict)| *verdict == Verdict::Passed));
    }

    #[test]
    fn only_and_skip_choose() {
        let only = CiArgs { only: vec![Stage::Tidy], ..CiArgs::default() };
        assert_eq!(verdicts(&only, &[]), [(Stage::Tidy, Verdict::Passed)]);
        let skip = CiArgs { skip: vec![Stage::Tidy], ..CiArgs::default() };
        let rows = verdicts(&skip, &[]);
        assert_eq!(rows.len(), BUDGETS.len() - 1);
        assert!(rows.iter().all(|(stage, _)| *stage != Stage::Tidy));
    }

    #[test]
    fn being_late_is_flagged_and_no_failure() {
        let row = |used| Row { stage: Stage::Fmt, verdict: Verdict::Passed, used, budget: 10 };
        assert_eq!(note(&row(10)).1, "ok");
        assert_eq!(note(&row(13)).1, "ok, 3 s over budget");
    }
}
