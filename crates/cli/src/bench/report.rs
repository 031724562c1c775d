//! What was measured, as people read it in a terminal.

use super::figures::{Measured, Summary};
use crate::output;

/// What stands in a table; names stand in its first column.
pub(super) struct Table {
    pub(super) header: Vec<String>,
    pub(super) rows: Vec<Vec<String>>,
}

impl Table {
    fn new(header: &[&str], rows: Vec<Vec<String>>) -> Self {
        Self { header: header.iter().map(|&name| name.to_owned()).collect(), rows }
    }

    fn print(self) {
        let header: Vec<&str> = self.header.iter().map(String::as_str).collect();
        output::line(output::table(&header, &[0], self.rows));
    }
}

/// Prints a table for each named workload, and one for all that are of one region.
pub(super) fn print(all: &[Measured]) {
    let (flat, named): (Vec<_>, Vec<_>) = all.iter().partition(|one| is_flat(one));
    for measured in named {
        output::title(&title(measured));
        table(measured).print();
        notes(measured).into_iter().for_each(output::line);
    }
    if !flat.is_empty() {
        output::title(SWEEP);
        sweep(&flat).print();
        flat.iter().flat_map(|measured| notes(measured)).for_each(output::line);
    }
}

/// What stands under a table: the cases that could not be measured.
pub(super) fn notes(measured: &Measured) -> Vec<String> {
    let each = measured.skipped.iter();
    each.map(|one| format!("{} of {} was left out: {}", one.case, one.workload, one.why)).collect()
}

/// What stands over the table of many workloads.
pub(super) const SWEEP: &str = "Blocks of one region, gigabytes a second";

pub(super) fn title(measured: &Measured) -> String {
    let workload = &measured.workload;
    format!("{} · {}", workload.name, workload.words())
}

/// The table of one workload.
pub(super) fn table(measured: &Measured) -> Table {
    if measured.workload.is_latency() { latency(measured) } else { rates(measured) }
}

/// One of many that differ in blocks and their number alone.
pub(super) fn is_flat(measured: &Measured) -> bool {
    measured.workload.regions == 1 && !measured.workload.is_latency()
}

fn rates(measured: &Measured) -> Table {
    let header = [
        "case",
        "median ms",
        "min ms",
        "spread",
        "GB/s",
        "of limit",
        "first ms",
        "posted µs",
        "CPU ms, reader",
        "source",
        "MiB over pools, reader",
        "source",
    ];
    let row = |summary: Summary| {
        let ms = |seconds: f64| format!("{:.1}", seconds * 1e3);
        vec![
            summary.case.clone(),
            ms(summary.times.median_s),
            ms(summary.times.min_s),
            spread(&summary),
            format!("{:.2}", summary.gigabytes_per_second),
            of_limit(&summary),
            ms(summary.times.first_s),
            posted(&summary),
            ms(summary.cpu_s.reader),
            ms(summary.cpu_s.source),
            mebibytes(summary.resident_over_pools_bytes.reader),
            mebibytes(summary.resident_over_pools_bytes.source),
        ]
    };
    Table::new(&header, measured.summaries().into_iter().map(row).collect())
}

fn latency(measured: &Measured) -> Table {
    let header = [
        "case",
        "median µs",
        "p99 µs",
        "min µs",
        "of limit",
        "first µs",
        "posted µs",
        "CPU µs, reader",
        "source",
    ];
    let row = |summary: Summary| {
        let us = |seconds: f64| format!("{:.1}", seconds * 1e6);
        vec![
            summary.case.clone(),
            us(summary.times.median_s),
            summary.times.p99_s.map_or_else(|| "–".to_owned(), us),
            us(summary.times.min_s),
            of_limit(&summary),
            us(summary.times.first_s),
            posted(&summary),
            us(summary.cpu_s.reader),
            us(summary.cpu_s.source),
        ]
    };
    Table::new(&header, measured.summaries().into_iter().map(row).collect())
}

/// A row a workload, a column a case.
pub(super) fn sweep(all: &[&Measured]) -> Table {
    let mut cases: Vec<&str> = Vec::new();
    for series in all.iter().flat_map(|measured| &measured.series) {
        if !cases.contains(&series.case.as_str()) {
            cases.push(&series.case);
        }
    }
    let row = |measured: &&Measured| {
        let rate = |case: &&str| {
            let series = measured.series.iter().find(|series| series.case == **case);
            let rate = series.map(|series| format!("{:.2}", measured.rate(series.median())));
            rate.unwrap_or_else(|| "–".to_owned())
        };
        let name = measured.workload.name.clone();
        [name].into_iter().chain(cases.iter().map(rate)).collect()
    };
    let header: Vec<&str> = ["blocks"].into_iter().chain(cases.iter().copied()).collect();
    Table::new(&header, all.iter().map(row).collect())
}

/// How far apart slowest and fastest are.
fn spread(summary: &Summary) -> String {
    if summary.times.median_s > 0.0 {
        let spread = (summary.times.max_s - summary.times.min_s) / summary.times.median_s;
        return format!("{:.0} %", 100.0 * spread);
    }
    "–".to_owned()
}

/// Until the caller was free again, in microseconds.
fn posted(summary: &Summary) -> String {
    summary.times.posted_s.map_or_else(|| "–".to_owned(), |posted| format!("{:.1}", posted * 1e6))
}

fn of_limit(summary: &Summary) -> String {
    summary.of_limit.map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.2}"))
}

#[allow(clippy::cast_precision_loss, reason = "one decimal is shown")]
fn mebibytes(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / f64::from(1 << 20))
}
