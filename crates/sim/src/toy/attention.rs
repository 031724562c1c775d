//! Attention: full, windowed, chunked, of a latent.

use std::ops::Range;

use kv_layout::{Kind, Layer, Role};

use super::model::WIDTH;
use super::weights::{Draw, Matrix, add, dot};
use super::{Cache, Fault, Row, index};

#[derive(Clone, Debug)]
pub(super) struct Attention {
    kind: Kind,
    /// Query heads, and heads of keys and values.
    queries: u32,
    heads: u32,
    key: usize,
    /// 0 where the key is the value as well.
    value: usize,
    to_queries: Matrix,
    to_keys: Matrix,
    to_values: Matrix,
}

/// What a kernel has loaded of one head.
struct Loaded {
    tokens: Range<u64>,
    keys: Vec<f64>,
    values: Vec<f64>,
}

impl Attention {
    pub(super) fn new(draw: &mut Draw, kind: Kind, heads: [u32; 2], sizes: [u32; 2]) -> Self {
        let [queries, heads] = heads;
        let [key, value] = sizes.map(|size| size as usize);
        Self {
            kind,
            queries,
            heads,
            key,
            value,
            to_queries: draw.matrix(queries as usize * key, WIDTH),
            to_keys: draw.matrix(heads as usize * key, WIDTH),
            to_values: draw.matrix(heads as usize * value, WIDTH),
        }
    }

    pub(super) fn width(&self) -> usize {
        self.queries as usize * if self.value == 0 { self.key } else { self.value }
    }

    pub(super) fn layer(&self, name: String) -> Layer {
        let bytes = |numbers: usize| u32::try_from(numbers * 8).unwrap_or(u32::MAX);
        Layer::attention(name, self.kind, self.heads, bytes(self.key), bytes(self.value))
    }

    /// The first token that the query at `position` sees: the masks of the papers, not those of
    /// the planner.
    fn first_seen(&self, position: u64) -> u64 {
        match self.kind {
            Kind::SlidingWindow { window } => (position + 1).saturating_sub(window.into()),
            Kind::ChunkedLocal { chunk } => position / u64::from(chunk) * u64::from(chunk),
            _ => 0,
        }
    }

    pub(super) fn mix(
        &self,
        cache: &mut dyn Cache,
        layer: usize,
        position: u64,
        input: &[f64],
    ) -> Result<Vec<f64>, Fault> {
        self.keep(cache, layer, position, input)?;
        let seen = self.first_seen(position)..position + 1;
        let queries = self.to_queries.times(input);
        let mut mixed = Vec::with_capacity(self.width());
        let mut loaded: Option<((u32, u32), Loaded)> = None;
        for (query, numbers) in (0..).zip(queries.chunks_exact(self.key)) {
            let from = (cache.seat(layer, query, self.queries), query * self.heads / self.queries);
            let head = match loaded.take().filter(|(of, _)| *of == from) {
                Some((_, head)) => head,
                None => self.load(cache, layer, from, &seen)?,
            };
            self.one(numbers, &head, &seen, &mut mixed);
            loaded = Some((from, head));
        }
        Ok(mixed)
    }

    fn keep(
        &self,
        cache: &mut dyn Cache,
        layer: usize,
        position: u64,
        input: &[f64],
    ) -> Result<(), Fault> {
        let parts =
            [(Role::Key, self.key, &self.to_keys), (Role::Value, self.value, &self.to_values)];
        for (role, size, weights) in parts.into_iter().filter(|part| part.1 > 0) {
            for (unit, numbers) in (0..).zip(weights.times(input).chunks_exact(size)) {
                cache.write(Row { layer, role, unit }, position, numbers)?;
            }
        }
        Ok(())
    }

    fn load(
        &self,
        cache: &dyn Cache,
        layer: usize,
        (seat, unit): (u32, u32),
        seen: &Range<u64>,
    ) -> Result<Loaded, Fault> {
        let tokens = cache.loaded(layer, seen.clone());
        let read = |role| cache.read(Row { layer, role, unit }, seat, tokens.clone());
        let keys = read(Role::Key)?;
        let values = if self.value == 0 { keys.clone() } else { read(Role::Value)? };
        Ok(Loaded { tokens, keys, values })
    }

    /// One query head. Like a kernel that works by blocks, it multiplies what is masked by zero
    /// instead of leaving it out.
    fn one(&self, query: &[f64], head: &Loaded, seen: &Range<u64>, mixed: &mut Vec<f64>) {
        let value = if self.value == 0 { self.key } else { self.value };
        let mut weights: Vec<f64> =
            head.keys.chunks_exact(self.key).map(|key| dot(query, key)).collect();
        let visible = index(seen.start - head.tokens.start)..index(seen.end - head.tokens.start);
        let most = weights[visible.clone()].iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let mut sum = 0.0;
        for (at, weight) in weights.iter_mut().enumerate() {
            *weight = if visible.contains(&at) { (*weight - most).exp() } else { 0.0 };
            sum += *weight;
        }
        let first = mixed.len();
        mixed.resize(first + value, 0.0);
        for (weight, row) in weights.iter().zip(head.values.chunks_exact(value)) {
            add(&mut mixed[first..], weight / sum, row);
        }
    }
}
