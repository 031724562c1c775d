//! Which layer is what.

use serde_json::Value;

use super::defaults::{Family, Other, Pick};
use super::error::{Problem, shown};
use super::fields::{ATTENTION_CHUNK_SIZE, Fields, MAX_LAYERS, NUM_HIDDEN_LAYERS, SLIDING_WINDOW};
use super::rule::{LETTERS, Ruled, Slot, ruled};
use crate::Kind;

/// Today's name, and that of Nemotron-H.
const LAYER_TYPES: [&str; 2] = ["layer_types", "layers_block_type"];
const USE_SLIDING_WINDOW: &str = "use_sliding_window";

/// The layers as a list of layer types has them.
struct Listed<'a> {
    field: &'static str,
    types: &'a [Value],
    slots: Vec<Slot>,
}

/// What the layers are that are not full attention.
#[derive(Clone, Copy)]
enum OtherKind {
    Is(Kind),
    /// There are none; `by` is the field that says so.
    Off {
        by: &'static str,
    },
}

impl OtherKind {
    fn new(kind: Option<Kind>, by: &'static str) -> Self {
        kind.map_or(Self::Off { by }, Self::Is)
    }
}

/// What each layer of the model sees, in model order; `None` for a layer that keeps nothing.
/// `full` is what full attention is in this family.
pub(super) fn kinds(
    text: &Fields<'_>,
    family: &Family,
    full: Kind,
) -> Result<Vec<Option<Kind>>, Problem> {
    let other = other_kind(text, family)?;
    let listed = listed(text, family)?;
    let count = count(text, family, listed.as_ref())?;
    let ruled = match other {
        OtherKind::Is(_) => ruled(text, family.pick, count)?,
        OtherKind::Off { by } => Some(Ruled::new(Some(by), count, |_| true)),
    };
    let (field, slots) = match (listed, ruled) {
        (Some(listed), ruled) => (listed.field, agreed(text, listed, ruled, count)?),
        (None, Some(ruled)) => (ruled.field.unwrap_or("model_type"), ruled.slots),
        (None, None) => return Err(Problem::Missing { field: text.path(LETTERS) }),
    };
    if slots.iter().all(|&slot| slot == Slot::Nothing) {
        return Err(Problem::NothingKept { field: text.path(field), value: text.shown(field) });
    }
    Ok(slots.into_iter().map(|slot| kind(slot, full, other)).collect())
}

/// The listed layers, once they fit their number and the rule that the config states.
fn agreed(
    text: &Fields<'_>,
    listed: Listed<'_>,
    ruled: Option<Ruled>,
    count: u32,
) -> Result<Vec<Slot>, Problem> {
    text.check_length(listed.field, listed.slots.len(), count)?;
    let Some(Ruled { field: Some(field), slots }) = ruled else { return Ok(listed.slots) };
    match listed.slots.iter().zip(&slots).position(|(listed, ruled)| listed != ruled) {
        None => Ok(listed.slots),
        Some(index) => Err(Problem::Contradiction {
            field: text.path(&format!("{}[{index}]", listed.field)),
            value: listed.types.get(index).map_or_else(String::new, shown),
            other: text.path(field),
            other_value: text.shown(field),
        }),
    }
}

fn kind(slot: Slot, full: Kind, other: OtherKind) -> Option<Kind> {
    match (slot, other) {
        (Slot::Full, _) => Some(full),
        (Slot::Other, OtherKind::Is(kind)) => Some(kind),
        // Where there is no other kind, no slot is of it: `agreed` sees to that.
        (Slot::Other, OtherKind::Off { .. }) | (Slot::Nothing, _) => None,
    }
}

fn other_kind(text: &Fields<'_>, family: &Family) -> Result<OtherKind, Problem> {
    let used = text.flag(USE_SLIDING_WINDOW)?;
    if let Other::Window { sliding_window, use_sliding_window } = family.other {
        refuse_bidirectional(text, family)?;
        return window(text, sliding_window, used.unwrap_or(use_sliding_window));
    }
    refuse_window(text, family, used)?;
    match family.other {
        Other::Chunk { attention_chunk_size } => chunk(text, attention_chunk_size),
        Other::Recurrent(state) => {
            Ok(OtherKind::Is(Kind::Recurrent { recurrence: state.recurrence() }))
        }
        Other::None | Other::Window { .. } => Ok(OtherKind::Off { by: "model_type" }),
    }
}

