//! The layers of a rank by name.

use std::rc::Rc;

use super::{PlanError, Side};
use crate::{CacheLayout, PlacedLayer};

/// A rank whose layers can be found by name.
pub(super) struct Named<'a> {
    pub(super) layout: &'a CacheLayout,
    /// Indices of its layers, in order of their names; shared by ranks that list the same names
    /// in the same order, as most do.
    by_name: Rc<[usize]>,
}

impl<'a> Named<'a> {
    /// Refuses what no rank can mean: two layers of one name, units that end before they begin.
    /// What holds of the names of `like` need not be found out again.
    pub(super) fn new(
        side: Side,
        layout: &'a CacheLayout,
        like: Option<&Self>,
    ) -> Result<Self, PlanError> {
        let by_name = match like {
            Some(like) if same_names(like.layout, layout) => Rc::clone(&like.by_name),
            _ => sort(side, layout)?,
        };
        for layer in &layout.layers {
            if let Some(part) = layer.parts.iter().find(|part| part.units.start > part.units.end) {
                let (layer, units) = (layer.name.clone(), part.units.clone());
                return Err(PlanError::Backwards { side, layer, units });
            }
        }
        Ok(Self { layout, by_name })
    }

    /// The layer that is called as layer `index` of another rank is.
    pub(super) fn find(&self, other: &Named<'_>, index: usize) -> Option<&'a PlacedLayer> {
        if Rc::ptr_eq(&self.by_name, &other.by_name) {
            return self.layout.layers.get(index);
        }
        self.named(&other.layout.layers.get(index)?.name)
    }

    pub(super) fn named(&self, name: &str) -> Option<&'a PlacedLayer> {
        let layers = &self.layout.layers;
        let key = |&index: &usize| order(&layers[index].name);
        let found = self.by_name.binary_search_by_key(&order(name), key).ok()?;
        Some(&layers[self.by_name[found]])
    }
}

/// Shorter names first: the order in which numbered layers are listed, so that there is little to
/// sort.
fn order(name: &str) -> (usize, &str) {
    (name.len(), name)
}

fn same_names(a: &CacheLayout, b: &CacheLayout) -> bool {
    a.layers.len() == b.layers.len()
        && a.layers.iter().zip(&b.layers).all(|(a, b)| a.name == b.name)
}

/// The indices of the layers, in order of their names.
fn sort(side: Side, layout: &CacheLayout) -> Result<Rc<[usize]>, PlanError> {
    let name = |index: usize| layout.layers[index].name.as_str();
    let mut by_name: Vec<usize> = (0..layout.layers.len()).collect();
    by_name.sort_by_key(|&index| order(name(index)));
    match by_name.windows(2).find(|pair| name(pair[0]) == name(pair[1])) {
        Some(twice) => Err(PlanError::TwiceNamed { side, layer: name(twice[0]).to_owned() }),
        None => Ok(by_name.into()),
    }
}
