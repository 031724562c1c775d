//! What a lease lets its readers read.

use kv_layout::{BlockTable, CacheLayout};
use strided::{Blocks, Pattern, RegionId};

/// The pages of a lease, as the endpoint must allow them. `tables` has one for each group.
pub(crate) fn granted(
    layout: &CacheLayout,
    tables: &[BlockTable],
) -> Result<Vec<Blocks>, strided::Error> {
    let mut blocks = Vec::new();
    for (group, table) in (0_u32..).zip(tables) {
        for (region, span) in layout.group_spans(group) {
            let page = Pattern::contiguous(span.start, span.end - span.start)?;
            blocks.push(Blocks::new(RegionId(region), table.ids.clone(), page)?);
        }
    }
    Ok(blocks)
}
