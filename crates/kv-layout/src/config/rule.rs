//! Which layers are full attention, by the family's rule.

use std::collections::BTreeSet;

use super::defaults::Pick;
use super::error::Problem;
use super::fields::{
    ATTN_LAYER_OFFSET, ATTN_LAYER_PERIOD, FULL_ATTN_IDXS, Field, Fields, MAX_WINDOW_LAYERS,
    NO_ROPE_LAYER_INTERVAL, NO_ROPE_LAYERS, NUM_HIDDEN_LAYERS, SLIDING_WINDOW,
};

/// Nemotron-H's layers, a letter each.
pub(super) const LETTERS: &str = "hybrid_override_pattern";

/// What one layer is, before it is known what that means in its family.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Slot {
    Full,
    Other,
    Nothing,
}

/// The layers as the family's rule has them.
pub(super) struct Ruled {
    /// The field that states the rule; `None` where it is the family's default, which a list of
    /// layer types overrides.
    pub(super) field: Option<&'static str>,
    pub(super) slots: Vec<Slot>,
}

impl Ruled {
    /// `field` states which of `count` layers are full; the rest are of the other kind.
    pub(super) fn new(field: Option<&'static str>, count: u32, full: impl Fn(u32) -> bool) -> Self {
        let slot = |layer| if full(layer) { Slot::Full } else { Slot::Other };
        Self { field, slots: (0..count).map(slot).collect() }
    }
}

/// The layers as `pick` has them; `None` where that needs a field that is left out.
pub(super) fn ruled(text: &Fields<'_>, pick: Pick, count: u32) -> Result<Option<Ruled>, Problem> {
    match pick {
        Pick::Alike => Ok(Some(Ruled::new(Some(SLIDING_WINDOW.name()), count, |_| false))),
        Pick::FullUntil { max_window_layers } => {
            let (until, field) = stated(text, &MAX_WINDOW_LAYERS, max_window_layers)?;
            Ok(Some(Ruled::new(field, count, |layer| layer < until)))
        }
        Pick::LastOf { period, field: None } => Ok(Some(last_of(None, count, period))),
        Pick::LastOf { period, field: Some(field) } => {
            let (period, field) = stated(text, field, period)?;
            Ok(Some(last_of(field, count, period)))
        }
        Pick::NoRope { no_rope_layer_interval } => {
            no_rope(text, no_rope_layer_interval, count).map(Some)
        }
        Pick::OneOf { attn_layer_period, attn_layer_offset } => {
            one_of(text, attn_layer_period, attn_layer_offset, count).map(Some)
        }
        Pick::Indices => indices(text, count).map(Some),
        Pick::Letters => letters(text, count),
    }
}

/// A number, and the name of its field where the config states it.
fn stated(
    text: &Fields<'_>,
    field: &Field,
    default: u32,
) -> Result<(u32, Option<&'static str>), Problem> {
    let number = text.number(field, Some(default))?;
    Ok((number, text.states(field.name()).then_some(field.name())))
}

fn last_of(field: Option<&'static str>, count: u32, period: u32) -> Ruled {
    Ruled::new(field, count, |layer| (layer + 1) % period == 0)
}

fn no_rope(text: &Fields<'_>, interval: u32, count: u32) -> Result<Ruled, Problem> {
    let name = NO_ROPE_LAYERS.name();
    let list = text.list(&[name])?.map_or(&[][..], |(_, list)| list);
    if list.is_empty() {
        let (interval, field) = stated(text, &NO_ROPE_LAYER_INTERVAL, interval)?;
        return Ok(last_of(field, count, interval));
    }
    text.check_length(name, list.len(), count)?;
    let slots = list.iter().enumerate().map(|(index, value)| {
        let rope = NO_ROPE_LAYERS.check(text.path(&format!("{name}[{index}]")), value)?;
        Ok(if rope == 0 { Slot::Full } else { Slot::Other })
    });
    Ok(Ruled { field: Some(name), slots: slots.collect::<Result<_, Problem>>()? })
}

fn one_of(text: &Fields<'_>, period: u32, offset: u32, count: u32) -> Result<Ruled, Problem> {
    let (period, period_field) = stated(text, &ATTN_LAYER_PERIOD, period)?;
    let (offset, offset_field) = stated(text, &ATTN_LAYER_OFFSET, offset)?;
    if offset >= period {
        return Err(Problem::Contradiction {
            field: text.path(ATTN_LAYER_OFFSET.name()),
            value: offset.to_string(),
            other: text.path(ATTN_LAYER_PERIOD.name()),
            other_value: period.to_string(),
        });
    }
    Ok(Ruled::new(period_field.or(offset_field), count, |layer| layer % period == offset))
}

fn indices(text: &Fields<'_>, count: u32) -> Result<Ruled, Problem> {
    let name = FULL_ATTN_IDXS.name();
    let Some((_, list)) = text.list(&[name])? else {
        return Ok(Ruled::new(None, count, |_| true));
    };
    let layers = list.iter().enumerate().map(|(index, value)| {
        let path = text.path(&format!("{name}[{index}]"));
        let layer = FULL_ATTN_IDXS.check(path.clone(), value)?;
        if layer < count {
            return Ok(layer);
        }
        // Engines pass over such an index, but then the config is of another model.
        Err(Problem::Contradiction {
            field: path,
            value: layer.to_string(),
            other: text.path(NUM_HIDDEN_LAYERS.name()),
            other_value: count.to_string(),
        })
    });
    let full = layers.collect::<Result<BTreeSet<u32>, Problem>>()?;
    Ok(Ruled::new(Some(name), count, |layer| full.contains(&layer)))
}

fn letters(text: &Fields<'_>, count: u32) -> Result<Option<Ruled>, Problem> {
    let Some(letters) = text.string(LETTERS)? else { return Ok(None) };
    text.check_length(LETTERS, letters.chars().count(), count)?;
    let slots = letters.chars().enumerate().map(|(index, letter)| match letter {
        '*' => Ok(Slot::Full),
        'M' => Ok(Slot::Other),
        '-' | 'E' => Ok(Slot::Nothing),
        _ => Err(Problem::UnknownLayerType {
            field: text.path(&format!("{LETTERS}[{index}]")),
            value: format!("{letter:?}"),
            model_type: "nemotron_h",
        }),
    });
    Ok(Some(Ruled { field: Some(LETTERS), slots: slots.collect::<Result<_, Problem>>()? }))
}
