//! The grid: small shapes, every one with every other.

use kv_layout::{CacheLayout, EngineShape, PageOrder, Span};

use super::coverage::Coverage;
use super::judge::{World, judge};
use super::models::Named;
use super::rng::Rng;
use super::shapes;
use super::tables::{self, FRONTS, POOL, Style};
use super::tally::Tally;
use super::threads;

pub const ORDERS: [PageOrder; 4] =
    [PageOrder::Joint, PageOrder::TokensOutside, PageOrder::Apart, PageOrder::BlockOutermost];

/// A pair of engines for a model, and the prompts that they are tried with.
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    /// Index of the model.
    pub model: usize,
    pub from: EngineShape,
    pub to: EngineShape,
    /// Every how many tokens a prompt length is tried.
    pub every: u64,
    /// Whether the inside of pages is known to their backend alone.
    pub opaque: bool,
}

/// How much of its blocks the target has, group by group.
const HITS: [[u64; 3]; 8] =
    [[0, 0, 0], [1, 1, 1], [2, 2, 2], [0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 2, 1], [1, 0, 2]];

/// Judges all prompts on all pairs.
pub fn run(models: &[Named], pairs: &[Pair]) -> (Tally, Coverage) {
    let judge = |index, (tally, coverage): &mut (Tally, Coverage)| {
        judge_pair(models, &pairs[index as usize], tally, coverage);
    };
    let (mut all, mut covered) = (Tally::default(), Coverage::default());
    for (tally, coverage) in threads::run(0..pairs.len() as u64, judge) {
        all.add(&tally);
        covered.add(coverage);
    }
    (all, covered)
}

fn judge_pair(models: &[Named], pair: &Pair, tally: &mut Tally, coverage: &mut Coverage) {
    let model = &models[pair.model];
    coverage.pair(pair);
    let both = |shape: &EngineShape| shapes::layouts(&model.model, shape);
    let (Some(mut sources), Some(mut targets)) = (both(&pair.from), both(&pair.to)) else {
        return tally.refuse("heads that so many ranks cannot share", 1);
    };
    if pair.opaque {
        let layers = sources.iter_mut().chain(&mut targets).flat_map(|rank| &mut rank.layers);
        layers.for_each(|layer| layer.packing = Some("swizzled".to_owned()));
    }
    let largest = |layouts: &[CacheLayout]| {
        layouts.iter().flat_map(|rank| &rank.groups).map(|group| group.block_size).max()
    };
    let block = u64::from(largest(&sources).max(largest(&targets)).unwrap_or(1));
    // Two blocks and one token of the larger, or past the largest window.
    let longest = (2 * block + 1).max(20);
    for tokens in (1..=longest).filter(|tokens| interesting(*tokens, block, pair.every)) {
        let prompt = Prompt::new(pair, tokens);
        coverage.case(pair, &prompt);
        judge_one(model, pair, &sources, &targets, prompt, tally);
    }
}

/// A prompt and how both engines keep it.
#[derive(Clone, Debug)]
pub struct Prompt {
    pub tokens: u64,
    pub span: Span,
    /// Index into [`HITS`].
    pub hits: usize,
    pub from: Style,
    pub to: Style,
    rng: Rng,
}

impl Prompt {
    fn new(pair: &Pair, tokens: u64) -> Self {
        let mut rng = Rng::new(seed(pair, tokens));
        // An engine that recomputes the last token, and one that does not; a source that goes on.
        let resume_at = tokens - rng.below(2);
        let span = Span { valid: resume_at.max(tokens - rng.below(2)), resume_at };
        let hits = rng.below(HITS.len() as u64) as usize;
        let style = |rng: &mut Rng| Style {
            front: rng.pick(&FRONTS),
            lookahead: rng.below(3),
            step: rng.pick(&[1, 17, POOL - 1]),
            own_ids: false,
        };
        let (from, to) = (style(&mut rng), style(&mut rng));
        Self { tokens, span, hits, from, to, rng }
    }
}

/// Short prompts all, long ones around the boundaries.
fn interesting(tokens: u64, block: u64, every: u64) -> bool {
    let near = |size: u64| (tokens + 1) % size <= 2;
    tokens.is_multiple_of(every) && (block <= 16 || tokens <= 4 || near(16) || near(block))
}

fn judge_one(
    model: &Named,
    pair: &Pair,
    sources: &[CacheLayout],
    targets: &[CacheLayout],
    mut prompt: Prompt,
    tally: &mut Tally,
) {
    let hits = hits(targets, prompt.span.resume_at, &HITS[prompt.hits]);
    let Prompt { tokens, span, from, to, ref mut rng, .. } = prompt;
    let sources = sources.iter().map(|layout| tables::rank(layout, span, tokens, &[], from, rng));
    let sources = sources.collect();
    let targets = targets.iter().zip(&hits);
    let targets =
        targets.map(|(layout, hits)| tables::rank(layout, span, tokens, hits, to, rng)).collect();
    let world = World { sources, targets, hits, span };
    tally.count(judge(&world), || {
        format!("{} {pair:?}\n{prompt:?}\nhits {:?}", model.name, world.hits)
    });
}

/// The tokens that each group of each rank has.
fn hits(targets: &[CacheLayout], resume_at: u64, pattern: &[u64; 3]) -> Vec<Vec<u64>> {
    let of_rank = |layout: &CacheLayout| {
        let of_group = |(index, group): (usize, &kv_layout::GroupLayout)| {
            let size = u64::from(group.block_size) * u64::from(group.context.ways);
            let blocks = resume_at / size;
            let state = layout
                .layers
                .iter()
                .any(|layer| layer.group as usize == index && layer.kind.is_recurrent());
            match pattern[index % 3] {
                0 => 0,
                1 => blocks.min(1) * size,
                _ if state || resume_at.is_multiple_of(2) => resume_at,
                _ => blocks * size,
            }
        };
        layout.groups.iter().enumerate().map(of_group).collect()
    };
    targets.iter().map(of_rank).collect()
}

fn seed(pair: &Pair, tokens: u64) -> u64 {
    let mut seed = (pair.model as u64) << 32 | tokens << 8;
    for shape in [&pair.from, &pair.to] {
        let order = ORDERS.iter().position(|order| *order == shape.order).unwrap() as u64;
        let numbers = [shape.tensor, shape.pipeline, shape.context, shape.block_size];
        for number in numbers.into_iter().chain(shape.kernel_block) {
            seed = Rng::new(seed ^ u64::from(number)).next();
        }
        seed = Rng::new(seed ^ order).next();
    }
    seed
}