fn window(text: &Fields<'_>, default: Option<u32>, used: bool) -> Result<OtherKind, Problem> {
    if !used {
        return Ok(OtherKind::Off { by: USE_SLIDING_WINDOW });
    }
    let window = text.nullable(&SLIDING_WINDOW, default)?;
    let kind = window.map(|window| Kind::SlidingWindow { window });
    Ok(OtherKind::new(kind, SLIDING_WINDOW.name()))
}

fn chunk(text: &Fields<'_>, default: u32) -> Result<OtherKind, Problem> {
    let chunk = text.nullable(&ATTENTION_CHUNK_SIZE, Some(default))?;
    let kind = chunk.map(|chunk| Kind::ChunkedLocal { chunk });
    Ok(OtherKind::new(kind, ATTENTION_CHUNK_SIZE.name()))
}

/// Engines differ on a window in a family without windows: transformers' Llama ignores it, vLLM
/// applies it to every attention layer.
fn refuse_window(text: &Fields<'_>, family: &Family, used: Option<bool>) -> Result<(), Problem> {
    let field = match used {
        Some(true) => USE_SLIDING_WINDOW,
        None if text.nullable(&SLIDING_WINDOW, None)?.is_some() => SLIDING_WINDOW.name(),
        _ => return Ok(()),
    };
    Err(unsupported(text, family, field))
}

/// Gemma 3 as an encoder (EmbeddingGemma) halves its window and has no KV cache to hand over.
fn refuse_bidirectional(text: &Fields<'_>, family: &Family) -> Result<(), Problem> {
    const FIELD: &str = "use_bidirectional_attention";
    match text.flag(FIELD)? {
        Some(true) => Err(unsupported(text, family, FIELD)),
        _ => Ok(()),
    }
}

fn unsupported(text: &Fields<'_>, family: &Family, field: &str) -> Problem {
    Problem::Unsupported {
        field: text.path(field),
        value: text.shown(field),
        model_type: family.model_type,
    }
}

fn listed<'a>(text: &Fields<'a>, family: &Family) -> Result<Option<Listed<'a>>, Problem> {
    let Some((field, types)) = text.list(&LAYER_TYPES)? else { return Ok(None) };
    let slots = types.iter().enumerate().map(|(index, value)| {
        value.as_str().and_then(|name| named(name, family)).ok_or_else(|| {
            Problem::UnknownLayerType {
                field: text.path(&format!("{field}[{index}]")),
                value: shown(value),
                model_type: family.model_type,
            }
        })
    });
    Ok(Some(Listed { field, types, slots: slots.collect::<Result<_, Problem>>()? }))
}

/// What a layer type means; `None` where layers of this family are never of it.
fn named(name: &str, family: &Family) -> Option<Slot> {
    match (name, family.other, family.pick) {
        ("full_attention" | "attention", ..) => Some(Slot::Full),
        ("sliding_attention", Other::Window { .. }, _)
        | ("chunked_attention", Other::Chunk { .. }, _) => Some(Slot::Other),
        (_, Other::Recurrent(state), _) if state.layer_types().contains(&name) => Some(Slot::Other),
        ("mlp" | "moe", _, Pick::Letters) => Some(Slot::Nothing),
        _ => None,
    }
}

fn count(text: &Fields<'_>, family: &Family, listed: Option<&Listed<'_>>) -> Result<u32, Problem> {
    let default = match (family.layers, listed) {
        (Some(layers), _) => Some(layers),
        (None, Some(listed)) => sane(listed.slots.len()),
        (None, None) => text.string(LETTERS)?.and_then(|letters| sane(letters.chars().count())),
    };
    text.number(&NUM_HIDDEN_LAYERS, default)
}

/// The length of a list of layers, where a model may have that many.
fn sane(length: usize) -> Option<u32> {
    u32::try_from(length).ok().filter(|length| (1..=MAX_LAYERS).contains(length))
}
