//! Block tables as engines may have them: whole, late, with nulls or stale ids in front.

use kv_layout::{BlockTable, CacheLayout, Span};

use super::mask;
use super::memory::Rank;
use super::rng::Rng;

/// What stands for the blocks that nobody needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Front {
    /// Blocks of the request.
    Whole,
    /// Nothing: the table starts late.
    Late,
    /// The null block.
    Null,
    /// Ids that belong to somebody else by now.
    Stale,
}

pub const FRONTS: [Front; 4] = [Front::Whole, Front::Late, Front::Null, Front::Stale];

/// How tables are made.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    pub front: Front,
    /// Blocks behind those of the prompt.
    pub lookahead: u64,
    /// Distance from one id to the next; ids are counted modulo [`POOL`].
    pub step: u64,
    /// Whether each group counts its ids anew: its regions are its own.
    pub own_ids: bool,
}

/// Blocks of a pool; a prime, so that every step visits all of them. Block 0 is the null block.
pub const POOL: u64 = 509;

/// Blocks of each region.
pub const BLOCKS: u32 = 510;

struct Ids {
    style: Style,
    next: u64,
}

impl Ids {
    fn take(&mut self) -> u32 {
        self.next += 1;
        (1 + self.next * self.style.step % POOL) as u32
    }
}

/// The tables of one rank, whose groups have `hits`.
pub fn rank<'a>(
    layout: &'a CacheLayout,
    span: Span,
    tokens: u64,
    hits: &[u64],
    style: Style,
    rng: &mut Rng,
) -> Rank<'a> {
    let start = rng.below(POOL);
    let mut ids = Ids { style, next: start };
    let mut rank = Rank { layout, tables: Vec::new(), live: Vec::new() };
    for group in 0..layout.groups.len() {
        if style.own_ids {
            ids.next = start;
        }
        let hit = hits.get(group).copied().unwrap_or(0);
        let (table, live) = table(layout, group, span, tokens, hit, &mut ids, rng);
        rank.tables.push(table);
        rank.live.push(live);
    }
    rank
}

fn table(
    layout: &CacheLayout,
    group: usize,
    span: Span,
    tokens: u64,
    hit: u64,
    ids: &mut Ids,
    rng: &mut Rng,
) -> (BlockTable, Vec<bool>) {
    let layers = || layout.layers.iter().filter(|layer| layer.group as usize == group);
    if layers().any(|layer| layer.kind.is_recurrent()) {
        let table = BlockTable { first_token: span.resume_at, ids: [ids.take()].into() };
        return (table, vec![true]);
    }
    let shape = layout.groups[group];
    let size = u64::from(shape.block_size);
    let first = layers().map(|layer| mask::first_visible(layer.kind, span.resume_at)).min();
    let needed_from = first.unwrap_or(0).max(hit) / size;
    let end = tokens.div_ceil(size).max(needed_from) + ids.style.lookahead;
    let begin = if ids.style.front == Front::Late { needed_from } else { 0 };
    let (ways, share) = (u64::from(shape.context.ways), u64::from(shape.context.rank));
    let (mut list, mut live) = (Vec::new(), Vec::new());
    for block in (begin..end).filter(|block| block % ways == share) {
        let front = if block < needed_from { ids.style.front } else { Front::Whole };
        live.push(front == Front::Whole);
        list.push(match front {
            Front::Null => 0,
            Front::Stale => rng.below(POOL) as u32,
            _ => ids.take(),
        });
    }
    (BlockTable { first_token: begin * size, ids: list.into() }, live)
}
