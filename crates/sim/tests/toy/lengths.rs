//! Prompt lengths: one before, on and one behind every boundary.

use std::collections::BTreeSet;

use kv_layout::{Kind, Model};
use sim::toy::Engine;

use super::play::{LONGEST, STEPS};

/// A boundary is the end of a block of either engine, of a chunk, of a window, and where the
/// window of the last token, or of the next one, begins with a block.
pub fn around_boundaries(model: &Model, engines: [&Engine; 2]) -> Vec<u64> {
    let groups = engines.map(Engine::groups).concat();
    let blocks: BTreeSet<u64> = groups
        .iter()
        .filter(|(kind, _)| kind.is_some_and(|kind| !kind.is_recurrent()))
        .map(|&(_, size)| u64::from(size))
        .collect();
    let largest = blocks.last().copied().unwrap_or(1);
    let reach = model.layers.iter().map(|layer| match layer.kind {
        Kind::SlidingWindow { window: tokens } | Kind::ChunkedLocal { chunk: tokens } => tokens,
        _ => 0,
    });
    let limit = (2 * largest).max(u64::from(reach.max().unwrap_or(0)) + largest) + 1;
    let limit = limit.min(LONGEST - STEPS);
    let mut marks: BTreeSet<u64> = BTreeSet::new();
    for &block in &blocks {
        marks.extend((0..=limit / block).map(|count| count * block));
        for layer in &model.layers {
            let Kind::SlidingWindow { window } = layer.kind else { continue };
            marks.extend((0..=limit / block).map(|count| u64::from(window) + count * block));
        }
    }
    for layer in &model.layers {
        let Kind::ChunkedLocal { chunk } = layer.kind else { continue };
        marks.extend((0..=limit / u64::from(chunk)).map(|count| count * u64::from(chunk)));
    }
    let around = |mark: u64| mark.saturating_sub(1)..=mark + 1;
    let lengths: BTreeSet<u64> = marks.into_iter().flat_map(around).collect();
    lengths.into_iter().filter(|length| (1..=limit).contains(length)).collect()
}
