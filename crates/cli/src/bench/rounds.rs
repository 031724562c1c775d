//! The rounds: every case has its turn in each, so that a busy machine slows all of them.

use std::time::Duration;

use super::case::Case;
use super::figures::{Both, Measured, Round, Series, Skipped, Told};
use super::reader::{Planned, Reader};
use super::usage::{Taken, Usage};
use super::workload::Workload;
use crate::failure::{Code, Failure};

/// Single blocks are moved so often in a round: one alone takes less than a clock can tell well.
const TIMES: u32 = 200;

/// How long nothing is asked for, to see what that costs.
const IDLE: Duration = Duration::from_secs(2);

/// What the last case leaves behind is over by then.
const SETTLE: Duration = Duration::from_millis(500);

/// Bytes that each process holds for nothing but to move them, without shared memory.
pub(super) type Pools = Both<u64>;

impl Pools {
    /// Of these cases: all but plain sockets write into one pool.
    pub(super) fn of(planned: &[Planned], workload: &Workload) -> Self {
        let any = |wanted: fn(&Planned) -> bool| u64::from(planned.iter().any(wanted));
        let sockets = any(|planned| matches!(planned, Planned::Plain(_)));
        let target = any(|planned| !matches!(planned, Planned::Plain(_)));
        let host = any(|planned| match planned {
            Planned::Provider(provider) => !provider.shared,
            Planned::Readv(_) => true,
            _ => false,
        });
        let pool = workload.pool_bytes();
        Self { reader: pool * (sockets + target), source: pool * (sockets + host) }
    }
}

/// A case, and what it has shown.
struct Running {
    case: Box<dyn Case>,
    series: Series,
}

/// Measures cases that are ready. One that cannot read at all is left out, and why is told, where
/// nobody has asked for it by name and another provider can.
pub(super) async fn measure(
    workload: &Workload,
    pools: Pools,
    cases: Vec<Box<dyn Case>>,
    rounds: u32,
    reader: &mut Reader<'_>,
    tell: impl Fn(Told<'_>),
) -> Result<Measured, Failure> {
    let running = |case: Box<dyn Case>| Running { series: Series::new(&*case), case };
    let mut all: Vec<Running> = cases.into_iter().map(running).collect();
    let mut skipped = Vec::new();
    for round in 0..=rounds {
        let mut left = Vec::new();
        for mut one in all {
            match one.round(workload, round, pools, reader).await {
                Ok(round) => {
                    tell(Told::Round(&round));
                    left.push(one);
                }
                Err(why) if round == 0 && why.code == Code::Peer && !reader.has_named_cases() => {
                    let (case, workload) = (one.series.case, workload.name.clone());
                    let one = Skipped { case, workload, why: why.message };
                    tell(Told::Skipped(&one));
                    skipped.push(one);
                }
                Err(why) => return Err(why),
            }
        }
        all = left;
        let nothing = all.iter().all(|one| one.series.is_limit);
        if let Some(Skipped { case, why, .. }) = skipped.first().filter(|_| nothing) {
            return Err(Failure::new(Code::Peer, format!("no provider can read: {case}: {why}")));
        }
    }
    let idle = idle(reader).await?;
    let series = all.into_iter().map(|one| one.series).collect();
    Ok(Measured { workload: workload.clone(), series, skipped, idle })
}

impl Running {
    async fn round(
        &mut self,
        workload: &Workload,
        round: u32,
        pools: Pools,
        reader: &mut Reader<'_>,
    ) -> Result<Round, Failure> {
        let transfers = if round > 0 && workload.is_latency() { TIMES } else { 1 };
        let source = reader.source_usage().await?;
        Usage::take();
        let turns = turns(&mut *self.case, transfers)?;
        let [here, there] = [Usage::take(), reader.source_usage().await?];
        let told = Round {
            case: self.series.case.clone(),
            workload: workload.name.clone(),
            round,
            transfers,
            seconds: turns.median(),
            cpu_reader_s: turns.cpu() / f64::from(transfers),
            cpu_source_s: (there.cpu_s - source.cpu_s) / f64::from(transfers),
            bytes: workload.bytes(),
            wrong: turns.wrong,
        };
        let over = Both {
            reader: here.peak_resident_bytes.saturating_sub(pools.reader),
            source: there.peak_resident_bytes.saturating_sub(pools.source),
        };
        self.series.add(told.clone(), &turns, over);
        Ok(told)
    }
}

/// Cores that both processes take while all connections are there and nothing is asked of them.
async fn idle(reader: &mut Reader<'_>) -> Result<Both<f64>, Failure> {
    tokio::time::sleep(SETTLE).await;
    let before = Both { source: reader.source_usage().await?.cpu_s, reader: Usage::take().cpu_s };
    tokio::time::sleep(IDLE).await;
    let after = Both { reader: Usage::take().cpu_s, source: reader.source_usage().await?.cpu_s };
    let share = |before: f64, after: f64| (after - before) / IDLE.as_secs_f64();
    Ok(Both {
        reader: share(before.reader, after.reader),
        source: share(before.source, after.source),
    })
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
            posted: Vec::new(),
            over_pools: Both::default(),
        }
    }

    fn add(&mut self, round: Round, turns: &Turns, over: Both<u64>) {
        if round.round > 0 {
            self.times.extend(turns.taken.iter().map(|taken| taken.wall.as_secs_f64()));
            let posted = turns.taken.iter().filter_map(|taken| taken.posted);
            self.posted.extend(posted.map(|posted| posted.as_secs_f64()));
        }
        self.rounds.push(round);
        self.over_pools.reader = self.over_pools.reader.max(over.reader);
        self.over_pools.source = self.over_pools.source.max(over.source);
    }
}
