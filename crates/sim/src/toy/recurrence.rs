//! Recurrences: linear attention with a state for each head, and short convolutions.

use kv_layout::{Kind, Layer, LayerPart, Recurrence, Role};

use super::model::WIDTH;
use super::weights::{Draw, Matrix, add, normed, sigmoid, silu};
use super::{Cache, Fault, Row};

/// Inputs that a convolution sees, the newest included; a state keeps the others.
const TAPS: usize = 3;

/// How a state learns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// What it would have answered is taken from the value first (arXiv:2412.06464).
    Delta,
    /// The value is added (arXiv:2405.21060).
    Mamba2,
}

/// Linear attention: query and key heads shared by the value heads, a square state for each
/// value head.
#[derive(Clone, Debug)]
pub(super) struct Linear {
    rule: Rule,
    keys: u32,
    values: u32,
    width: usize,
    /// Inputs and taps of the convolutions, in the order of [`Linear::roles`].
    inputs: [Matrix; 3],
    taps: [Vec<f64>; 3],
    gates: Matrix,
}

#[derive(Clone, Debug)]
pub(super) struct Convolution {
    channels: u32,
    inputs: Matrix,
    taps: Vec<f64>,
}

/// One unit of a convolution: what comes out and what the state becomes.
struct Convolved {
    out: Vec<f64>,
    kept: Vec<f64>,
}

/// Where a step stands.
#[derive(Clone, Copy)]
struct Now {
    layer: usize,
    position: u64,
}

impl Now {
    fn row(self, role: Role, unit: u32) -> Row {
        Row { layer: self.layer, role, unit }
    }

    /// A state as the tokens before left it; at the start it is zero, whatever the memory holds.
    fn state(self, cache: &dyn Cache, row: Row, seat: u32, len: usize) -> Result<Vec<f64>, Fault> {
        match self.position.checked_sub(1) {
            Some(last) => cache.read(row, seat, last..self.position),
            None => Ok(vec![0.0; len]),
        }
    }

    /// Runs the convolution of one unit over what its state holds and `input`.
    fn convolve(
        self,
        cache: &dyn Cache,
        (role, unit, seat): (Role, u32, u32),
        input: &[f64],
        taps: &[f64],
    ) -> Result<Convolved, Fault> {
        let width = input.len();
        let mut window = self.state(cache, self.row(role, unit), seat, (TAPS - 1) * width)?;
        window.extend_from_slice(input);
        let mut out = vec![0.0; width];
        for (tap, row) in taps.iter().zip(window.chunks_exact(width)) {
            add(&mut out, *tap, row);
        }
        let out = out.into_iter().map(silu).collect();
        Ok(Convolved { out, kept: window.split_off(width) })
    }
}

impl Linear {
    pub(super) fn new(draw: &mut Draw, rule: Rule, heads: [u32; 2], width: u32) -> Self {
        let ([keys, values], width) = (heads, width as usize);
        let mut inputs = |heads: u32| draw.matrix(heads as usize * width, WIDTH);
        let inputs = [inputs(keys), inputs(keys), inputs(values)];
        let taps = [draw.vector(TAPS), draw.vector(TAPS), draw.vector(TAPS)];
        let gates = draw.matrix(2 * values as usize, WIDTH);
        Self { rule, keys, values, width, inputs, taps, gates }
    }

    pub(super) fn width(&self) -> usize {
        self.values as usize * self.width
    }

    /// The convolutions of queries, keys and values.
    fn roles(&self) -> [Role; 3] {
        match self.rule {
            Rule::Delta => [Role::ConvQuery, Role::ConvKey, Role::ConvValue],
            Rule::Mamba2 => [Role::ConvC, Role::ConvB, Role::ConvInput],
        }
    }

    pub(super) fn layer(&self, name: String) -> Layer {
        let part = |role, units, numbers| LayerPart { role, units, bytes: bytes(numbers) };
        let window = (TAPS - 1) * self.width;
        let [query, key, value] = self.roles();
        let [query, key] = [query, key].map(|role| part(role, self.keys, window));
        let value = part(value, self.values, window);
        let state = part(Role::Temporal, self.values, self.width * self.width);
        let (recurrence, parts) = match self.rule {
            Rule::Delta => (Recurrence::GatedDeltaNet, vec![query, key, value, state]),
            Rule::Mamba2 => (Recurrence::Mamba2, vec![value, key, query, state]),
        };
        Layer { name, kind: Kind::Recurrent { recurrence }, parts }
    }

