//! The rounds: every case has its turn in each, so that a busy machine slows all of them.

use super::case::Case;
use super::figures::{Both, Measured, Round, Series};
use super::reader::{Planned, Reader};
use super::usage::{Taken, Usage};
use super::workload::Workload;
use crate::failure::Failure;

/// Single blocks are moved so often in a round: one alone takes less than a clock can tell well.
const TIMES: u32 = 200;

/// Bytes that each process holds for nothing but to move them.
pub(super) type Pools = Both<u64>;

impl Pools {
    /// Of these cases: movers and plain memory do not share pools, and memcpy has its source
    /// beside its target.
    pub(super) fn of(planned: &[Planned], workload: &Workload) -> Self {
        let any = |wanted: fn(&Planned) -> bool| u64::from(planned.iter().any(wanted));
        let provider = any(|planned| matches!(planned, Planned::Provider(_)));
        let memcpy = any(|planned| matches!(planned, Planned::Memcpy));
        let target = any(|planned| !matches!(planned, Planned::Provider(_)));
        let sockets = any(|planned| matches!(planned, Planned::Plain(_)));
        let pool = workload.pool_bytes();
        Self { reader: pool * (provider + memcpy + target), source: pool * (provider + sockets) }
    }
}

/// Measures cases that are ready.
pub(super) async fn measure(
    workload: &Workload,
    pools: Pools,
    cases: &mut [Box<dyn Case>],
    rounds: u32,
    reader: &mut Reader<'_>,
    tell: impl Fn(&Round),
) -> Result<Measured, Failure> {
    let mut all: Vec<Series> = cases.iter().map(|case| Series::new(&**case)).collect();
    for round in 0..=rounds {
        for (case, series) in cases.iter_mut().zip(&mut all) {
            let transfers = if round > 0 && workload.is_latency() { TIMES } else { 1 };
            let source = reader.source_usage().await?;
            Usage::take();
            let turns = turns(&mut **case, transfers)?;
            let [here, there] = [Usage::take(), reader.source_usage().await?];
            let told = Round {
                case: series.case.clone(),
                workload: workload.name.clone(),
                round,
                transfers,
                seconds: turns.median(),
                cpu_reader_s: turns.cpu() / f64::from(transfers),
                cpu_source_s: (there.cpu_s - source.cpu_s) / f64::from(transfers),
                bytes: workload.bytes(),
                wrong: turns.wrong,
            };
            tell(&told);
            let over = Both {
                reader: here.peak_resident_bytes.saturating_sub(pools.reader),
                source: there.peak_resident_bytes.saturating_sub(pools.source),
            };
            series.add(told, &turns, over);
        }
    }
    Ok(Measured { workload: workload.clone(), series: all })
}

/// What one case did in its turn of a round.
#[derive(Default)]
struct Turns {
    taken: Vec<Taken>,
    wrong: u64,
}

fn turns(case: &mut dyn Case, transfers: u32) -> Result<Turns, Failure> {
    let mut turns = Turns::default();
    for _ in 0..transfers {
        case.poison();
        turns.taken.push(case.run()?);
        turns.wrong += case.wrong_bytes();
    }
    Ok(turns)
}

impl Turns {
    fn median(&self) -> f64 {
        let mut walls: Vec<_> = self.taken.iter().map(|taken| taken.wall).collect();
        walls.sort_unstable();
        walls.get(walls.len() / 2).map_or(0.0, std::time::Duration::as_secs_f64)
    }

    fn cpu(&self) -> f64 {
        self.taken.iter().map(|taken| taken.cpu.as_secs_f64()).sum()
    }
}

impl Series {
    fn new(case: &dyn Case) -> Self {
        Self {
            case: case.name().to_owned(),
            kind: case.kind(),
            is_limit: case.is_limit(),
            rounds: Vec::new(),
            times: Vec::new(),
            over_pools: Both::default(),
        }
    }

    fn add(&mut self, round: Round, turns: &Turns, over: Both<u64>) {
        if round.round > 0 {
            self.times.extend(turns.taken.iter().map(|taken| taken.wall.as_secs_f64()));
        }
        self.rounds.push(round);
        self.over_pools.reader = self.over_pools.reader.max(over.reader);
        self.over_pools.source = self.over_pools.source.max(over.source);
    }
}
