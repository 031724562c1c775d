//! One hand-off after another between two engines, and what the target answers.

use std::fmt;

use kv_layout::{EngineShape, Kind, Plan, Span};
use sim::toy::{Engine, Front, Garbage, Plain, Request, Toy, carry, plans};

use super::lengths::around_boundaries;
use super::models::model;
use super::pairs::{Pair, shape};

/// Tokens that the target computes.
pub const STEPS: u64 = 4;
pub const LONGEST: u64 = 130;

/// What one engine that never moved anything answers, token by token.
pub struct Truth {
    pub toy: Toy,
    pub cache: Plain,
    pub logits: Vec<Vec<f64>>,
}

impl Truth {
    pub fn of(name: &str) -> Self {
        let (toy, mut cache) = (model(name), Plain::default());
        let logits = (0..LONGEST).map(|at| toy.step(&mut cache, at).unwrap()).collect();
        Self { toy, cache, logits }
    }

    /// An engine for prompts up to `longest`; a group is a layer at least.
    fn engine(&self, shape: &EngineShape, longest: u64, garbage: Garbage, seed: u64) -> Engine {
        let blocks = longest.div_ceil(shape.block_size.into()) + 3;
        let count = u32::try_from(self.toy.kept().layers.len() as u64 * blocks).unwrap();
        Engine::new(self.toy.kept(), shape, count, garbage, seed).unwrap()
    }

    fn is(&self, position: u64, logits: &[f64]) -> bool {
        let truth = &self.logits[usize::try_from(position).unwrap()];
        truth.iter().map(|x| x.to_bits()).eq(logits.iter().map(|x| x.to_bits()))
    }
}

/// What the target has of the prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hit {
    Nothing,
    /// Whole blocks of about half of the prompt, in every group; their blocks are listed.
    Blocks,
    /// The same, and their blocks are left out of the tables.
    LeftOut,
    /// Tokens that end inside a block, of every other group.
    Tokens,
    /// All that it would read.
    All,
}

pub const HITS: [Hit; 5] = [Hit::Nothing, Hit::Blocks, Hit::LeftOut, Hit::Tokens, Hit::All];

#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub tokens: u64,
    /// How many tokens at its end the target computes again.
    pub back: u64,
    pub hit: Hit,
    /// Blocks behind the prompt that the target has already.
    pub ahead: u64,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tokens, back, hit, ahead } = self;
        write!(f, "{tokens} tokens, {back} again, hit: {hit:?}, {ahead} blocks ahead")
    }
}

impl Case {
    pub fn resume_at(&self) -> u64 {
        self.tokens - self.back
    }

    /// Of each group of the target.
    pub fn hits(&self, target: &Engine) -> Vec<u64> {
        let resume = self.resume_at();
        let hit = |(group, (kind, size)): (usize, (Option<Kind>, u32))| {
            let size = u64::from(size);
            let recurrent = kind.is_some_and(Kind::is_recurrent);
            match self.hit {
                Hit::All => resume,
                _ if recurrent => 0,
                Hit::Nothing => 0,
                Hit::Blocks | Hit::LeftOut => resume.div_ceil(2).div_ceil(size) * size,
                Hit::Tokens if group % 2 == 0 => 0,
                Hit::Tokens => resume * 2 / 3,
            }
            .min(resume)
        };
        target.groups().into_iter().enumerate().map(hit).collect()
    }
}

/// What came of a pair.
#[derive(Debug, Default)]
pub struct Tally {
    pub lengths: usize,
    pub cases: usize,
    pub bytes: u64,
    pub wrong: Vec<String>,
}

/// The two engines of a pair; the target is as empty as it is at the start of each case.
pub struct Pairing<'a> {
    pub truth: &'a Truth,
    pub source: Engine,
    pub target: Engine,
}

impl<'a> Pairing<'a> {
    pub fn new(truth: &'a Truth, (_, from, to): Pair) -> Self {
        let (from, to) = (shape(from), shape(to));
        // Small pools are quick to make and to copy.
        let longest = if from.block_size.max(to.block_size) > 16 { LONGEST } else { LONGEST / 2 };
        Self {
            truth,
            source: truth.engine(&from, longest, Garbage::Numbers, 1),
            target: truth.engine(&to, longest, Garbage::NotNumbers, 1000),
        }
    }

