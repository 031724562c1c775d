//! The hand-off between two engines: what a plan says, and nothing else.

use std::collections::BTreeSet;

use kv_layout::{Holding, Plan, PlanError, Span, Target, plan};
use strided::{BlockCopy, Blocks};

use super::{Engine, Fault};

/// How a source's block tables tell of blocks that are gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Front {
    /// They start late.
    Late,
    /// The null block stands for them.
    Nulls,
}

/// What is handed over.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Which tokens.
    pub span: Span,
    /// Of each group of the target, the tokens that it has.
    pub hits: &'a [u64],
    /// The source's tables.
    pub front: Front,
    /// Whether the target's tables leave out the blocks of tokens that it has.
    pub left_out: bool,
}

/// The plans of all ranks of `to`.
///
/// # Errors
/// [`PlanError`].
pub fn plans(from: &Engine, to: &Engine, request: Request<'_>) -> Result<Vec<Plan>, PlanError> {
    let held = from.tables(request.front, &[]);
    let layouts = from.layouts();
    let holding = |(layout, tables)| Holding { layout, tables };
    let sources: Vec<Holding<'_>> =
        layouts.into_iter().zip(held.iter().map(Vec::as_slice)).map(holding).collect();
    let (ranks, hits) = (to.layouts(), request.hits);
    let wanted = to.tables(Front::Late, if request.left_out { hits } else { &[] });
    let of = |(rank, tables): (usize, &Vec<_>)| {
        plan(&sources, Target { ranks: &ranks, rank, tables, hits }, request.span)
    };
    wanted.iter().enumerate().map(of).collect()
}

/// Copies the bytes that the plans name, zeroes what they say, and gives the bytes copied.
///
/// # Errors
/// [`Fault`], where a plan names what is not the request's.
pub fn carry(from: &Engine, to: &mut Engine, plans: &[Plan]) -> Result<u64, Fault> {
    let owned: Vec<BTreeSet<u32>> = from.ranks.iter().map(|rank| rank.ids()).collect();
    for (rank, plan) in plans.iter().enumerate() {
        let own = to.ranks[rank].ids();
        for (source, copies) in plan.reads.iter().enumerate() {
            for copy in copies {
                check(copy.source(), &owned[source])?;
                check(copy.target(), &own)?;
                carry_one(from, source, to, rank, copy)?;
            }
        }
        for blocks in &plan.zero {
            check(blocks, &own)?;
            let region = blocks.region().0;
            let rank = &mut to.ranks[rank];
            for range in blocks.walk(rank.stride(region)) {
                rank.bytes_mut(region, range.offset, range.len)?.fill(0);
            }
        }
    }
    Ok(plans.iter().map(Plan::bytes).sum())
}

fn carry_one(
    from: &Engine,
    source: usize,
    to: &mut Engine,
    target: usize,
    copy: &BlockCopy,
) -> Result<(), Fault> {
    let (source, target) = (&from.ranks[source], &mut to.ranks[target]);
    let (of, at) = (copy.source().region().0, copy.target().region().0);
    for range in copy.ranges(source.stride(of), target.stride(at)) {
        let bytes = source.bytes(of, range.source, range.len)?;
        target.bytes_mut(at, range.target, range.len)?.copy_from_slice(bytes);
    }
    Ok(())
}

fn check(blocks: &Blocks, own: &BTreeSet<u32>) -> Result<(), Fault> {
    match blocks.ids().iter().find(|id| !own.contains(id)) {
        Some(&block) => Err(Fault::Stranger { block }),
        None => Ok(()),
    }
}
