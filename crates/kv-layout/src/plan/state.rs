//! Recurrent states: moved whole, once, and only at the very position that they belong to.

use std::sync::Arc;

use strided::BlockCopy;

use super::assign::Take;
use super::pieces::{Piece, Slots};
use super::{Holding, Plan, PlanError, Side, Target, blocks, bytes};
use crate::{BlockTable, CacheLayout, PlacedLayer};

/// Copies the state of one layer.
pub(super) fn copy(
    sources: &[Holding<'_>],
    target: Target<'_>,
    own: &CacheLayout,
    wanted: &PlacedLayer,
    takes: &[Take<'_>],
    resume_at: u64,
    plan: &mut Plan,
) -> Result<(), PlanError> {
    // At the start there is no state; what is there already is not applied again.
    if resume_at == 0 || target.hit(wanted.group) == resume_at {
        return Ok(());
    }
    let to = state(Side::Target, own, target.tables, wanted, resume_at)?;
    for take in takes {
        let Holding { layout, tables } = sources[take.source];
        let from = state(Side::Source, layout, tables, take.had, resume_at)?;
        let (source, target) = take.stripe.cut(&from, &to);
        let Some(part) = bytes::filled(wanted, take.part.role) else { continue };
        if source.is_empty() {
            continue;
        }
        let slots = Slots { from: 0, to: 0, tokens: 1 };
        let piece = Piece { slots, whole: true, source, target };
        let (from, to) = bytes::pair(take, wanted, part, &piece, slots)?;
        let from = blocks(layout, Side::Source, wanted, &from, &piece.source)?;
        let to = blocks(own, Side::Target, wanted, &to, &piece.target)?;
        let copies = &mut plan.reads[take.source];
        let first = copies.len().saturating_sub(1);
        bytes::push(copies, first, BlockCopy::new(from, to)?)?;
    }
    Ok(())
}

/// The block of a state that has seen `resume_at` tokens.
fn state(
    side: Side,
    layout: &CacheLayout,
    tables: &[BlockTable],
    layer: &PlacedLayer,
    resume_at: u64,
) -> Result<Arc<[u32]>, PlanError> {
    let group = layer.group;
    let table = layout.groups.get(group as usize).and_then(|_| tables.get(group as usize));
    let Some(table) = table else {
        let layer = layer.name.clone();
        return Err(PlanError::Layout { side, layer, field: "group", value: group });
    };
    let states = table.ids.len();
    if states != 1 {
        return Err(PlanError::States { side, group, states });
    }
    if table.first_token != resume_at {
        let seen = table.first_token;
        return Err(PlanError::StatePosition { side, group, seen, resume_at });
    }
    Ok(Arc::clone(&table.ids))
}