    pub(super) fn mix(
        &self,
        cache: &mut dyn Cache,
        layer: usize,
        position: u64,
        input: &[f64],
    ) -> Result<Vec<f64>, Fault> {
        let now = Now { layer, position };
        let inputs = [0, 1, 2].map(|part| self.inputs[part].times(input));
        let gates = self.gates.times(input);
        let mut mixed = Vec::with_capacity(self.width());
        let mut kept: Vec<(Row, Vec<f64>)> = Vec::new();
        for value in 0..self.values {
            let seat = cache.seat(layer, value, self.values);
            let key = value * self.keys / self.values;
            let convolved = self.convolve(cache, now, seat, [key, key, value], &inputs)?;
            let row = now.row(Role::Temporal, value);
            let mut state = now.state(cache, row, seat, self.width * self.width)?;
            let gate = &gates[2 * value as usize..][..2];
            self.learn(&mut state, &convolved.each_ref().map(|part| part.out.as_slice()), gate);
            self.answer(&state, &convolved[0].out, &mut mixed);
            let units = [key, key, value];
            let rows = [0, 1, 2].map(|part| now.row(self.roles()[part], units[part]));
            kept.extend(rows.into_iter().zip(convolved.map(|part| part.kept)));
            kept.push((row, state));
        }
        // All heads read before any writes: several share the window of a key.
        kept.sort_by_key(|kept| kept.0);
        kept.dedup_by_key(|kept| kept.0);
        for (row, numbers) in kept {
            cache.write(row, position, &numbers)?;
        }
        Ok(mixed)
    }

    fn convolve(
        &self,
        cache: &dyn Cache,
        now: Now,
        seat: u32,
        units: [u32; 3],
        inputs: &[Vec<f64>; 3],
    ) -> Result<[Convolved; 3], Fault> {
        let one = |part: usize| {
            let of = (self.roles()[part], units[part], seat);
            let input = &inputs[part][units[part] as usize * self.width..][..self.width];
            now.convolve(cache, of, input, &self.taps[part])
        };
        Ok([one(0)?, one(1)?, one(2)?])
    }

    /// `state` has one row of values for each number of the key.
    fn learn(&self, state: &mut [f64], [_, key, value]: &[&[f64]; 3], gate: &[f64]) {
        let key = normed(key);
        let decay = 0.5 + 0.5 * sigmoid(gate[0]);
        state.iter_mut().for_each(|cell| *cell *= decay);
        let mut news = value.to_vec();
        if self.rule == Rule::Delta {
            for (key, row) in key.iter().zip(state.chunks_exact(self.width)) {
                add(&mut news, -key / self.width as f64, row);
            }
        }
        for (key, row) in key.iter().zip(state.chunks_exact_mut(self.width)) {
            add(row, key * sigmoid(gate[1]), &news);
        }
    }

    fn answer(&self, state: &[f64], query: &[f64], mixed: &mut Vec<f64>) {
        let first = mixed.len();
        mixed.resize(first + self.width, 0.0);
        for (query, row) in normed(query).iter().zip(state.chunks_exact(self.width)) {
            add(&mut mixed[first..], *query, row);
        }
    }
}

impl Convolution {
    pub(super) fn new(draw: &mut Draw, channels: u32) -> Self {
        let inputs = draw.matrix(channels as usize, WIDTH);
        Self { channels, inputs, taps: draw.vector(TAPS) }
    }

    pub(super) fn width(&self) -> usize {
        self.channels as usize
    }

    pub(super) fn layer(&self, name: String) -> Layer {
        let part =
            LayerPart { role: Role::ConvInput, units: self.channels, bytes: bytes(TAPS - 1) };
        let kind = Kind::Recurrent { recurrence: Recurrence::ShortConv };
        Layer { name, kind, parts: vec![part] }
    }

    pub(super) fn mix(
        &self,
        cache: &mut dyn Cache,
        layer: usize,
        position: u64,
        input: &[f64],
    ) -> Result<Vec<f64>, Fault> {
        let now = Now { layer, position };
        let mut mixed = Vec::with_capacity(self.width());
        for (channel, input) in (0..).zip(self.inputs.times(input)) {
            let of = (Role::ConvInput, channel, cache.seat(layer, channel, self.channels));
            let mut convolved = now.convolve(cache, of, &[input], &self.taps)?;
            cache.write(now.row(Role::ConvInput, channel), position, &convolved.kept)?;
            mixed.append(&mut convolved.out);
        }
        Ok(mixed)
    }
}

fn bytes(numbers: usize) -> u32 {
    u32::try_from(numbers * 8).unwrap_or(u32::MAX)
}
