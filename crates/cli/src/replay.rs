//! `kvferry replay`: a request trace with bounded pools on both sides.

use std::sync::Arc;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use serde::Serialize;
use tokio::task::{JoinError, JoinSet};

use crate::args::ReplayArgs;
use crate::failure::{Code, Failure};
use crate::handoff::progress;
use crate::pair::{Common, Figures, Pair, Role, Shape, Shapes};
use crate::summary::{Summary, Tally};
use crate::trace::{Request, Trace};
use crate::{model, output};

/// Skipped requests that are named one by one.
const NAMED: usize = 10;

/// What is told at the end.
#[derive(Debug, Serialize)]
struct Report {
    trace: String,
    seconds: f64,
    /// Requests larger than the pool, by their place in the trace.
    skipped: Vec<u64>,
    #[serde(flatten)]
    summary: Summary,
}

pub(crate) async fn run(arguments: &ReplayArgs, json: bool) -> Result<(), Failure> {
    let model = model::load(&arguments.model.model)?;
    let shapes = Shapes::load(model, &arguments.shapes, arguments.model.block_size)?;
    let trace = Trace::load(arguments.trace.as_deref(), arguments.limit)?;
    let heading = heading(&shapes, arguments);
    let pool = |shape: &Shape| arguments.pool.as_u64() / shape.ranks().max(1) as u64;
    let common = Common { model: arguments.model.model.clone(), link: arguments.link.clone() };
    let pair = Arc::new(Pair::start(shapes, &common, pool).await?);
    if !json {
        output::title(&heading);
        output::line(format_args!("{} requests of {}\n", trace.requests.len(), trace.source));
    }
    let (fitting, skipped): (Vec<_>, Vec<_>) =
        trace.requests.into_iter().partition(|request| pair.fits(request.tokens));
    if !json {
        name_skipped(&skipped);
    }
    if fitting.is_empty() {
        return Err(Failure::input("no request fits into the pool").hint("give a larger --pool"));
    }
    let started = Instant::now();
    let bar = progress(fitting.len() as u64, json);
    let outcome = replay(&pair, &fitting, arguments, &bar).await;
    bar.finish_and_clear();
    let time = started.elapsed();
    let (tally, pair) = settle(outcome, Arc::into_inner(pair)).await?;
    let shapes = &pair.shapes;
    let full = fitting.iter().map(|request| shapes.full_attention_bytes(request.tokens)).sum();
    let summary = tally.finish(time, full, pair.finish().await?);
    let skipped = skipped.iter().map(|request| request.number).collect();
    let report = Report { trace: trace.source, seconds: time.as_secs_f64(), skipped, summary };
    print(&report, json);
    report.summary.check()
}

/// The pair itself once every request has ended; where one failed, the reason for that.
async fn settle(
    outcome: Result<Tally, Failure>,
    pair: Option<Pair>,
) -> Result<(Tally, Pair), Failure> {
    match (outcome, pair) {
        (Ok(tally), Some(pair)) => Ok((tally, pair)),
        (Ok(_), None) => Err(Failure::new(Code::Failed, "a request is still under way")),
        (Err(failure), Some(pair)) => Err(pair.explain(failure).await),
        // Nobody left to ask for more, but this much is known.
        (Err(failure), None) => Err(failure),
    }
}

/// Starts each request at its time. The first failure ends all.
async fn replay(
    pair: &Arc<Pair>,
    requests: &[Request],
    arguments: &ReplayArgs,
    bar: &ProgressBar,
) -> Result<Tally, Failure> {
    let mut running = JoinSet::new();
    let outcome = start_all(pair, requests, arguments, bar, &mut running).await;
    // What still runs holds the pair.
    running.shutdown().await;
    outcome
}

async fn start_all(
    pair: &Arc<Pair>,
    requests: &[Request],
    arguments: &ReplayArgs,
    bar: &ProgressBar,
    running: &mut JoinSet<Result<Figures, Failure>>,
) -> Result<Tally, Failure> {
    let mut tally = Tally::new()?;
    let start = tokio::time::Instant::now();
    for request in requests {
        let arrival = start + request.arrival.div_f64(arguments.speed);
        loop {
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(arrival) => break,
                Some(ended) = running.join_next() => count(ended, &mut tally, bar)?,
            }
        }
        let decode = decode_time(request.output_tokens, arguments);
        running.spawn(serve(Arc::clone(pair), request.clone(), decode));
    }
    while let Some(ended) = running.join_next().await {
        count(ended, &mut tally, bar)?;
    }
    Ok(tally)
}

/// How long a request's blocks are in use after the hand-off.
fn decode_time(tokens: u64, arguments: &ReplayArgs) -> Duration {
    let tokens = f64::from(u32::try_from(tokens).unwrap_or(u32::MAX));
    let seconds = tokens * arguments.decode_ms / 1e3 / arguments.speed;
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

async fn serve(pair: Arc<Pair>, request: Request, decode: Duration) -> Result<Figures, Failure> {
    let held = pair.hand_over(request.number, request.tokens).await?;
    let figures = held.figures;
    tokio::time::sleep(decode).await;
    pair.dismiss(held).await?;
    Ok(figures)
}

fn count(
    ended: Result<Result<Figures, Failure>, JoinError>,
    tally: &mut Tally,
    bar: &ProgressBar,
) -> Result<(), Failure> {
    tally.add(&ended.map_err(|why| Failure::new(Code::Failed, why))??);
    bar.inc(1);
    Ok(())
}

/// Says which requests are larger than the pool: the first few, and how many more.
fn name_skipped(skipped: &[Request]) {
    for request in skipped.iter().take(NAMED) {
        output::error_line(format_args!(
            "request {} of {} tokens is larger than the pool: skipped",
            request.number,
            output::count(request.tokens)
        ));
    }
    if let Some(more @ 1..) = skipped.len().checked_sub(NAMED) {
        output::error_line(format_args!(
            "… and {} more; --json lists all",
            output::count(more as u64)
        ));
    }
}

fn heading(shapes: &Shapes, arguments: &ReplayArgs) -> String {
    let blocks = || format!("blocks of {}", shapes.of(Role::Decode).block_size());
    format!(
        "{} · {} · {} of KV cache on each side · {} × the trace's speed",
        shapes.model.model_type,
        shapes.words().unwrap_or_else(blocks),
        output::bytes(arguments.pool.as_u64()),
        arguments.speed
    )
}

fn print(report: &Report, json: bool) {
    if json {
        output::line(serde_json::json!(report));
        return;
    }
    report.summary.print("over the whole replay, filling and checking included");
    let rows = [
        ("skipped as larger than the pool", format!("{} requests", report.skipped.len())),
        ("time", format!("{:.1} s", report.seconds)),
    ];
    let rows = rows.map(|(name, value)| vec![name.to_owned(), value]).to_vec();
    output::line(output::facts(rows).trim_end());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request that still holds the pair says less than the one that failed.
    #[tokio::test]
    async fn the_first_failure_is_the_one_that_is_told() {
        let failure = Failure::new(Code::Bytes, "request 3: wrong bytes");
        let told = settle(Err(failure), None).await.err().unwrap();
        assert_eq!((told.code, told.message.as_str()), (Code::Bytes, "request 3: wrong bytes"));
        let told = settle(Ok(Tally::new().unwrap()), None).await.err().unwrap();
        assert_eq!(told.message, "a request is still under way");
    }
}
