//! Request traces: when prompts arrive and how long they and their answers are.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::path::Path;
use std::time::Duration;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Exp, LogNormal};
use serde::Deserialize;

use crate::failure::{Code, Failure};
use crate::output;

/// Requests of a generated trace where no limit is given.
const GENERATED: u64 = 1000;

/// Most requests of a generated trace, all of which are in memory at once.
const MAX_GENERATED: u64 = 1_000_000;

/// Far above any published trace.
const MAX_BYTES: u64 = 1 << 30;

/// The requests to replay.
pub(crate) struct Trace {
    /// Where they come from, in words.
    pub(crate) source: String,
    pub(crate) requests: Vec<Request>,
}

#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// Place in the trace, from 0.
    pub(crate) number: u64,
    /// Since the first request.
    pub(crate) arrival: Duration,
    /// Prompt tokens.
    pub(crate) tokens: u64,
    /// Answer tokens.
    pub(crate) output_tokens: u64,
}

/// One line of a trace file.
#[derive(Deserialize)]
struct Line {
    /// Milliseconds.
    timestamp: u64,
    input_length: u64,
    output_length: u64,
}

impl Trace {
    /// The first `limit` requests of the file, or generated ones where there is no file.
    pub(crate) fn load(path: Option<&Path>, limit: Option<u64>) -> Result<Self, Failure> {
        let Some(path) = path else { return Self::generate("no trace given", limit) };
        match File::open(path) {
            Ok(file) => Self::read(path, file, limit),
            Err(why) if why.kind() == ErrorKind::NotFound => {
                Self::generate(&format!("{} is not there", path.display()), limit)
            }
            Err(why) => Err(Failure::input(format!("{}: {why}", path.display()))),
        }
    }

    fn read(path: &Path, lines: impl Read, limit: Option<u64>) -> Result<Self, Failure> {
        let mut requests = Vec::new();
        let mut start = None;
        let lines = BufReader::new(lines.take(MAX_BYTES)).lines();
        for (number, line) in (0..limit.unwrap_or(u64::MAX)).zip(lines) {
            let place = format!("{}, line {}", path.display(), number + 1);
            let wrong = |why: &dyn std::fmt::Display| {
                Failure::input(format!("{place}: {why}")).hint(
                    "a trace has one JSON object a line, with timestamp (ms), input_length and \
                     output_length",
                )
            };
            let line = line.map_err(|why| wrong(&why))?;
            let line: Line = serde_json::from_str(&line).map_err(|why| {
                // Each line is a text of its own to the parser.
                wrong(&why.to_string().replace(" at line 1 column ", " at column "))
            })?;
            if line.input_length == 0 {
                return Err(wrong(&"input_length 0: a prompt has at least one token"));
            }
            let since = line.timestamp.saturating_sub(*start.get_or_insert(line.timestamp));
            requests.push(Request {
                number,
                arrival: Duration::from_millis(since),
                tokens: line.input_length,
                output_tokens: line.output_length,
            });
        }
        if requests.is_empty() {
            return Err(Failure::input(format!("{}: no requests", path.display())));
        }
        Ok(Self { source: path.display().to_string(), requests })
    }

    /// Lengths and rate like those of the conversation trace that the Mooncake project
    /// published (FAST'25): log-normal with the same mean and deviation of the logarithms,
    /// clipped to the same range; 12,031 requests in 3,537 s.
    fn generate(why: &str, limit: Option<u64>) -> Result<Self, Failure> {
        let count = limit.unwrap_or(GENERATED);
        if count > MAX_GENERATED {
            return Err(too_long(why, count));
        }
        let failed = |why: &dyn std::fmt::Display| Failure::new(Code::Failed, why);
        let input = LogNormal::<f64>::new(8.737, 1.199).map_err(|why| failed(&why))?;
        let output = LogNormal::<f64>::new(5.336, 1.358).map_err(|why| failed(&why))?;
        let gap = Exp::new(3.4_f64).map_err(|why| failed(&why))?;
        let mut random = ChaCha8Rng::seed_from_u64(0);
        let mut arrival = Duration::ZERO;
        let request = |number| {
            arrival += Duration::from_secs_f64(gap.sample(&mut random));
            let tokens = whole(input.sample(&mut random).clamp(891.0, 126_195.0));
            let output_tokens = whole(output.sample(&mut random).clamp(1.0, 2000.0));
            Request { number, arrival, tokens, output_tokens }
        };
        let requests = (0..count).map(request).collect();
        Ok(Self { source: format!("a generated trace ({why})"), requests })
    }
}

fn too_long(why: &str, count: u64) -> Failure {
    let most = output::count(MAX_GENERATED);
    Failure::input(format!(
        "invalid value '{count}' for '--limit <N>': must be at most {most} where the trace is \
         generated ({why})"
    ))
    .hint("give --trace a file that is there, or a smaller --limit")
}

/// The whole part of a number within the range above.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped before")]
fn whole(number: f64) -> u64 {
    number as u64
}
