//! What a hand-off costs in a fleet of 1,000 prefill and 1,000 decode engines, each of which
//! reads from ten, as a ratio to one in a fleet of 10 and 10: `cargo bench -p benches --bench
//! fleet`. Handshakes are made before.
//!
//! Both simulations run the machines of both sides and the codec, 100,000 requests each, in
//! turns; the ratio is that of their medians.

use std::error::Error;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use sim::Fleet;

const REQUESTS: u64 = 100_000;
const ROUNDS: u64 = 5;

fn main() -> Result<(), Box<dyn Error>> {
    let (mut small, mut large) = (fleet(10)?, fleet(1000)?);
    let (mut of_small, mut of_large) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        of_small.push(play(&mut small, round));
        of_large.push(play(&mut large, round));
    }
    let (small, large) = (median(of_small), median(of_large));
    let mut out = io::stdout();
    let each = |time: Duration| time.as_secs_f64() * 1e6 / REQUESTS as f64;
    writeln!(out, "a request among 10x10 engines:     {:.1} us", each(small))?;
    writeln!(out, "a request among 1000x1000 engines: {:.1} us", each(large))?;
    writeln!(out, "ratio: {:.2}", large.as_secs_f64() / small.as_secs_f64())?;
    Ok(())
}

fn fleet(engines: u64) -> Result<Fleet, Box<dyn Error>> {
    let mut fleet = Fleet::new(engines, engines, usize::try_from(REQUESTS)?)?;
    fleet.meet();
    Ok(fleet)
}

fn play(fleet: &mut Fleet, round: u64) -> Duration {
    let started = Instant::now();
    fleet.play(round * REQUESTS..(round + 1) * REQUESTS);
    started.elapsed()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
