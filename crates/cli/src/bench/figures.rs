//! What rounds add up to.

use serde::Serialize;

use super::case::Kind;
use super::workload::Workload;

/// One round of one case.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Round {
    pub(super) case: String,
    pub(super) workload: String,
    /// From 1; 0 is the first, which meets new connections and is not counted.
    pub(super) round: u32,
    /// How often the blocks were moved in it; the figures are those of one time.
    pub(super) transfers: u32,
    pub(super) seconds: f64,
    pub(super) cpu_reader_s: f64,
    pub(super) cpu_source_s: f64,
    pub(super) bytes: u64,
    /// Bytes that arrived wrong, of all transfers.
    pub(super) wrong: u64,
}

/// A case that cannot read from this source at all.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Skipped {
    pub(super) case: String,
    pub(super) workload: String,
    pub(super) why: String,
}

/// What is told while it goes on.
pub(super) enum Told<'a> {
    Round(&'a Round),
    Skipped(&'a Skipped),
}

/// The same figure of both processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Both<T> {
    pub(super) reader: T,
    pub(super) source: T,
}

/// All rounds of one case with one workload.
#[derive(Clone, Debug)]
pub(super) struct Series {
    pub(super) case: String,
    pub(super) kind: Kind,
    pub(super) is_limit: bool,
    pub(super) rounds: Vec<Round>,
    /// Of each transfer of the rounds that count, in seconds.
    pub(super) times: Vec<f64>,
    /// Of the same, until the caller was free again, where somebody else does the rest.
    pub(super) posted: Vec<f64>,
    /// Most that was resident beside the pools.
    pub(super) over_pools: Both<u64>,
}

/// The rounds of all cases with one workload.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    pub(super) workload: Workload,
    pub(super) series: Vec<Series>,
    pub(super) skipped: Vec<Skipped>,
    /// Cores that are taken when nothing is asked for, with the connections of all cases.
    pub(super) idle: Both<f64>,
}

/// How long transfers of one case took, in seconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Times {
    /// The first transfer of the pair, connecting included.
    pub(super) first_s: f64,
    pub(super) median_s: f64,
    pub(super) min_s: f64,
    pub(super) max_s: f64,
    /// Of single transfers, where there are enough of them.
    pub(super) p99_s: Option<f64>,
    /// From block ids until the caller is free, where somebody else does the rest.
    pub(super) posted_s: Option<f64>,
}

/// What is told of one case.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Summary {
    pub(super) case: String,
    pub(super) workload: String,
    #[serde(flatten)]
    pub(super) times: Times,
    pub(super) gigabytes_per_second: f64,
    /// Its speed over that of the fastest plain limit of its kind.
    pub(super) of_limit: Option<f64>,
    pub(super) cpu_s: Both<f64>,
    pub(super) resident_over_pools_bytes: Both<u64>,
    /// Of both processes with the connections of all cases, where this is one of those.
    pub(super) idle_cores: Option<Both<f64>>,
    pub(super) wrong: u64,
}

impl Series {
    pub(super) fn counted(&self) -> impl Iterator<Item = &Round> {
        self.rounds.iter().filter(|round| round.round > 0)
    }

    /// A figure of the rounds that count.
    fn sorted(&self, figure: impl Fn(&Round) -> f64) -> Vec<f64> {
        sorted(self.counted().map(figure).collect())
    }

    /// Of all single transfers.
    pub(super) fn median(&self) -> f64 {
        quantile(&sorted(self.times.clone()), 0.5)
    }
}

impl Measured {
    pub(super) fn summaries(&self) -> Vec<Summary> {
        self.series.iter().map(|series| self.summary(series)).collect()
    }

    fn summary(&self, series: &Series) -> Summary {
        let times = sorted(series.times.clone());
        let median = quantile(&times, 0.5);
        let first = series.rounds.first().map_or(0.0, |round| round.seconds);
        Summary {
            case: series.case.clone(),
            workload: self.workload.name.clone(),
            times: Times {
                first_s: first,
                median_s: median,
                min_s: quantile(&times, 0.0),
                max_s: quantile(&times, 1.0),
                p99_s: (times.len() >= 100).then(|| quantile(&times, 0.99)),
                posted_s: (!series.posted.is_empty())
                    .then(|| quantile(&sorted(series.posted.clone()), 0.5)),
            },
            gigabytes_per_second: self.rate(median),
            of_limit: self.limit(series.kind).map(|best| best.median() / median),
            cpu_s: Both {
                reader: quantile(&series.sorted(|round| round.cpu_reader_s), 0.5),
                source: quantile(&series.sorted(|round| round.cpu_source_s), 0.5),
            },
            resident_over_pools_bytes: series.over_pools,
            idle_cores: (!series.is_limit).then_some(self.idle),
            wrong: series.rounds.iter().map(|round| round.wrong).sum(),
        }
    }

    /// The fastest plain limit of a kind.
    pub(super) fn limit(&self, kind: Kind) -> Option<&Series> {
        let limits = self.series.iter().filter(|series| series.is_limit && series.kind == kind);
        limits.min_by(|a, b| a.median().total_cmp(&b.median()))
    }

    /// Gigabytes a second.
    #[allow(clippy::cast_precision_loss, reason = "a rate is shown to two decimals")]
    pub(super) fn rate(&self, seconds: f64) -> f64 {
        if seconds > 0.0 { self.workload.bytes() as f64 / seconds / 1e9 } else { 0.0 }
    }

    pub(super) fn wrong(&self) -> u64 {
        self.series.iter().flat_map(|series| &series.rounds).map(|round| round.wrong).sum()
    }
}

fn sorted(mut numbers: Vec<f64>) -> Vec<f64> {
    numbers.sort_by(f64::total_cmp);
    numbers
}

/// At this share of `sorted`, between the two that are nearest; 0 of none.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a place in a list, from a share of its length"
)]
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let at = sorted.len().saturating_sub(1) as f64 * share;
    let near = |place: f64| sorted.get(place as usize).copied().unwrap_or(0.0);
    let (below, above) = (near(at.floor()), near(at.ceil()));
    below + (above - below) * at.fract()
}

#[cfg(test)]
pub(super) mod tests;
