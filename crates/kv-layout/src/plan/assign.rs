//! Who reads what from whom: decided by the shapes of all ranks of both engines.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::names::Named;
use super::shape::same_page;
use super::{PlanError, Side};
use crate::{CacheLayout, ContextShare, Part, PlacedLayer, Role};

/// The ranks of both engines.
pub(super) struct Ranks<'a> {
    sources: Vec<Named<'a>>,
    targets: Vec<Named<'a>>,
}

/// One layer as each rank keeps it; `None` where a rank does not.
#[derive(Clone, Default)]
pub(super) struct Row<'a> {
    pub(super) sources: Vec<Option<&'a PlacedLayer>>,
    pub(super) targets: Vec<Option<&'a PlacedLayer>>,
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
    /// The part of the target that they fill.
    pub(super) fills: &'a Part,
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

impl<'a> Ranks<'a> {
    pub(super) fn new(
        sources: &[&'a CacheLayout],
        targets: &[&'a CacheLayout],
    ) -> Result<Self, PlanError> {
        let mut ranks = Self { sources: Vec::new(), targets: Vec::new() };
        for layout in sources {
            let named = Named::new(Side::Source, layout, ranks.sources.last())?;
            ranks.sources.push(named);
        }
        for layout in targets {
            let like = ranks.targets.last().or(ranks.sources.last());
            let named = Named::new(Side::Target, layout, like)?;
            ranks.targets.push(named);
        }
        Ok(ranks)
    }

    /// Puts layer `index` of rank `rank` of the target into `row`, as every rank keeps it.
    pub(super) fn fill(&self, row: &mut Row<'a>, rank: usize, index: usize) -> &'a PlacedLayer {
        let own = &self.targets[rank];
        let find = |rank: &Named<'a>| rank.find(own, index);
        row.sources.clear();
        row.sources.extend(self.sources.iter().map(find));
        row.targets.clear();
        row.targets.extend(self.targets.iter().map(find));
        &own.layout.layers[index]
    }

    /// What rank `rank` of the target takes of `wanted`, part by part.
    pub(super) fn takes(
        &self,
        rank: usize,
        wanted: &'a PlacedLayer,
        row: &Row<'a>,
    ) -> Result<Vec<Take<'a>>, PlanError> {
        let had: Vec<(usize, &'a PlacedLayer)> =
            row.sources.iter().enumerate().filter_map(|(at, had)| Some((at, (*had)?))).collect();
        if had.is_empty() {
            return Err(PlanError::MissingLayer { layer: wanted.name.clone() });
        }
        check_parts(wanted)?;
        for (_, had) in &had {
            check_layer(had, wanted)?;
        }
        let shares = self.shares(&had, rank, wanted)?;
        let mut takes = Vec::new();
        for part in &wanted.parts {
            let replica = self.replica(rank, wanted, part, row);
            for share in &shares {
                of_share(replica, wanted, part, share, &mut takes)?;
            }
        }
        Ok(takes)
    }

    /// Whether rank `rank` of the target reads layer `b` as it reads layer `a`, which it may
    /// read: they differ in where they lie, in their groups, and in nothing that is asked here.
    pub(super) fn alike(&self, rank: usize, a: &Row<'a>, b: &Row<'a>) -> bool {
        let Some((was, is)) = a.targets[rank].zip(b.targets[rank]) else { return false };
        same_page(was, is)
            && b.sources.iter().flatten().all(|had| had.kind == is.kind)
            && all_alike(&self.sources, &a.sources, &b.sources, same_page)
            && all_alike(&self.targets, &a.targets, &b.targets, same_units)
    }

    /// Checks that two layers which share their bytes at the target do so at the source, and see
    /// the same of them: what is moved for one is all that the other gets.
    pub(super) fn share_too(
        &self,
        wanted: &PlacedLayer,
        other: &PlacedLayer,
    ) -> Result<(), PlanError> {
        for rank in &self.sources {
            let had = |layer: &PlacedLayer| rank.named(&layer.name);
            let apart = had(wanted)
                .zip(had(other))
                .is_some_and(|(a, b)| (a.group, &a.parts) != (b.group, &b.parts));
            if apart {
                let (layer, other) = (wanted.name.clone(), other.name.clone());
                return Err(PlanError::Shared { layer, other });
            }
        }
        let bytes = |layer: &PlacedLayer| (layer.kind, layer.packing.clone(), layer.parts.clone());
        if bytes(wanted) != bytes(other) {
            let (layer, other) = (wanted.name.clone(), other.name.clone());
            return Err(PlanError::Twins { layer, other });
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

    /// Which of the target's ranks that keep the same bytes this one is, and how many there are.
    fn replica(
        &self,
        rank: usize,
        wanted: &PlacedLayer,
        part: &Part,
        row: &Row<'a>,
    ) -> (usize, usize) {
        let own = context(self.targets[rank].layout, wanted);
        let same = |(other, layer): (&Named<'_>, &Option<&PlacedLayer>)| {
            layer.is_some_and(|layer| {
                context(other.layout, layer) == own
                    && find(layer, part.role).is_some_and(|has| has.units == part.units)
            })
        };
        let ranks = || self.targets.iter().zip(&row.targets);
        let before = ranks().take(rank).filter(|other| same(*other)).count();
        let all = ranks().filter(|other| same(*other)).count();
        (before, all.max(1))
    }
}

/// What replica `replica` of `replicas` takes of one part from those that share a stretch of the
/// sequence.
fn of_share<'a>(
    (replica, replicas): (usize, usize),
    wanted: &PlacedLayer,
    fills: &'a Part,
    had: &[(usize, &'a PlacedLayer)],
    takes: &mut Vec<Take<'a>>,
) -> Result<(), PlanError> {
    let mut parts: Vec<(usize, &'a PlacedLayer, &'a Part)> = had
        .iter()
        .filter_map(|&(index, layer)| Some((index, layer, find(layer, fills.role)?)))
        .collect();
    if wanted.packing.is_some() && parts.iter().any(|(_, _, has)| has.units == fills.units) {
        // An opaque page is not cut where the pages of other ranks begin or end.
        parts.retain(|(_, _, has)| has.units == fills.units);
    }
    for units in segments(fills, &parts) {
        let holders: Vec<_> =
            parts.iter().filter(|(_, _, has)| covers(&has.units, &units)).collect();
        if holders.is_empty() {
            let (layer, role) = (wanted.name.clone(), fills.role);
            return Err(PlanError::MissingUnits { layer, role, units });
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
            takes.push(Take { source, had, part, fills, units, stripe });
        }
    }
    Ok(())
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
    let edges = parts.iter().flat_map(|(_, _, part)| [part.units.start, part.units.end]);
    let mut cuts: Vec<u32> = edges.filter(|&at| start < at && at < end).collect();
    cuts.extend([start, end]);
    cuts.sort_unstable();
    cuts.dedup();
    (1..cuts.len()).map(move |index| cuts[index - 1]..cuts[index])
}

fn covers(has: &Range<u32>, units: &Range<u32>) -> bool {
    has.start <= units.start && units.end <= has.end
}

/// Whether each rank has both layers, alike and of an equal share of the sequence, or neither.
fn all_alike(
    ranks: &[Named<'_>],
    a: &[Option<&PlacedLayer>],
    b: &[Option<&PlacedLayer>],
    same: fn(&PlacedLayer, &PlacedLayer) -> bool,
) -> bool {
    ranks.iter().zip(a.iter().zip(b)).all(|(rank, pair)| match pair {
        (Some(a), Some(b)) => context(rank.layout, a) == context(rank.layout, b) && same(a, b),
        (None, None) => true,
        _ => false,
    })
}

/// Whether two layers of a rank keep the same units of the same parts.
fn same_units(a: &PlacedLayer, b: &PlacedLayer) -> bool {
    let units = |part: &Part| (part.role, part.units.start, part.units.end);
    a.parts.iter().map(units).eq(b.parts.iter().map(units))
}

/// Greatest common divisor; `b` where `a` is 0.
pub(super) fn gcd(a: u32, b: u32) -> u32 {
    if a == 0 { b } else { gcd(b % a, a) }
}
