//! Plans with one mistake each.

use std::sync::Arc;

use kv_layout::{CacheLayout, Plan};
use strided::{BlockCopy, Blocks, Pattern};

/// The plans of all ranks with one copy spoilt.
pub struct Spoilt {
    pub name: String,
    /// Not made, and zeros instead of what it would have written: only a copy of nothing but
    /// masked tokens is not missed.
    pub zeroed: Vec<Plan>,
    /// Each way to make it wrong: not at all, one block less, each block one further, the source
    /// a number further. What it has no room for is left out.
    pub mistakes: Vec<(String, Vec<Plan>)>,
}

pub fn of_copies(plans: &[Plan], sources: &[&CacheLayout]) -> Vec<Spoilt> {
    let mut spoilt = Vec::new();
    for (rank, plan) in plans.iter().enumerate() {
        for (source, copies) in plan.reads.iter().enumerate() {
            for (index, copy) in copies.iter().enumerate() {
                let with = |instead: Option<BlockCopy>| {
                    let mut wrong = plans.to_vec();
                    wrong[rank].reads[source].splice(index..=index, instead);
                    wrong
                };
                let mut zeroed = with(None);
                zeroed[rank].zero.push(copy.target().clone());
                let mistakes = mistakes(copy, sources[source]).into_iter();
                let mistakes = mistakes.map(|(what, instead)| (what, with(instead))).collect();
                let name = format!("copy {index} from rank {source} to rank {rank}");
                spoilt.push(Spoilt { name, zeroed, mistakes });
            }
        }
    }
    spoilt
}

/// Nothing is zeroed; `None` where nothing was to be.
pub fn without_zeros(plans: &[Plan]) -> Option<Vec<Plan>> {
    let bare = |plan: &Plan| Plan { reads: plan.reads.clone(), zero: Vec::new() };
    let any = plans.iter().any(|plan| !plan.zero.is_empty());
    any.then(|| plans.iter().map(bare).collect())
}

fn mistakes(copy: &BlockCopy, source: &CacheLayout) -> Vec<(String, Option<BlockCopy>)> {
    let count = copy.source().ids().len();
    let mut mistakes = vec![("not made".to_owned(), None)];
    if count > 1 {
        for block in 0..count {
            let all_but = |ids: &Arc<[u32]>| {
                let mut ids = ids.to_vec();
                ids.remove(block);
                ids
            };
            let less = BlockCopy::new(
                with_ids(copy.source(), all_but(copy.source().ids())),
                with_ids(copy.target(), all_but(copy.target().ids())),
            );
            mistakes.push((format!("without block {block}"), Some(less.unwrap())));
        }
        let mut ids = copy.target().ids().to_vec();
        ids.rotate_left(1);
        let turned = BlockCopy::new(copy.source().clone(), with_ids(copy.target(), ids));
        mistakes.push(("one block further".to_owned(), Some(turned.unwrap())));
    }
    let pattern = copy.source().pattern();
    let further =
        Pattern::new(pattern.offset() + 8, pattern.dims(), pattern.element_len()).unwrap();
    let region = copy.source().region();
    let further = Blocks::new(region, Arc::clone(copy.source().ids()), further).unwrap();
    if source.regions[region.0 as usize].check(&further).is_ok() {
        let shifted = BlockCopy::new(further, copy.target().clone()).unwrap();
        mistakes.push(("one number further".to_owned(), Some(shifted)));
    }
    mistakes
}

fn with_ids(blocks: &Blocks, ids: Vec<u32>) -> Blocks {
    Blocks::new(blocks.region(), ids, *blocks.pattern()).unwrap()
}
