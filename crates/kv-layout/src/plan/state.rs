//! Recurrent states: moved whole, once, and only at the very position that they belong to.

use std::sync::Arc;

use super::planner::Rank;
use super::{PlanError, Side};
use crate::BlockTable;

/// The block of a state that has seen `resume_at` tokens, for the sake of a layer called `name`.
pub(super) fn ids(
    side: Side,
    rank: &Rank,
    tables: &[BlockTable],
    group: u32,
    resume_at: u64,
    name: &str,
) -> Result<Arc<[u32]>, PlanError> {
    let table = rank.groups.get(group as usize).and_then(|_| tables.get(group as usize));
    let Some(table) = table else {
        let layer = name.to_owned();
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
