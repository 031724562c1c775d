//! JSON from outside: as it comes, or legal and then spoiled.

use serde_json::{Map, Value};

use crate::Bytes;

/// Texts that mean something to one field or another.
const WORDS: [&str; 24] = [
    "",
    "pull",
    "full_attention",
    "sliding_attention",
    "linear_attention",
    "chunked_attention",
    "mamba",
    "attention",
    "conv",
    "bfloat16",
    "float32",
    "llama",
    "gemma3_text",
    "qwen3_next",
    "jamba",
    "nemotron_h",
    "lfm2",
    "deepseek_v3",
    "M-M*-",
    "0000000000000001",
    "recurrent",
    "mamba2",
    "key",
    "temporal",
];

/// Puts other values in some places of a document, as long as there are bytes.
pub fn spoil(root: &mut Value, from: &mut Bytes<'_>) {
    for _ in 0..16 {
        if from.is_empty() {
            return;
        }
        let depth = from.below(8);
        let place = descend(root, depth, from);
        change(place, from);
    }
}

/// A value that is so deep in a document, or as deep as it goes there.
fn descend<'v>(value: &'v mut Value, depth: usize, from: &mut Bytes<'_>) -> &'v mut Value {
    let children = match value {
        Value::Array(list) => list.len(),
        Value::Object(map) => map.len(),
        _ => 0,
    };
    if depth == 0 || children == 0 {
        return value;
    }
    let at = from.below(children);
    match value {
        Value::Array(list) => descend(&mut list[at], depth - 1, from),
        Value::Object(map) => match map.values_mut().nth(at) {
            Some(child) => descend(child, depth - 1, from),
            None => unreachable!("the map has as many"),
        },
        leaf => leaf,
    }
}

fn change(value: &mut Value, from: &mut Bytes<'_>) {
    *value = match from.below(12) {
        0 => Value::Null,
        1 => Value::Bool(from.chance(2)),
        2 => Value::from(from.pick(&WORDS)),
        3 => Value::from("x".repeat(from.small() as usize % 2_000)),
        4 => Value::from(0.5),
        5 => Value::from(-1),
        6 => Value::Array(Vec::new()),
        7 => Value::Object(Map::new()),
        // Not several of a list or a map: again and again, that would be without end.
        8 if value.is_object() || value.is_array() => Value::Array(vec![value.take()]),
        8 => Value::Array(vec![value.take(); 1 + from.below(4)]),
        9 => return shrink(value, from),
        _ => Value::from(from.number()),
    };
}

/// Leaves one of the elements out, or says one twice.
fn shrink(value: &mut Value, from: &mut Bytes<'_>) {
    match value {
        Value::Array(list) if !list.is_empty() => {
            let place = from.below(list.len());
            match from.chance(2) {
                true if list.len() < 64 => list.push(list[place].clone()),
                _ => drop(list.remove(place)),
            }
        }
        Value::Object(map) => {
            let key = map.keys().nth(from.below(map.len())).cloned();
            key.into_iter().for_each(|key| drop(map.remove(&key)));
        }
        _ => *value = Value::Null,
    }
}
