//! The table of each workload.

use super::figures::{Figures, Results, Series};
use super::lines::Both;

/// What every case is compared with.
const BASES: [&str; 2] = ["kvferry tcp", "kvferry shm"];

/// Where there is no figure.
const NONE: &str = "–";

/// One table, its title, and what stands below it.
pub struct Table {
    pub title: String,
    header: Vec<String>,
    rows: Vec<Vec<String>>,
    /// Cases without figures, and why.
    pub failed: Vec<String>,
}

/// A unit of time.
#[derive(Clone, Copy)]
struct Unit {
    name: &'static str,
    in_a_second: f64,
}

const MILLI: Unit = Unit { name: "ms", in_a_second: 1e3 };
const MICRO: Unit = Unit { name: "µs", in_a_second: 1e6 };

/// One for each workload.
pub fn all(workloads: &[&str], results: &Results) -> Vec<Table> {
    workloads.iter().map(|workload| Table::new(workload, results)).collect()
}

impl Table {
    fn new(workload: &str, results: &Results) -> Self {
        let is_latency = workload == "W4";
        let unit = if is_latency { MICRO } else { MILLI };
        let series: Vec<&Series> = results.of(workload).collect();
        let bases = BASES.map(|base| {
            let series = series.iter().find(|series| series.case == base);
            series.and_then(|series| series.figures()).map(|figures| figures.median)
        });
        let row = |series: &&Series| row(series, unit, bases);
        let failed = |series: &&Series| {
            let why = series.failed.as_ref()?;
            Some(format!("{}: {why}", series.case))
        };
        Self {
            title: format!("{workload}: {}", words(workload)),
            header: header(unit.name),
            rows: series.iter().map(row).collect(),
            failed: series.iter().filter_map(failed).collect(),
        }
    }

    /// As a page has it.
    pub fn markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let rule = vec!["---".to_owned(); self.header.len()];
        let rows = self.rows.iter().map(|row| line(row));
        [line(&self.header), line(&rule)].into_iter().chain(rows).collect()
    }

    /// In columns, for a terminal.
    pub fn plain(&self) -> String {
        let all = || [&self.header].into_iter().chain(&self.rows);
        let width = |at: usize| all().map(|row| row[at].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..self.header.len()).map(width).collect();
        let line = |row: &Vec<String>| {
            let cells = row.iter().zip(&widths).enumerate();
            let cells = cells.map(|(at, (cell, &width))| match at {
                0 => format!("{cell:<width$}"),
                _ => format!("{cell:>width$}"),
            });
            cells.collect::<Vec<_>>().join("  ") + "\n"
        };
        let failed = self.failed.iter().map(|failed| format!("{failed}\n"));
        all().map(line).chain(failed).collect()
    }
}

/// What is moved.
fn words(workload: &str) -> &'static str {
    match workload {
        "W1" => "165 of 400 blocks of 128 KiB in each of 10 regions",
        "W2" => "63 of 80 blocks of 128 KiB in each of 68 regions",
        "W3" => "128 of 1024 blocks of 4 KiB in each of 64 regions",
        _ => "one block of 4 KiB",
    }
}

fn header(unit: &str) -> Vec<String> {
    let timed = |name: &str| format!("{name}, {unit}");
    vec![
        "case".to_owned(),
        timed("median"),
        timed("min"),
        timed("p99"),
        "× kvferry tcp".to_owned(),
        "× kvferry shm".to_owned(),
        format!("CPU {unit}, reader + source"),
        timed("posted"),
        "first, ms".to_owned(),
        "MiB over pools".to_owned(),
        "idle cores".to_owned(),
        "repetitions".to_owned(),
    ]
}

fn row(series: &Series, unit: Unit, bases: [Option<f64>; 2]) -> Vec<String> {
    let Some(figures) = series.figures() else {
        let rest = vec![NONE.to_owned(); header("").len() - 1];
        return [series.case.clone()].into_iter().chain(rest).collect();
    };
    let time = |seconds: f64| format!("{:.1}", seconds * unit.in_a_second);
    let or_none = |seconds: Option<f64>| seconds.map_or_else(|| NONE.to_owned(), time);
    let ratio = |base: Option<f64>| {
        base.map_or_else(|| NONE.to_owned(), |base| format!("{:.2}", figures.median / base))
    };
    let Figures { cpu, over_pools, idle, .. } = &figures;
    vec![
        series.case.clone(),
        time(figures.median),
        time(figures.min),
        or_none(figures.p99),
        ratio(bases[0]),
        ratio(bases[1]),
        format!("{} + {}", time(cpu.reader), time(cpu.source)),
        or_none(figures.posted),
        format!("{:.1}", figures.first * 1e3),
        format!("{} + {}", mebibytes(over_pools.reader), mebibytes(over_pools.source)),
        idle.map_or_else(|| NONE.to_owned(), cores),
        figures.count.to_string(),
    ]
}

fn cores(idle: Both<f64>) -> String {
    format!("{:.2} + {:.2}", idle.reader, idle.source)
}

#[allow(clippy::cast_precision_loss, reason = "one decimal is shown")]
fn mebibytes(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / f64::from(1 << 20))
}

#[cfg(test)]
pub mod tests {
    use super::super::figures::tests::pair;
    use super::*;

    /// W3 with kvferry's providers, a peer that is slower, and one that fails.
    pub fn table() -> Table {
        let mut results = Results::default();
        for (speaker, case, seconds) in
            [("kvferry", "tcp", 0.01), ("kvferry", "shm", 0.005), ("slow", "slow", 0.09)]
        {
            results.hear(speaker, &pair(case, &[1.0, seconds])).unwrap();
        }
        results.fail("W3", "broken", "its queue is full".to_owned());
        all(&["W3"], &results).remove(0)
    }

    #[test]
    fn each_case_is_compared_with_both_providers() {
        let lines: Vec<String> = table().markdown().lines().map(str::to_owned).collect();
        assert_eq!(lines.len(), 6);
        assert!(lines[0].starts_with("| case | median, ms | min, ms | "), "{}", lines[0]);
        assert!(lines[2].starts_with("| kvferry tcp | 10.0 | 10.0 | – | 1.00 | 2.00 | "));
        assert!(lines[4].starts_with("| slow | 90.0 | 90.0 | – | 9.00 | 18.00 | 9.0 + 8.0 | – | "));
        assert!(lines[4].ends_with(" | 20.0 | 4.0 + 2.0 | – | 1 |"), "{}", lines[4]);
        let columns = |line: &String| line.matches(" | ").count();
        assert!(lines.iter().all(|line| columns(line) == 11));
    }

    #[test]
    fn a_case_that_fails_has_a_row_and_a_reason() {
        let table = table();
        assert!(table.markdown().contains("| broken | – | – |"));
        assert_eq!(table.failed, ["broken: its queue is full"]);
        assert!(table.plain().ends_with("broken: its queue is full\n"));
    }

    #[test]
    fn columns_are_straight_in_a_terminal() {
        let plain = table().plain();
        let widths: Vec<usize> = plain.lines().take(5).map(|line| line.chars().count()).collect();
        assert!(widths.iter().all(|&width| width == widths[0]), "{plain}");
    }
}
