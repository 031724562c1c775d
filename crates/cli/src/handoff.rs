//! `kvferry handoff`: requests one after the other between two processes.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use kv_layout::{Group, Grouping, Model, baseline, kept};

use crate::args::HandoffArgs;
use crate::failure::Failure;
use crate::pair::{Pair, Setup};
use crate::summary::{Summary, Tally};
use crate::{model, output};

pub(crate) async fn run(arguments: &HandoffArgs, json: bool) -> Result<(), Failure> {
    let model = model::load(&arguments.model.model)?;
    let (block_size, tokens) = (arguments.model.block_size, arguments.tokens);
    let grouping = Grouping::new(&model, block_size).map_err(Failure::input)?;
    let pool = pool_bytes(&grouping, tokens);
    let setup = Setup { model: arguments.model.clone(), link: arguments.link, pool };
    let pair = Pair::start(&setup).await?;
    let bar = progress(arguments.requests, json);
    let tally = match hand_over(&pair, arguments, &bar).await {
        Ok(tally) => tally,
        Err(failure) => return Err(pair.explain(failure).await),
    };
    bar.finish_and_clear();
    let full = baseline::all_full(&model, &grouping, tokens).bytes;
    let full = full.saturating_mul(arguments.requests);
    let summary = tally.finish(tally.reading(), full, pair.finish().await?);
    print(&summary, &model, arguments, json);
    summary.check()
}

async fn hand_over(
    pair: &Pair,
    arguments: &HandoffArgs,
    bar: &ProgressBar,
) -> Result<Tally, Failure> {
    let mut tally = Tally::new()?;
    for request in 0..arguments.requests {
        let held = pair.hand_over(request, arguments.tokens).await?;
        tally.add(&held.figures);
        pair.dismiss(held).await?;
        bar.inc(1);
    }
    Ok(tally)
}

/// Twice what one request takes: ids come from all over a pool that is half empty.
fn pool_bytes(grouping: &Grouping, tokens: u64) -> u64 {
    let kept = |group: &Group| kept(group.kind, group.block_size, tokens - 1, tokens).blocks;
    let blocks: u64 = grouping.groups.iter().map(kept).sum();
    blocks.saturating_mul(2).saturating_add(1).saturating_mul(grouping.block_bytes())
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

fn print(summary: &Summary, model: &Model, arguments: &HandoffArgs, json: bool) {
    if json {
        output::line(serde_json::json!(summary));
        return;
    }
    output::title(&format!(
        "{} · {} tokens in blocks of {} · two processes over TCP",
        model.model_type,
        output::count(arguments.tokens),
        arguments.model.block_size
    ));
    summary.print("while a request is read");
}
