//! Whether a shape gives each rank its layers, units and bytes, by a second computation.

use kv_layout::{CacheLayout, EngineShape, Model, PageOrder, Part, PlacedLayer, Role, ShapeError};

use super::memory::address;
use super::tables::BLOCKS;

/// The layouts of a shape; `None` where heads cannot be shared by so many ranks. Panics where the
/// shape is refused for another reason, or is not laid out as it asks.
pub fn layouts(model: &Model, shape: &EngineShape) -> Option<Vec<CacheLayout>> {
    let shareable = model.layers.iter().all(|layer| {
        let ways = if layer.kind.is_recurrent() { 1 } else { shape.context };
        let ranks = shape.tensor / ways;
        layer
            .parts
            .iter()
            .all(|part| part.units.is_multiple_of(ranks) || ranks.is_multiple_of(part.units))
    });
    match shape.layouts(model, BLOCKS) {
        Ok(layouts) => {
            assert!(shareable, "{shape:?}");
            check(model, shape, &layouts);
            Some(layouts)
        }
        Err(ShapeError::Units { .. }) if !shareable => None,
        Err(why) => panic!("refused: {why}\n{shape:?}"),
    }
}

/// Panics where a layout is not the one that the shape asks for.
fn check(model: &Model, shape: &EngineShape, layouts: &[CacheLayout]) {
    assert_eq!(layouts.len(), (shape.tensor * shape.pipeline) as usize);
    let mut kept = vec![0; model.layers.len()];
    for (rank, layout) in (0..).zip(layouts) {
        for layer in &layout.layers {
            let index = model.layers.iter().position(|other| other.name == layer.name).unwrap();
            kept[index] += 1;
            let of_stage = rank / shape.tensor;
            let (layers, stages) = (model.layers.len() as u32, shape.pipeline);
            assert!(index as u32 >= layers * of_stage / stages);
            assert!((index as u32) < layers * (of_stage + 1) / stages);
            let group = layout.groups[layer.group as usize];
            let recurrent = layer.kind.is_recurrent();
            let ways = if recurrent { 1 } else { shape.context };
            assert_eq!(
                (group.context.ways, group.context.rank),
                (ways, rank % shape.tensor % ways)
            );
            for (part, whole) in layer.parts.iter().zip(&model.layers[index].parts) {
                let (ranks, at) = (shape.tensor / ways, rank % shape.tensor / ways);
                let units: Vec<u32> =
                    (0..whole.units).filter(|unit| keeps(*unit, whole.units, at, ranks)).collect();
                assert_eq!(part.units.clone().collect::<Vec<_>>(), units, "{shape:?} {layer:?}");
                assert_eq!((part.role, part.bytes), (whole.role, whole.bytes));
                if !recurrent {
                    check_bytes(shape, layer, part, group.block_size);
                }
            }
        }
    }
    assert!(kept.iter().all(|ranks| *ranks == shape.tensor), "{shape:?}: {kept:?}");
}

/// Whether the rank at place `at` of `ranks` keeps a unit: unit and rank span the same stretch
/// of the layer.
fn keeps(unit: u32, units: u32, at: u32, ranks: u32) -> bool {
    unit * ranks < (at + 1) * units && at * units < (unit + 1) * ranks
}

/// Whether the bytes of each unit and token lie where the order says, relative to the first.
fn check_bytes(shape: &EngineShape, layer: &PlacedLayer, part: &Part, block: u32) {
    let apart = shape.order == PageOrder::Apart;
    let other = layer.parts.iter().find(|other| other.role != part.role && !apart);
    let row = u64::from(part.bytes) + other.map_or(0, |other| u64::from(other.bytes));
    let kernel = u64::from(shape.kernel_block.unwrap_or(block).min(block));
    let units = u64::from(part.units.end - part.units.start);
    for unit in 0..units {
        for token in 0..u64::from(block) {
            let (tile, within) = (token / kernel, token % kernel);
            let rows = match shape.order {
                PageOrder::TokensOutside => (tile * kernel + within) * units + unit,
                _ => tile * kernel * units + unit * kernel + within,
            };
            let at = address(part, unit, token) - part.offset;
            assert_eq!(at, rows * row, "{shape:?} {layer:?} unit {unit} token {token}");
        }
    }
    if let (Role::Value, Some(key)) = (part.role, other) {
        assert_eq!(part.offset, key.offset + u64::from(key.bytes));
    }
}
