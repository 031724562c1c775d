//! The last oracle: what a model makes of the blocks that D publishes.
//!
//! For some prompts P's blocks hold the keys and values that the toy model really has of them.
//! Once D has published, the model computes the last token again from what is in D's memory, and
//! its logits must be those of a run whose keys and values never left it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use connector::RequestId;
use kv_layout::{Kind, Role};

use super::World;
use super::memory::Memory;
use super::oracle::Oracle;
use super::router::{BLOCK, Prompt, WINDOW, first_block};
use crate::toy::{Cache, Fault, Plain, Row, Spec, Toy};

/// Numbers of a key and of a value.
const KEY: u32 = 2;
const VALUE: u32 = 1;

/// The weights are those of every world.
const WEIGHTS: u64 = 20_260_114;

/// What the model makes of one prompt without a hand-off.
#[derive(Debug)]
pub(crate) struct Story {
    toy: Toy,
    tokens: u32,
    cache: Plain,
    /// After the last token.
    logits: Vec<f64>,
}

/// The cache as it is in the memory of a decode engine.
#[derive(Debug)]
struct Moved<'a> {
    story: &'a Story,
    memory: &'a Memory,
    lists: &'a [Arc<[u32]>],
    /// Blocks at the front that the engine's own cache has, computed by itself.
    hit: u32,
    /// Of each head, the rank that is read and the part of its blocks.
    heads: &'a [(usize, usize)],
    /// What it computes of the last token.
    own: BTreeMap<Row, Vec<f64>>,
}

impl Story {
    /// Runs the model over a prompt. The first layer sees everything, the second a window: a
    /// layer of each group.
    pub(crate) fn new(prompt: Prompt, heads: u32) -> Result<Self, Fault> {
        let layer =
            |kind| Spec::Attention { kind, queries: 2 * heads, heads, key: KEY, value: VALUE };
        let layers = [layer(Kind::Full), layer(Kind::SlidingWindow { window: WINDOW })];
        let toy = Toy::new("toy", WEIGHTS, &layers).telling(prompt.text.into());
        let (mut cache, mut logits) = (Plain::default(), Vec::new());
        for position in 0..prompt.tokens.into() {
            logits = toy.step(&mut cache, position)?;
        }
        Ok(Self { toy, tokens: prompt.tokens, cache, logits })
    }

    /// The keys and values of one head in one block of a group, token by token.
    pub(crate) fn page(&self, group: usize, block: u32, head: u32) -> Rc<[f64]> {
        let tokens = block * BLOCK..((block + 1) * BLOCK).min(self.tokens);
        let row = |role| Row { layer: group, role, unit: head };
        let numbers = tokens.flat_map(|token| {
            let at = u64::from(token)..u64::from(token) + 1;
            let read = |role| self.cache.read(row(role), 0, at.clone()).unwrap_or_default();
            [read(Role::Key), read(Role::Value)].concat()
        });
        numbers.collect()
    }
}

impl Moved<'_> {
    fn row(&self, row: Row, token: u32) -> Option<Vec<f64>> {
        if token + 1 == self.story.tokens {
            return self.own.get(&row).cloned();
        }
        let block = token / BLOCK;
        if block < self.hit {
            let at = u64::from(token)..u64::from(token) + 1;
            return self.story.cache.read(row, 0, at).ok();
        }
        let first = first_block(row.layer, self.story.tokens);
        let id = *self.lists.get(row.layer)?.get(block.checked_sub(first)? as usize)?;
        let (rank, part) = *self.heads.get(row.unit as usize)?;
        let numbers = self.memory.read(rank, id, part).numbers?;
        let of_token = numbers.chunks((KEY + VALUE) as usize).nth((token % BLOCK) as usize)?;
        let (key, value) = of_token.split_at(KEY as usize);
        Some(if row.role == Role::Key { key } else { value }.to_vec())
    }
}

impl Cache for Moved<'_> {
    fn read(&self, row: Row, _: u32, tokens: Range<u64>) -> Result<Vec<f64>, Fault> {
        let mut numbers = Vec::new();
        for token in tokens {
            let at = u32::try_from(token).ok();
            let found = at.and_then(|at| self.row(row, at));
            numbers.extend(found.ok_or(Fault::NoPlace { row, token })?);
        }
        Ok(numbers)
    }

    fn write(&mut self, row: Row, _: u64, numbers: &[f64]) -> Result<(), Fault> {
        self.own.insert(row, numbers.to_vec());
        Ok(())
    }
}

impl World {
    /// A request was received: a model that goes on from its blocks must not notice.
    pub(crate) fn look_at_next_token(&mut self, engine: usize, name: &RequestId) {
        let Some(local) = self.engines[engine].decode.requests.get(name) else { return };
        let request = local.request;
        let Some(story) = self.router.story(local.prompt, self.terrain.heads()) else { return };
        self.book.tally.count("decoded by the model");
        // Where several ranks keep a head, the first and the last that do.
        for last in [false, true] {
            let heads: Option<Vec<_>> =
                (0..self.terrain.heads()).map(|head| self.place_of(head, last)).collect();
            let here = &self.engines[engine];
            let (Some(heads), Some(local)) = (heads, here.decode.requests.get(name)) else {
                return self.broken(Oracle::OtherLogits, Some(request), || "no head".to_owned());
            };
            let mut moved = Moved {
                story: &story,
                memory: &here.memory,
                lists: &local.lists,
                hit: local.hit,
                heads: &heads,
                own: BTreeMap::new(),
            };
            let logits = story.toy.step(&mut moved, u64::from(story.tokens) - 1);
            let bits = |logits: &[f64]| logits.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            let wrong = match logits {
                Ok(logits) if bits(&logits) == bits(&story.logits) => continue,
                Ok(logits) => format!("{logits:?} instead of {:?}", story.logits),
                Err(why) => why.to_string(),
            };
            return self.broken(Oracle::OtherLogits, Some(request), || format!("{name}: {wrong}"));
        }
    }

    /// A rank of D that keeps a head, and the part of its blocks that is of it.
    fn place_of(&self, head: u32, last: bool) -> Option<(usize, usize)> {
        let ranks = self.terrain.sources.iter().enumerate();
        let mut places = ranks.flat_map(|(rank, sources)| {
            let parts = sources.iter().enumerate();
            parts.filter_map(move |(part, source)| {
                (self.terrain.head(*source) == head).then_some((rank, part))
            })
        });
        if last { places.last() } else { places.next() }
    }
}
