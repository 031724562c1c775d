//! `kvferry handoff`: requests one after the other between two engines.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;

use crate::args::HandoffArgs;
use crate::failure::Failure;
use crate::pair::{Common, Pair, Role, Shapes};
use crate::summary::Tally;
use crate::{model, output};

pub(crate) async fn run(arguments: &HandoffArgs, json: bool) -> Result<(), Failure> {
    let (requests, tokens) = (arguments.requests, arguments.tokens);
    let model = model::load(&arguments.model.model)?;
    let shapes = Shapes::load(model, &arguments.shapes, arguments.model.block_size)?;
    let common = Common { model: arguments.model.model.clone(), link: arguments.link.clone() };
    let pair = Pair::start(shapes, &common, |shape| shape.pool_for(tokens)).await?;
    let bar = progress(requests, json);
    let tally = match hand_over(&pair, requests, tokens, &bar).await {
        Ok(tally) => tally,
        Err(failure) => return Err(pair.explain(failure).await),
    };
    bar.finish_and_clear();
    let full = pair.shapes.full_attention_bytes(tokens);
    let full = full.saturating_mul(requests);
    let heading = heading(&pair.shapes, arguments);
    let summary = tally.finish(tally.reading(), full, pair.finish().await?);
    if json {
        output::line(json!(summary));
    } else {
        output::title(&heading);
        summary.print("while a request is read");
    }
    summary.check()
}

async fn hand_over(
    pair: &Pair,
    requests: u64,
    tokens: u64,
    bar: &ProgressBar,
) -> Result<Tally, Failure> {
    let mut tally = Tally::new()?;
    for request in 0..requests {
        let held = pair.hand_over(request, tokens).await?;
        tally.add(&held.figures);
        pair.dismiss(held).await?;
        bar.inc(1);
    }
    Ok(tally)
}

/// A bar on standard error, where that is a terminal and nobody asked for JSON.
pub(crate) fn progress(requests: u64, json: bool) -> ProgressBar {
    let target = if json { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let bar = ProgressBar::with_draw_target(Some(requests), target);
    let style = ProgressStyle::with_template(
        "{spinner} {bar:40.cyan/blue} {pos}/{len} requests, {elapsed} elapsed, {eta} to go",
    );
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn heading(shapes: &Shapes, arguments: &HandoffArgs) -> String {
    let tokens = output::count(arguments.tokens);
    let how = match shapes.words() {
        None => {
            format!("{tokens} tokens in blocks of {}", shapes.of(Role::Decode).block_size())
        }
        Some(words) => format!("{tokens} tokens · {words}"),
    };
    format!("{} · {how} · {} over TCP", shapes.model.model_type, shapes.processes())
}
