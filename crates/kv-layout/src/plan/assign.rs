//! Who reads what from whom: decided by the shapes of all ranks of both engines.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::{PlanError, Side};
use crate::{CacheLayout, ContextShare, Part, PlacedLayer, Role};

/// The ranks of both engines, with their layers by name.
pub(super) struct Sources<'a> {
    sources: Vec<Named<'a>>,
    targets: Vec<Named<'a>>,
}

struct Named<'a> {
    layout: &'a CacheLayout,
    layers: BTreeMap<&'a str, &'a PlacedLayer>,
}

impl<'a> Named<'a> {
    /// Refuses what no rank can mean: two layers of one name, units that end before they begin.
    fn new(side: Side, layout: &'a CacheLayout) -> Result<Self, PlanError> {
        let mut layers = BTreeMap::new();
        for layer in &layout.layers {
            if layers.insert(layer.name.as_str(), layer).is_some() {
                return Err(PlanError::TwiceNamed { side, layer: layer.name.clone() });
            }
            if let Some(part) = layer.parts.iter().find(|part| part.units.start > part.units.end) {
                let (layer, units) = (layer.name.clone(), part.units.clone());
                return Err(PlanError::Backwards { side, layer, units });
            }
        }
        Ok(Self { layout, layers })
    }
}

/// Some units of one part, to be taken from one rank of the source.
#[derive(Clone, Debug)]
pub(super) struct Take<'a> {
    /// Index of the rank.
    pub(super) source: usize,
    /// The layer there.
    pub(super) had: &'a PlacedLayer,
    /// The part there.
    pub(super) part: &'a Part,
    /// Counted over the whole model.
    pub(super) units: Range<u32>,
    /// Which of the blocks, where several ranks have the same.
    pub(super) stripe: Stripe,
}

/// One of several equal shares of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Stripe {
    index: usize,
    count: usize,
}

impl Stripe {
    /// This share of two lists of equal length.
    pub(super) fn cut(self, a: &Arc<[u32]>, b: &Arc<[u32]>) -> (Arc<[u32]>, Arc<[u32]>) {
        if self.count == 1 {
            return (Arc::clone(a), Arc::clone(b));
        }
        let bound = |index| a.len() * index / self.count;
        let share = bound(self.index)..bound(self.index + 1);
        (Arc::from(&a[share.clone()]), Arc::from(&b[share]))
    }
}

