//! Which pairs of values a grid has tried.

use std::collections::BTreeSet;

use super::grid::{ORDERS, Pair, Prompt};
use super::tables::FRONTS;

/// Pairs of values of any two dimensions, each as (dimension, value).
#[derive(Clone, Debug, Default)]
pub struct Coverage {
    pairs: BTreeSet<((usize, u64), (usize, u64))>,
}

impl Coverage {
    /// Notes a pair of engines.
    pub fn pair(&mut self, pair: &Pair) {
        let values = of_pair(pair);
        self.note(&values, &values);
    }

    /// Notes a prompt on a pair of engines.
    pub fn case(&mut self, pair: &Pair, prompt: &Prompt) {
        let front = |front| FRONTS.iter().position(|other| *other == front).unwrap() as u64;
        let own = [
            // Longer prompts are tried where blocks are large.
            (100, prompt.tokens.min(17)),
            (101, prompt.tokens - prompt.span.resume_at),
            (102, prompt.tokens - prompt.span.valid),
            (103, prompt.hits as u64),
            (104, front(prompt.from.front)),
            (105, front(prompt.to.front)),
            (106, prompt.from.lookahead),
            (107, prompt.to.lookahead),
            (108, prompt.from.step),
            (109, prompt.to.step),
        ];
        self.note(&of_pair(pair), &own);
        self.note(&own, &own);
    }

    fn note(&mut self, some: &[(usize, u64)], others: &[(usize, u64)]) {
        for &one in some {
            let later = others.iter().filter(|other| one.0 < other.0);
            self.pairs.extend(later.map(|&other| (one, other)));
        }
    }

    pub fn add(&mut self, other: Self) {
        self.pairs.extend(other.pairs);
    }

    /// How many pairs there are; panics if one was not tried that could have been.
    pub fn assert_complete(&self) -> usize {
        let values: BTreeSet<(usize, u64)> =
            self.pairs.iter().flat_map(|&(one, other)| [one, other]).collect();
        for &one in &values {
            for &other in values.iter().filter(|other| one.0 < other.0) {
                // A source never keeps less than the target asks for.
                let impossible = one == (101, 0) && other == (102, 1);
                assert!(
                    impossible || self.pairs.contains(&(one, other)),
                    "dimension and value {one:?} never met {other:?}"
                );
            }
        }
        self.pairs.len()
    }
}

fn of_pair(pair: &Pair) -> Vec<(usize, u64)> {
    let mut values = vec![(0, pair.model as u64)];
    values.push((1, u64::from(pair.from.block_size) << 8 | u64::from(pair.to.block_size)));
    for (first, shape) in [(10, &pair.from), (20, &pair.to)] {
        let order = ORDERS.iter().position(|order| *order == shape.order).unwrap() as u64;
        values.push((first, u64::from(shape.tensor)));
        values.push((first + 1, u64::from(shape.pipeline)));
        values.push((first + 2, u64::from(shape.kernel_block.unwrap_or(0))));
        values.push((first + 3, order));
    }
    values
}
