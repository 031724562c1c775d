//! An engine: the ranks of a shape, which keep the cache of one request.

use std::ops::Range;

use kv_layout::{BlockTable, CacheLayout, EngineShape, Kind, Model, ShapeError, kept};

use super::rank::Rank;
use super::{Cache, Fault, Front, Garbage, Plain, Row, Toy, index};

/// All ranks of an engine and the cache of one request in them.
///
/// One arithmetic runs for all ranks, so that sums round alike; each head reads the memory of the
/// rank that would compute it.
#[derive(Clone, Debug)]
pub struct Engine {
    pub(super) ranks: Vec<Rank>,
    tensor: u32,
    context: u32,
    /// Kind of the layers of each group.
    kinds: Vec<Option<Kind>>,
    /// Of each group, the first block of the sequence that is still kept.
    starts: Vec<u64>,
    /// Tokens that it has seen.
    seen: u64,
}

impl Engine {
    /// An empty engine. Its block ids come in an order that `seed` decides, another for each
    /// rank.
    ///
    /// # Errors
    /// [`ShapeError`].
    pub fn new(
        model: &Model,
        shape: &EngineShape,
        block_count: u32,
        garbage: Garbage,
        seed: u64,
    ) -> Result<Self, ShapeError> {
        let layouts = shape.layouts(model, block_count)?;
        let groups = layouts.iter().map(|layout| layout.groups.len()).max().unwrap_or(0);
        let mut kinds = vec![None; groups];
        for layer in layouts.iter().flat_map(|layout| &layout.layers) {
            kinds[layer.group as usize] = Some(layer.kind);
        }
        let rank = |(index, layout)| Rank::new(model, layout, garbage, seed + index);
        let ranks = (0..).zip(layouts).map(rank).collect();
        let (tensor, context) = (shape.tensor, shape.context);
        Ok(Self { ranks, tensor, context, kinds, starts: vec![0; groups], seen: 0 })
    }

    /// Where each rank keeps what it keeps.
    #[must_use]
    pub fn layouts(&self) -> Vec<&CacheLayout> {
        self.ranks.iter().map(|rank| &rank.layout).collect()
    }

    /// Of each group, the kind of its layers and the tokens of a block.
    #[must_use]
    pub fn groups(&self) -> Vec<(Option<Kind>, u32)> {
        let groups = self.ranks.first().map_or(&[][..], |rank| &rank.layout.groups);
        let sizes = groups.iter().map(|group| group.block_size);
        self.kinds.iter().copied().zip(sizes).collect()
    }

    /// Tokens that it has seen; the next step is that of the token at this position.
    #[must_use]
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// Reads the next token and gives the logits of the one after it.
    ///
    /// # Errors
    /// [`Fault`].
    pub fn step(&mut self, toy: &Toy) -> Result<Vec<f64>, Fault> {
        let position = self.seen;
        let logits = toy.step(self, position)?;
        self.seen += 1;
        Ok(logits)
    }

    /// Gives back every block that nobody needs who computes from `resume_at` on.
    pub fn trim(&mut self, resume_at: u64) {
        for (group, (kind, size)) in self.groups().into_iter().enumerate() {
            let Some(kind) = kind.filter(|kind| !kind.is_recurrent()) else { continue };
            let first = kept(kind, size, resume_at, self.seen).first_token / u64::from(size);
            self.starts[group] = first;
            self.ranks.iter_mut().for_each(|rank| rank.drop_before(group, first));
        }
    }

    /// Takes the blocks of a prompt of `tokens`, and `more` blocks behind them, to compute from
    /// `resume_at` on what another engine has computed before.
    ///
    /// # Errors
    /// [`Fault::Full`].
    pub fn reserve(&mut self, tokens: u64, more: u64, resume_at: u64) -> Result<(), Fault> {
        self.seen = resume_at;
        for (group, (kind, size)) in self.groups().into_iter().enumerate() {
            let Some(kind) = kind else { continue };
            let needed = kept(kind, size, resume_at, tokens);
            let recurrent = kind.is_recurrent();
            let first = if recurrent { 0 } else { needed.first_token / u64::from(size) };
            let end = first + needed.blocks + if recurrent { 0 } else { more };
            self.starts[group] = first;
            for block in first..end {
                self.take(group, block)?;
            }
        }
        Ok(())
    }

    /// One more block for each group, as engines reserve it before they need it.
    ///
    /// # Errors
    /// [`Fault::Full`].
    pub fn look_ahead(&mut self) -> Result<(), Fault> {
        for (group, (kind, size)) in self.groups().into_iter().enumerate() {
            if kind.is_some_and(|kind| !kind.is_recurrent()) {
                self.take(group, self.seen.div_ceil(size.into()))?;
            }
        }
        Ok(())
    }

    /// Takes a block of the sequence on every rank that keeps it and does not have it yet.
    fn take(&mut self, group: usize, block: u64) -> Result<(), Fault> {
        for (index, rank) in self.ranks.iter_mut().enumerate() {
            let share = rank.layout.groups[group].context;
            let own = block % u64::from(share.ways) == u64::from(share.rank);
            if own && !rank.blocks[group].contains_key(&block) {
                rank.take(group, block).ok_or(Fault::Full { rank: index })?;
            }
        }
        Ok(())
    }

