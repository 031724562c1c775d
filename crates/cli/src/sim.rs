//! `kvferry sim`: plays worlds of engines under virtual time.

use std::collections::BTreeMap;

use clap::Args;
use serde_json::json;
use sim::world::{self, Faults, Planted, Setup, Violation};

use crate::failure::{Code, Failure};
use crate::output;

/// Engines of one kind, and ranks of one engine, at most.
const MOST: usize = 64;

/// What is left out, the seed decides.
#[derive(Clone, Debug, Args)]
pub(crate) struct SimArgs {
    /// The world to play.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,
    /// How many worlds to play, with this seed and those after it.
    #[arg(long, value_name = "K", default_value_t = 1)]
    pub(crate) seeds: u64,
    /// Prefill and decode engines, such as 8x8.
    #[arg(long, value_name = "PxD", value_parser = pair)]
    pub(crate) engines: Option<(usize, usize)>,
    /// Ranks of each prefill and of each decode engine, such as 2x1.
    #[arg(long, value_name = "PxD", value_parser = pair)]
    pub(crate) ranks: Option<(usize, usize)>,
    /// Prompts of each world.
    #[arg(long, value_name = "R")]
    pub(crate) requests: Option<usize>,
    /// What may go wrong: all, none, or some kinds between commas.
    #[arg(long, value_name = "LIST")]
    pub(crate) faults: Option<Faults>,
    /// Show what happened to this request.
    #[arg(long, value_name = "ID", conflicts_with = "seeds")]
    pub(crate) request: Option<u32>,
    /// Make this mistake on purpose.
    #[arg(long, hide = true, value_name = "NAME")]
    pub(crate) planted: Option<Planted>,
}

impl SimArgs {
    fn setup(&self, seed: u64) -> Setup {
        let mut setup = Setup::of_seed(seed);
        if let Some((prefills, decodes)) = self.engines {
            (setup.prefills, setup.decodes) = (prefills, decodes);
        }
        if let Some((prefill, decode)) = self.ranks {
            (setup.prefill_ranks, setup.decode_ranks) = (prefill, decode);
        }
        setup.requests = self.requests.unwrap_or(setup.requests);
        setup.faults = self.faults.clone().unwrap_or(setup.faults);
        setup.planted = self.planted;
        setup
    }
}

/// Parses `8x4`.
fn pair(text: &str) -> Result<(usize, usize), String> {
    let number = |text: &str| text.parse().ok().filter(|number| (1..=MOST).contains(number));
    let both = text.split_once('x').and_then(|(a, b)| Some((number(a)?, number(b)?)));
    both.ok_or_else(|| format!("must be two numbers from 1 to {MOST}, such as 8x4"))
}

pub(crate) fn run(args: &SimArgs, json: bool) -> Result<(), Failure> {
    let (mut ends, mut events, mut seconds) = (BTreeMap::<&str, u64>::new(), 0, 0);
    for seed in (args.seed..).zip(0..args.seeds).map(|(seed, _)| seed) {
        let setup = args.setup(seed);
        let played = match args.request {
            Some(request) => world::run_noted(&setup, Some(request)),
            None => world::run(&setup),
        };
        let report = played.map_err(|broken| violated(&broken))?;
        report.ends.iter().for_each(|(how, many)| *ends.entry(*how).or_default() += many);
        (events, seconds) = (events + report.events, seconds + report.seconds);
        if !report.timeline.is_empty() {
            output::line(report.timeline.trim_end());
        }
    }
    if json {
        output::line(json!({ "ends": ends, "events": events, "seconds": seconds }));
        return Ok(());
    }
    output::title("every rule was kept");
    let mut rows = vec![
        vec!["worlds".to_owned(), output::count(args.seeds)],
        vec!["events".to_owned(), output::count(events)],
        vec!["seconds of their own time".to_owned(), output::count(seconds)],
    ];
    rows.extend(ends.iter().map(|(how, many)| vec![(*how).to_owned(), output::count(*many)]));
    output::line(output::facts(rows).trim_end());
    Ok(())
}

/// What happened goes where output goes; the failure says which rule was broken.
fn violated(broken: &Violation) -> Failure {
    output::line(broken.timeline.trim_end());
    let Violation { setup, oracle, what, request, .. } = broken;
    let request = request.map(|request| format!(", request {request}")).unwrap_or_default();
    let seed = setup.seed;
    Failure::new(Code::Bytes, format!("{oracle} is broken, seed {seed}{request}: {what}"))
        .hint(setup.command())
}
