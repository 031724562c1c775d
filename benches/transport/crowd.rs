use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use crate::ours::Ours;
use crate::plain::{Plain, Pools};
use crate::workload::Workload;
use crate::{Fallible, Mover, W1};

const PAIRS: usize = 8;

/// Transfers in flight. Each has an eighth of the blocks of W1, some of every region, so that the
/// first is not over before the last is asked for.
const TRANSFERS: usize = 64;
const SHARES: usize = 8;

/// What each of the pairs moves.
const PART: Workload = Workload { regions: 2, pool: 400, moved: 165, block: 128 << 10 };

/// One go of several that start together.
struct Go {
    all: Duration,
    /// Of each, until it was done.
    each: Vec<Duration>,
}

pub fn bench(rounds: usize) -> Fallible<()> {
    let mut ours = Vec::new();
    let mut plain: Vec<(usize, Vec<Plain>)> = Vec::new();
    for streams in [1, 2] {
        let pair = |_| Plain::new(&PART, &Pools::new(&PART), streams);
        plain.push((streams, (0..PAIRS).map(pair).collect::<Fallible<_>>()?));
    }
    for _ in 0..PAIRS {
        ours.push(Ours::new(&PART, None)?);
    }
    let mut goes: Vec<(String, Vec<Go>)> = Vec::new();
    for round in 0..=rounds {
        let mut taken = Vec::new();
        for (streams, movers) in &mut plain {
            taken.push((format!("plain, {streams} streams"), together(movers)?));
        }
        taken.push(("ours".to_owned(), together(&mut ours)?));
        // The first meets cold memory and new connections.
        if round > 0 {
            add(&mut goes, taken);
        }
    }
    let bytes = PAIRS * PART.bytes();
    print(&format!("{PAIRS} pairs at once, {} MiB each", PART.bytes() >> 20), bytes, &mut goes);
    drop((plain, ours));
    in_flight(rounds)
}

/// One pair reads the same bytes as one transfer after the other, and as many that are in flight
/// together.
fn in_flight(rounds: usize) -> Fallible<()> {
    let mut goes: Vec<(String, Vec<Go>)> = Vec::new();
    let mut ours = Ours::new(&W1, None)?;
    let shares = ours.shares(SHARES)?;
    let transfers: Vec<_> = shares.iter().cycle().take(TRANSFERS).cloned().collect();
    for round in 0..=rounds {
        ours.poison();
        let start = Instant::now();
        for _ in 0..TRANSFERS / SHARES {
            ours.run()?;
        }
        let one = Go { all: start.elapsed(), each: vec![start.elapsed()] };
        check(&ours)?;
        ours.poison();
        let start = Instant::now();
        let each = ours.read_together(&transfers)?;
        let many = Go { all: start.elapsed(), each };
        check(&ours)?;
        if round > 0 {
            let names = ["one large after the other".to_owned(), format!("{TRANSFERS} in flight")];
            add(&mut goes, names.into_iter().zip([one, many]).collect());
        }
    }
    let bytes = W1.bytes() * TRANSFERS / SHARES;
    print(&format!("One pair, {} MiB in all", bytes >> 20), bytes, &mut goes);
    Ok(())
}

fn add(goes: &mut Vec<(String, Vec<Go>)>, taken: Vec<(String, Go)>) {
    for (name, go) in taken {
        match goes.iter_mut().find(|(known, _)| *known == name) {
            Some((_, goes)) => goes.push(go),
            None => goes.push((name, vec![go])),
        }
    }
}

/// All at once, each on a thread of its own: from the first that begins to the last that ends.
fn together<M: Mover + Send>(movers: &mut [M]) -> Fallible<Go> {
    movers.iter_mut().for_each(Mover::poison);
    let start = &Barrier::new(movers.len());
    let spans: Fallible<Vec<(Instant, Instant)>> = thread::scope(|scope| {
        let threads: Vec<_> = movers
            .iter_mut()
            .map(|mover| {
                scope.spawn(move || {
                    start.wait();
                    let taken = mover.run()?;
                    let end = Instant::now();
                    // A plain mover makes its threads before its clock runs.
                    Ok((end.checked_sub(taken.wall).unwrap_or(end), end))
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().map_err(|_| "panic")?).collect()
    });
    movers.iter().try_for_each(check)?;
    let spans = spans?;
    let first = spans.iter().map(|(start, _)| *start).min();
    let last = spans.iter().map(|(_, end)| *end).max();
    let (first, last) = first.zip(last).ok_or("nobody moved anything")?;
    let each = spans.iter().map(|(start, end)| *end - *start).collect();
    Ok(Go { all: last - first, each })
}

fn check(mover: &impl Mover) -> Fallible<()> {
    match mover.wrong_words() {
        0 => Ok(()),
        wrong => Err(format!("{}: {wrong} words are wrong", mover.name()).into()),
    }
}

fn median<T: Copy + PartialOrd>(mut all: Vec<T>) -> Option<T> {
    all.sort_by(|a, b| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal));
    all.get(all.len() / 2).copied()
}

fn print(title: &str, bytes: usize, goes: &mut [(String, Vec<Go>)]) {
    println!("\n{title}");
    println!("\n| way | median ms | min ms | GB/s | last / first |\n|---|---|---|---|---|");
    let mut speeds = Vec::new();
    for (name, goes) in goes {
        let seconds: Vec<f64> = goes.iter().map(|go| go.all.as_secs_f64()).collect();
        let least = seconds.iter().copied().fold(f64::INFINITY, f64::min) * 1e3;
        let wall = median(seconds).unwrap_or(f64::NAN);
        let apart = |go: &Go| {
            let of = |time: Option<&Duration>| time.map_or(f64::NAN, Duration::as_secs_f64);
            of(go.each.iter().max()) / of(go.each.iter().min())
        };
        let apart = median(goes.iter().map(apart).collect()).unwrap_or(f64::NAN);
        let speed = bytes as f64 / wall / 1e9;
        println!("| {name} | {:.1} | {least:.1} | {speed:.2} | {apart:.2} |", wall * 1e3);
        speeds.push(speed);
    }
    if let Some((last, others)) = speeds.split_last() {
        let best = others.iter().copied().fold(0.0, f64::max);
        println!("\nthe last / best of the others: {:.2}", last / best);
    }
}