impl<'a> Sources<'a> {
    pub(super) fn new(
        sources: &[&'a CacheLayout],
        targets: &[&'a CacheLayout],
    ) -> Result<Self, PlanError> {
        let named = |side: Side| move |layout: &&'a CacheLayout| Named::new(side, layout);
        Ok(Self {
            sources: sources.iter().map(named(Side::Source)).collect::<Result<_, _>>()?,
            targets: targets.iter().map(named(Side::Target)).collect::<Result<_, _>>()?,
        })
    }

    /// What rank `rank` of the target takes of `wanted`, part by part.
    pub(super) fn of(&self, rank: usize, wanted: &PlacedLayer) -> Result<Vec<Take<'a>>, PlanError> {
        let had: Vec<(usize, &'a PlacedLayer)> = self
            .sources
            .iter()
            .enumerate()
            .filter_map(|(index, rank)| Some((index, *rank.layers.get(wanted.name.as_str())?)))
            .collect();
        if had.is_empty() {
            return Err(PlanError::MissingLayer { layer: wanted.name.clone() });
        }
        check_parts(wanted)?;
        for (_, had) in &had {
            check_layer(had, wanted)?;
        }
        let mut takes = Vec::new();
        for part in &wanted.parts {
            let mut of_part = Vec::new();
            for share in self.shares(&had, rank, wanted)? {
                self.of_share(rank, wanted, part, &share, &mut of_part)?;
            }
            takes.append(&mut of_part);
        }
        Ok(takes)
    }

    /// Checks that two layers which share their bytes at the target do so at the source.
    pub(super) fn share_too(
        &self,
        wanted: &PlacedLayer,
        other: &PlacedLayer,
    ) -> Result<(), PlanError> {
        for rank in &self.sources {
            let had = |layer: &PlacedLayer| rank.layers.get(layer.name.as_str());
            let apart = had(wanted)
                .zip(had(other))
                .is_some_and(|(a, b)| (a.group, &a.parts) != (b.group, &b.parts));
            if apart || wanted.parts != other.parts {
                let (layer, other) = (wanted.name.clone(), other.name.clone());
                return Err(PlanError::Shared { layer, other });
            }
        }
        Ok(())
    }

    /// The ranks that have the layer, by the share of the sequence that they keep: every share
    /// that has a block in common with this rank's, and no other.
    fn shares(
        &self,
        had: &[(usize, &'a PlacedLayer)],
        rank: usize,
        wanted: &PlacedLayer,
    ) -> Result<Vec<Vec<(usize, &'a PlacedLayer)>>, PlanError> {
        let own = context(self.targets[rank].layout, wanted);
        let mut shares: BTreeMap<ContextShare, Vec<(usize, &'a PlacedLayer)>> = BTreeMap::new();
        for &(index, layer) in had {
            shares
                .entry(context(self.sources[index].layout, layer))
                .or_default()
                .push((index, layer));
        }
        let ways: BTreeSet<u32> = shares.keys().map(|share| share.ways).collect();
        if ways.len() > 1 || ways.contains(&0) || own.ways == 0 {
            return Err(PlanError::Context { layer: wanted.name.clone() });
        }
        let ways = ways.first().copied().unwrap_or(1);
        let step = gcd(ways, own.ways);
        let common = |rank: u32| {
            let share = ContextShare { ways, rank };
            let missing = || PlanError::MissingShare { layer: wanted.name.clone(), ways, rank };
            shares.remove(&share).ok_or_else(missing)
        };
        (own.rank % step..ways).step_by(step as usize).map(common).collect()
    }

    fn of_share(
        &self,
        rank: usize,
        wanted: &PlacedLayer,
        part: &Part,
        had: &[(usize, &'a PlacedLayer)],
        takes: &mut Vec<Take<'a>>,
    ) -> Result<(), PlanError> {
        let mut parts: Vec<(usize, &'a PlacedLayer, &'a Part)> = had
            .iter()
            .filter_map(|&(index, layer)| Some((index, layer, find(layer, part.role)?)))
            .collect();
        if wanted.packing.is_some() && parts.iter().any(|(_, _, has)| has.units == part.units) {
            // An opaque page is not cut where the pages of other ranks begin or end.
            parts.retain(|(_, _, has)| has.units == part.units);
        }
        let (replica, replicas) = self.replica(rank, wanted, part);
        for units in segments(part, &parts) {
            let holders: Vec<_> =
                parts.iter().filter(|(_, _, has)| covers(&has.units, &units)).collect();
            if holders.is_empty() {
                return Err(PlanError::MissingUnits {
                    layer: wanted.name.clone(),
                    role: part.role,
                    units,
                });
            }
            // As many readers as holders or more: each reads one, neighbours the same one, as
            // they do where units are split. Fewer: each reads several, a stripe of the blocks
            // from each.
            let mine: Vec<_> = if replicas >= holders.len() {
                vec![holders[replica * holders.len() / replicas]]
            } else {
                holders.iter().skip(replica).step_by(replicas).copied().collect()
            };
            let count = mine.len();
            for (index, &&(source, had, part)) in mine.iter().enumerate() {
                let (units, stripe) = (units.clone(), Stripe { index, count });
                takes.push(Take { source, had, part, units, stripe });
            }
        }
        Ok(())
    }

    /// Which of the target's ranks that keep the same bytes this one is, and how many there are.
    fn replica(&self, rank: usize, wanted: &PlacedLayer, part: &Part) -> (usize, usize) {
        let own = context(self.targets[rank].layout, wanted);
        let same = |other: &Named<'_>| {
            other.layers.get(wanted.name.as_str()).is_some_and(|layer| {
                context(other.layout, layer) == own
                    && find(layer, part.role).is_some_and(|has| has.units == part.units)
            })
        };
        let before = self.targets[..rank].iter().filter(|other| same(other)).count();
        let all = self.targets.iter().filter(|other| same(other)).count();
        (before, all.max(1))
    }
}

/// Refuses two parts of one role, of which one would be written twice.
fn check_parts(wanted: &PlacedLayer) -> Result<(), PlanError> {
    for (index, part) in (0_u32..).zip(&wanted.parts) {
        if wanted.parts.iter().filter(|other| other.role == part.role).count() > 1 {
            let (side, layer) = (Side::Target, wanted.name.clone());
            return Err(PlanError::Layout { side, layer, field: "role of part", value: index });
        }
    }
    Ok(())
}

fn check_layer(had: &PlacedLayer, wanted: &PlacedLayer) -> Result<(), PlanError> {
    let name = &wanted.name;
    PlanError::differs(name, "kind", had.kind, wanted.kind)?;
    PlanError::differs(name, "packing", packing(had), packing(wanted))?;
    for part in &wanted.parts {
        let bytes = find(had, part.role).map_or(0, |has| has.bytes);
        PlanError::differs(name, BytesOf(part.role), bytes, part.bytes)?;
    }
    for part in had.parts.iter().filter(|part| find(wanted, part.role).is_none()) {
        PlanError::differs(name, BytesOf(part.role), part.bytes, 0)?;
    }
    Ok(())
}

fn packing(layer: &PlacedLayer) -> &str {
    layer.packing.as_deref().unwrap_or("plain")
}

/// Names a field, once it is needed.
struct BytesOf(Role);

impl fmt::Display for BytesOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bytes of {}", self.0)
    }
}

fn find(layer: &PlacedLayer, role: Role) -> Option<&Part> {
    layer.parts.iter().find(|part| part.role == role)
}

fn context(layout: &CacheLayout, layer: &PlacedLayer) -> ContextShare {
    let group = layout.groups.get(layer.group as usize);
    // A state belongs to the whole sequence.
    let shared = group.filter(|_| !layer.kind.is_recurrent());
    shared.map(|group| group.context).unwrap_or_default()
}

/// The wanted units, cut wherever the units of a source begin or end.
fn segments(
    wanted: &Part,
    parts: &[(usize, &PlacedLayer, &Part)],
) -> impl Iterator<Item = Range<u32>> {
    let Range { start, end } = wanted.units;
    let mut cuts: BTreeSet<u32> = [start, end].into();
    for (_, _, part) in parts {
        cuts.extend(
            [part.units.start, part.units.end].iter().filter(|&&at| start < at && at < end),
        );
    }
    let cuts: Vec<u32> = cuts.into_iter().collect();
    (1..cuts.len()).map(move |index| cuts[index - 1]..cuts[index])
}

fn covers(has: &Range<u32>, units: &Range<u32>) -> bool {
    has.start <= units.start && units.end <= has.end
}

/// Greatest common divisor; `b` where `a` is 0.
pub(super) fn gcd(a: u32, b: u32) -> u32 {
    if a == 0 { b } else { gcd(b % a, a) }
}
