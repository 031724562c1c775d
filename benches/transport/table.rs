use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::workload::Workload;
use crate::{Fallible, Mover};

/// What one round took.
pub struct Taken {
    pub wall: Duration,
    /// Over all threads of the process, and so of both sides.
    pub cpu: Duration,
}

impl Taken {
    /// By `run`.
    pub fn by<T>(run: impl FnOnce() -> Fallible<T>) -> Fallible<Self> {
        let cpu = || Duration::try_from(clock_gettime(ClockId::ProcessCPUTime));
        let (start, before) = (Instant::now(), cpu()?);
        run()?;
        Ok(Self { wall: start.elapsed(), cpu: cpu()?.saturating_sub(before) })
    }
}

/// The times of one mover.
#[derive(Default)]
struct Times {
    wall: Vec<Duration>,
    cpu: Vec<Duration>,
}

/// Runs all movers in turn, and prints a table; the last mover is compared with the best of
/// the others.
pub fn compare(
    name: &str,
    workload: &Workload,
    movers: &mut [Box<dyn Mover>],
    rounds: usize,
) -> Fallible<()> {
    let mut times: Vec<Times> = movers.iter().map(|_| Times::default()).collect();
    // One more round than is counted: the first meets cold memory and new connections.
    for round in 0..=rounds {
        for (mover, times) in movers.iter_mut().zip(&mut times) {
            mover.poison();
            let taken = mover.run()?;
            if round > 0 {
                times.wall.push(taken.wall);
                times.cpu.push(taken.cpu);
            }
            let wrong = if round == 0 || round == rounds { mover.wrong_words() } else { 0 };
            if wrong > 0 {
                return Err(format!("{}: {wrong} words are wrong", mover.name()).into());
            }
        }
    }
    print(name, workload, movers, &mut times);
    Ok(())
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn print(name: &str, workload: &Workload, movers: &[Box<dyn Mover>], times: &mut [Times]) {
    let Workload { regions, pool, moved, block } = workload;
    println!("\n{name}: {regions} regions, {moved} of {pool} blocks of {block} bytes each");
    println!("\n| way | median ms | min ms | GB/s | CPU ms |\n|---|---|---|---|---|");
    let mut speeds = Vec::new();
    for (mover, times) in movers.iter().zip(times) {
        let (wall, cpu) = (median(&mut times.wall), median(&mut times.cpu));
        let least = times.wall.first().copied().unwrap_or_default();
        let speed = workload.bytes() as f64 / wall.as_secs_f64() / 1e9;
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let (name, wall, least, cpu) = (mover.name(), ms(wall), ms(least), ms(cpu));
        println!("| {name} | {wall:.1} | {least:.1} | {speed:.2} | {cpu:.1} |");
        speeds.push(speed);
    }
    if let Some((ours, plain)) = speeds.split_last() {
        let best = plain.iter().copied().fold(0.0, f64::max);
        let name = movers.last().map(|mover| mover.name()).unwrap_or_default();
        println!("\n{name} / best of the others: {:.2}", ours / best);
    }
}