    /// Fills in what an earlier request with the same beginning left: of each group, the tokens
    /// before its number in `hits`; of a recurrent group all or nothing.
    ///
    /// # Errors
    /// [`Fault`].
    pub fn adopt(&mut self, layers: usize, from: &Plain, hits: &[u64]) -> Result<(), Fault> {
        let (starts, seen) = (&self.starts, self.seen);
        for rank in &mut self.ranks {
            for layer in 0..layers {
                let Some(placed) = rank.layer(layer).cloned() else { continue };
                let group = placed.group as usize;
                let hit = hits.get(group).copied().unwrap_or(0);
                let shape = rank.layout.groups[group];
                let size = u64::from(shape.block_size);
                let recurrent = placed.kind.is_recurrent();
                let first = if recurrent { seen.max(1) - 1 } else { starts[group] * size };
                let own = |token: &u64| {
                    let block = token / size % u64::from(shape.context.ways);
                    recurrent || block == u64::from(shape.context.rank)
                };
                for token in (first..hit).filter(own) {
                    for part in &placed.parts {
                        for unit in part.units.clone() {
                            let row = Row { layer, role: part.role, unit };
                            rank.write(row, token, from.row(row, token)?)?;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// The block tables of all ranks, without the blocks of tokens before `skipped` of a group.
    #[must_use]
    pub fn tables(&self, front: Front, skipped: &[u64]) -> Vec<Vec<BlockTable>> {
        let groups = self.kinds.len();
        let of = |rank| (0..groups).map(|group| self.table(rank, group, front, skipped)).collect();
        self.ranks.iter().map(of).collect()
    }

    fn table(&self, rank: &Rank, group: usize, front: Front, skipped: &[u64]) -> BlockTable {
        let shape = rank.layout.groups[group];
        let size = u64::from(shape.block_size);
        let blocks = &rank.blocks[group];
        if self.kinds[group].is_some_and(Kind::is_recurrent) {
            return BlockTable { first_token: self.seen, ids: blocks.values().copied().collect() };
        }
        let skipped = skipped.get(group).copied().unwrap_or(0) / size;
        let start = self.starts[group].max(skipped);
        let ids = blocks.range(start..).map(|(_, id)| *id);
        if front == Front::Late {
            return BlockTable { first_token: start * size, ids: ids.collect() };
        }
        let (ways, own) = (u64::from(shape.context.ways), u64::from(shape.context.rank));
        let nulls = (0..start).filter(|block| block % ways == own).map(|_| 0);
        BlockTable { first_token: 0, ids: nulls.chain(ids).collect() }
    }

    /// The first of the ranks that share a layer.
    fn base(&self, layer: usize) -> Option<usize> {
        self.ranks.iter().position(|rank| rank.layer(layer).is_some())
    }

    /// In how many ways the tokens of a layer are shared, and the tokens of a block.
    fn sharing(&self, layer: usize) -> Option<(u32, u64)> {
        let rank = &self.ranks[self.base(layer)?];
        let placed = rank.layer(layer)?;
        let size = rank.layout.groups[placed.group as usize].block_size;
        let ways = if placed.kind.is_recurrent() { 1 } else { self.context };
        Some((ways, size.into()))
    }
}

impl Cache for Engine {
    fn seat(&self, layer: usize, head: u32, heads: u32) -> u32 {
        let (ways, _) = self.sharing(layer).unwrap_or((1, 1));
        head * (self.tensor / ways) / heads
    }

    fn loaded(&self, layer: usize, seen: Range<u64>) -> Range<u64> {
        let (_, size) = self.sharing(layer).unwrap_or((1, 1));
        seen.start / size * size..seen.end.div_ceil(size) * size
    }

    fn read(&self, row: Row, seat: u32, tokens: Range<u64>) -> Result<Vec<f64>, Fault> {
        let missing = Fault::NoPlace { row, token: tokens.start };
        let base = self.base(row.layer).ok_or(missing.clone())?;
        let (ways, size) = self.sharing(row.layer).ok_or(missing)?;
        let recurrent = self.ranks[base].layer(row.layer).is_some_and(|it| it.kind.is_recurrent());
        if recurrent && tokens.end != self.seen {
            return Err(Fault::State { row, seen: self.seen, position: tokens.end });
        }
        let (mut numbers, mut at) = (Vec::new(), tokens.start);
        while at < tokens.end {
            let end = (at / size * size + size).min(tokens.end);
            let share = index(at / size % u64::from(ways));
            let rank = &self.ranks[base + (seat * ways) as usize + share];
            rank.read(row, at..end, &mut numbers)?;
            at = end;
        }
        Ok(numbers)
    }

    fn write(&mut self, row: Row, token: u64, numbers: &[f64]) -> Result<(), Fault> {
        let mut written = false;
        for (index, rank) in self.ranks.iter_mut().enumerate() {
            let Some((layer, _)) = rank.part(row) else { continue };
            let (group, recurrent) = (layer.group as usize, layer.kind.is_recurrent());
            let shape = rank.layout.groups[group];
            let block = if recurrent { 0 } else { token / u64::from(shape.block_size) };
            if block % u64::from(shape.context.ways) != u64::from(shape.context.rank) {
                continue;
            }
            if !rank.blocks[group].contains_key(&block) {
                let id = rank.take(group, block).ok_or(Fault::Full { rank: index })?;
                rank.clean(id);
            }
            rank.write(row, token, numbers)?;
            written = true;
        }
        if written { Ok(()) } else { Err(Fault::NoPlace { row, token }) }
    }
}
