//! `kvferry handoff`: requests one after the other between two engines, on one host or on two.

use std::sync::Arc;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;

use crate::args::HandoffArgs;
use crate::failure::Failure;
use crate::pair::{Common, Door, FirstLoss, Pair, Prefill, Remote, Role, Shape, Shapes, serve};
use crate::summary::Tally;
use crate::{model, output};

/// Where the command line does not say.
const REQUESTS: u64 = 10;

pub(crate) async fn run(arguments: &HandoffArgs, json: bool) -> Result<(), Failure> {
    refuse_what_is_not_used(arguments)?;
    match arguments.host.role {
        None => decode(arguments, json, both(arguments).await?).await,
        Some(Role::Prefill) => prefill(arguments, json).await,
        Some(Role::Decode) => decode(arguments, json, beside(arguments).await?).await,
    }
}

/// What describes the other side would be ignored here.
fn refuse_what_is_not_used(arguments: &HandoffArgs) -> Result<(), Failure> {
    let HandoffArgs { host, link, shapes, requests, .. } = arguments;
    let shape = |role| shapes.given(role);
    let decode_only = [
        ("--connect", host.connect.is_some()),
        ("--requests", requests.is_some()),
        ("--allow", link.allow.is_some()),
        ("the shape of the decode engine", shape(Role::Decode)),
    ];
    let prefill_only = [
        ("--listen", link.listen.is_some()),
        ("--advertise", link.advertise.is_some()),
        ("the shape of the prefill engine", shape(Role::Prefill)),
    ];
    let (other, unused) = match host.role {
        // Both sides are here, and nobody connects from elsewhere.
        None => (Role::Decode, &decode_only[..1]),
        Some(Role::Prefill) => (Role::Decode, &decode_only[..]),
        Some(Role::Decode) => (Role::Prefill, &prefill_only[..]),
    };
    let given = unused.iter().find(|(_, given)| *given);
    given.map_or(Ok(()), |(what, _)| {
        Err(Failure::input(format!("{what} is for --role {other}"))
            .hint("each side is told what it is by its own command; see kvferry handoff --help"))
    })
}

/// Starts both engines on this host.
async fn both(arguments: &HandoffArgs) -> Result<Pair, Failure> {
    let model = model::load(&arguments.model.model)?;
    let shapes = Shapes::load(model, &arguments.shapes, arguments.model.block_size)?;
    Pair::start(shapes, &common(arguments), pool(arguments)).await
}

/// Starts the decode engine, beside a prefill engine that waits on another host.
async fn beside(arguments: &HandoffArgs) -> Result<Pair, Failure> {
    let model = model::load(&arguments.model.model)?;
    let shape = own_shape(&model, arguments, Role::Decode)?;
    let config = arguments.link.config()?;
    let address = arguments.host.connect.as_deref().unwrap_or_default();
    let first_loss = FirstLoss::new();
    let remote = Remote::connect(address, &config, arguments.tokens, &first_loss);
    let (remote, from) = remote.await?;
    match Shapes::beside(model, from, shape) {
        Ok(shapes) => {
            Pair::join(remote, shapes, &common(arguments), pool(arguments), first_loss).await
        }
        Err(failure) => Err(remote.give_up(failure).await),
    }
}

/// Runs the prefill engine for a decode side on another host.
async fn prefill(arguments: &HandoffArgs, json: bool) -> Result<(), Failure> {
    let model = model::load(&arguments.model.model)?;
    let shape = Arc::new(own_shape(&model, arguments, Role::Prefill)?);
    let door = Door::open(&arguments.link.config()?).await?;
    let first_loss = FirstLoss::new();
    let pool = pool(arguments)(&shape);
    let engine = Prefill::start(&ranks(arguments), &shape, pool, &first_loss).await?;
    let address = door.address();
    if json {
        output::line(json!({ "listening": address }));
    } else {
        output::line(format_args!("listening on {address}"));
    }
    let caller = tokio::select! {
        caller = door.first() => caller,
        loss = first_loss.known() => return Err(loss),
    };
    let served = serve(engine, caller, arguments.tokens, &first_loss).await?;
    if json {
        output::line(json!(served));
    } else {
        output::title(&format!("{} · prefill {}", model.model_type, shape.words()));
        served.print();
    }
    served.check()
}

fn own_shape(
    model: &kv_layout::Model,
    arguments: &HandoffArgs,
    role: Role,
) -> Result<Shape, Failure> {
    Shape::load(model, &arguments.shapes, role, arguments.model.block_size)
}

fn common(arguments: &HandoffArgs) -> Common {
    Common { model: arguments.model.model.clone(), link: arguments.link.clone() }
}

/// Decode sides are led to the ranks' ports, so that the system may choose them: it chooses those
/// of the data as well.
fn ranks(arguments: &HandoffArgs) -> Common {
    let mut common = common(arguments);
    let mut listen = common.link.listen();
    listen.set_port(0);
    common.link.listen = Some(listen);
    common
}

fn pool(arguments: &HandoffArgs) -> impl Fn(&Shape) -> u64 {
    let tokens = arguments.tokens;
    move |shape| shape.pool_for(tokens)
}

/// Hands over from a prefill engine, wherever it is, and tells of both.
async fn decode(arguments: &HandoffArgs, json: bool, pair: Pair) -> Result<(), Failure> {
    let requests = arguments.requests.unwrap_or(REQUESTS);
    let bar = progress(requests, json);
    let tally = match hand_over(&pair, requests, arguments.tokens, &bar).await {
        Ok(tally) => tally,
        Err(failure) => return Err(pair.explain(failure).await),
    };
    bar.finish_and_clear();
    let full = pair.shapes.full_attention_bytes(arguments.tokens);
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
    format!("{} · {how} · {}", shapes.model.model_type, shapes.processes())
}