    pub fn lengths(&self) -> Vec<u64> {
        around_boundaries(self.truth.toy.kept(), [&self.source, &self.target])
    }

    /// The source computes what a prompt of `case` asks of it, and keeps what the target needs.
    pub fn prefill(&mut self, case: &Case) -> Result<(), String> {
        let recurrent = || self.truth.toy.kept().layers.iter().any(|it| it.kind.is_recurrent());
        let kinds = self.truth.toy.kept().layers.iter().map(|layer| layer.kind);
        let computed = match case.back {
            1 => Kind::prefill_tokens(kinds, case.tokens),
            0 => case.tokens,
            _ if recurrent() => case.resume_at(),
            _ => case.tokens,
        };
        self.compute(computed)?;
        self.source.trim(case.resume_at());
        Ok(())
    }

    /// The source computes up to `tokens`, and is itself right.
    pub fn compute(&mut self, tokens: u64) -> Result<(), String> {
        while self.source.seen() < tokens {
            let position = self.source.seen();
            let logits = self.source.step(&self.truth.toy).map_err(|why| why.to_string())?;
            if !self.truth.is(position, &logits) {
                return Err(format!("the source is wrong at {position}"));
            }
        }
        Ok(())
    }

    /// The target with the blocks of the request, and the plans of its ranks.
    pub fn plan(&self, case: &Case) -> Result<(Engine, Vec<Plan>), String> {
        let mut target = self.target.clone();
        let hits = case.hits(&target);
        let fault = |why: sim::toy::Fault| why.to_string();
        target.reserve(case.tokens, case.ahead, case.resume_at()).map_err(fault)?;
        let layers = self.truth.toy.kept().layers.len();
        target.adopt(layers, &self.truth.cache, &hits).map_err(fault)?;
        let span = Span { valid: self.source.seen(), resume_at: case.resume_at() };
        let front = if case.tokens.is_multiple_of(2) { Front::Late } else { Front::Nulls };
        let request = Request { span, hits: &hits, front, left_out: case.hit == Hit::LeftOut };
        let plans = plans(&self.source, &target, request).map_err(|why| why.to_string())?;
        Ok((target, plans))
    }

    /// Moves what the plans say and lets the target go on.
    pub fn answers(&self, case: &Case, mut target: Engine, plans: &[Plan]) -> Result<u64, String> {
        let bytes = carry(&self.source, &mut target, plans).map_err(|why| why.to_string())?;
        for position in case.resume_at()..case.resume_at() + STEPS {
            let logits = target.step(&self.truth.toy).map_err(|why| why.to_string())?;
            if !self.truth.is(position, &logits) {
                return Err(format!("other logits at {position}"));
            }
        }
        Ok(bytes)
    }

    pub fn case(&self, case: &Case) -> Result<u64, String> {
        let (target, plans) = self.plan(case)?;
        let bytes = self.answers(case, target, &plans)?;
        match case.hit == Hit::All && bytes > 0 {
            true => Err(format!("{bytes} bytes moved that the target has")),
            false => Ok(bytes),
        }
    }
}

/// All lengths of a pair: always without a hit, and with the other hits in turn.
pub fn pair(truth: &Truth, named: Pair, back: u64) -> Tally {
    let mut pairing = Pairing::new(truth, named);
    let mut tally = Tally::default();
    for (turn, tokens) in pairing.lengths().into_iter().enumerate() {
        // Engines compute the last token again; for others, every other length will do.
        if tokens < back || (back != 1 && turn % 2 == 1) {
            continue;
        }
        let ahead = turn as u64 % 2;
        let case = |hit, ahead| Case { tokens, back, hit, ahead };
        let (plain, hit) = (case(Hit::Nothing, 0), case(HITS[1 + turn / 2 % 4], ahead));
        tally.lengths += 1;
        if turn % 3 == 2 {
            pairing.source.look_ahead().unwrap();
        }
        if let Err(why) = pairing.prefill(&plain) {
            tally.wrong.push(format!("{named:?}, {plain}: {why}"));
            return tally;
        }
        for case in [plain, hit] {
            tally.cases += 1;
            match pairing.case(&case) {
                Ok(bytes) => tally.bytes += bytes,
                Err(why) => tally.wrong.push(format!("{named:?}, {case}: {why}")),
            }
        }
    }
    tally
}
