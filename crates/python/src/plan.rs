//! The planner, for whoever wants to see what would move.

use kvferry::Class;
use kvferry::kv_layout::{BlockTable, Planner, Span};
use pyo3::prelude::*;

use crate::errors::error;
use crate::layout::{CacheLayout, Table, tables};

/// What one rank of a decode engine reads from each rank of a prefill engine.
///
/// `sources` and `targets` are the layouts of all ranks of both engines, `rank` is the reading
/// one; `source_tables` has the block tables of each source rank, `target_tables` those of the
/// reader. The prefill engine has the KV of `valid` tokens, the decode engine computes from
/// position `resume_at` on. Gives, for each source rank, a list of copies: source region, source
/// block ids, target region, target block ids, bytes.
#[pyfunction]
#[pyo3(signature = (sources, targets, rank, source_tables, target_tables, *, valid, resume_at, hits = Vec::new()))]
#[expect(clippy::too_many_arguments, reason = "named in Python")]
#[expect(clippy::needless_pass_by_value, reason = "Python lists come as values")]
pub(crate) fn plan(
    py: Python<'_>,
    sources: Vec<CacheLayout>,
    targets: Vec<CacheLayout>,
    rank: usize,
    source_tables: Vec<Vec<Table>>,
    target_tables: Vec<Table>,
    valid: u64,
    resume_at: u64,
    hits: Vec<u64>,
) -> PyResult<Vec<Vec<Copied>>> {
    py.detach(|| {
        let (from, to) = (layouts(&sources), layouts(&targets));
        let planner = Planner::new(&from, &to, rank).map_err(refused)?;
        let held: Vec<Vec<BlockTable>> = source_tables.into_iter().map(tables).collect();
        let held: Vec<&[BlockTable]> = held.iter().map(Vec::as_slice).collect();
        let span = Span { valid, resume_at };
        let plan = planner.plan(&held, &tables(target_tables), &hits, span).map_err(refused)?;
        let rank = |copies: Vec<_>| copies.iter().map(copied).collect();
        Ok(plan.reads.into_iter().map(rank).collect())
    })
}

/// Source region and block ids, target region and block ids, bytes.
type Copied = (u32, Vec<u32>, u32, Vec<u32>, u64);

fn copied(copy: &kvferry::strided::BlockCopy) -> Copied {
    let (source, target) = (copy.source(), copy.target());
    let (from, to) = (source.region().0, target.region().0);
    (from, source.ids().to_vec(), to, target.ids().to_vec(), copy.bytes())
}

fn layouts(given: &[CacheLayout]) -> Vec<&kvferry::kv_layout::CacheLayout> {
    given.iter().map(|layout| &layout.0).collect()
}

fn refused(why: kvferry::kv_layout::PlanError) -> PyErr {
    error(Class::Config, why)
}
