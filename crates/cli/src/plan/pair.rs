//! `kvferry plan --from P.json --to D.json`: who reads what from whom.

use kv_layout::{
    BlockTable, CacheLayout, EngineShape, Holding, Kind, Model, PlanError, RankShape, Span, Target,
    plan, readers,
};
use serde::Serialize;
use strided::{BlockCopy, Blocks};

use crate::failure::{Code, Failure};
use crate::output;

/// What is told of a pair of engines.
#[derive(Debug, Serialize)]
struct Report {
    tokens: u64,
    resume_at: u64,
    /// Tokens that the prefill engine computes.
    prefill_tokens: u64,
    reads: Vec<Read>,
    /// Bytes that each decode rank zeroes.
    zeroed: Vec<u64>,
    /// Of each prefill rank, the decode ranks that it waits for.
    readers: Vec<Vec<usize>>,
}

#[derive(Debug, Serialize)]
struct Read {
    decode_rank: usize,
    prefill_rank: usize,
    copies: usize,
    ranges: u64,
    bytes: u64,
}

/// One engine with a request's blocks.
struct Engine {
    layouts: Vec<CacheLayout>,
    tables: Vec<Vec<BlockTable>>,
}

pub(super) fn run(
    model: &Model,
    from: EngineShape,
    to: EngineShape,
    tokens: u64,
    json: bool,
) -> Result<(), Failure> {
    let report = planned(model, from, to, tokens)?;
    if json {
        output::line(serde_json::json!(report));
    } else {
        print(&report);
    }
    Ok(())
}

/// Refuses two engines that cannot exchange a KV cache.
pub(crate) fn check(
    model: &Model,
    from: EngineShape,
    to: EngineShape,
    tokens: u64,
) -> Result<(), Failure> {
    planned(model, from, to, tokens).map(drop)
}

fn planned(
    model: &Model,
    from: EngineShape,
    to: EngineShape,
    tokens: u64,
) -> Result<Report, Failure> {
    let engine = |shape, side: &str, flag: &str| {
        Engine::new(model, shape, tokens).map_err(|mut why| {
            why.message = format!("the {side} engine: {}", why.message);
            if why.hint.is_some() { why } else { why.hint(format!("see the shape of {flag}")) }
        })
    };
    let prefill = engine(from, "prefill", "--from")?;
    let decode = engine(to, "decode", "--to")?;
    let kinds = model.layers.iter().map(|layer| layer.kind);
    let prefill_tokens = Kind::prefill_tokens(kinds, tokens);
    report(&prefill, &decode, tokens, prefill_tokens).map_err(refused)
}

fn refused(why: PlanError) -> Failure {
    let code = if why.is_unsupported() { Code::Unsupported } else { Code::Failed };
    Failure::new(code, why)
}

impl Engine {
    fn new(model: &Model, shape: EngineShape, tokens: u64) -> Result<Self, Failure> {
        let ranks = shape.ranks(model).map_err(Failure::input)?;
        let tables =
            ranks.iter().map(|rank| tables(rank, tokens)).collect::<Result<Vec<_>, _>>()?;
        let last = tables.iter().flatten().filter_map(|table| table.ids.last()).max();
        let block_count = last.copied().unwrap_or(0).saturating_add(1);
        let layouts = shape.layouts(model, block_count).map_err(Failure::input)?;
        Ok(Self { layouts, tables })
    }
}

/// The rank's blocks of the request, with ids from 1 on.
fn tables(rank: &RankShape, tokens: u64) -> Result<Vec<BlockTable>, Failure> {
    let mut next = 1_u32;
    let table = |kept: kv_layout::Kept| {
        let end = super::report::after(next, kept.blocks);
        let end = end.ok_or_else(|| super::report::too_many(tokens))?;
        let ids = (next..end).collect();
        next = end;
        Ok(BlockTable { first_token: kept.first_token, ids })
    };
    rank.kept(tokens - 1, tokens).map(table).collect()
}

fn report(
    prefill: &Engine,
    decode: &Engine,
    tokens: u64,
    prefill_tokens: u64,
) -> Result<Report, PlanError> {
    let span = Span { valid: prefill_tokens, resume_at: tokens - 1 };
    let sources: Vec<Holding<'_>> = prefill
        .layouts
        .iter()
        .zip(&prefill.tables)
        .map(|(layout, tables)| Holding { layout, tables })
        .collect();
    let from: Vec<&CacheLayout> = prefill.layouts.iter().collect();
    let ranks: Vec<&CacheLayout> = decode.layouts.iter().collect();
    let (mut reads, mut zeroed) = (Vec::new(), Vec::new());
    for (rank, tables) in decode.tables.iter().enumerate() {
        let planned = plan(&sources, Target { ranks: &ranks, rank, tables, hits: &[] }, span)?;
        zeroed.push(planned.zero.iter().map(Blocks::bytes).sum());
        let of_rank = planned.reads.iter().enumerate().filter(|(_, copies)| !copies.is_empty());
        reads.extend(of_rank.map(|(source, copies)| Read {
            decode_rank: rank,
            prefill_rank: source,
            copies: copies.len(),
            ranges: copies.iter().map(|copy| ranges(copy, from[source], ranks[rank])).sum(),
            bytes: copies.iter().map(BlockCopy::bytes).sum(),
        }));
    }
    let readers = readers(&from, &ranks)?.into_iter().map(|of| of.into_iter().collect()).collect();
    Ok(Report { tokens, resume_at: tokens - 1, prefill_tokens, reads, zeroed, readers })
}

fn ranges(copy: &BlockCopy, from: &CacheLayout, to: &CacheLayout) -> u64 {
    let stride = |layout: &CacheLayout, blocks: &Blocks| {
        layout.regions[blocks.region().0 as usize].block_stride
    };
    copy.ranges(stride(from, copy.source()), stride(to, copy.target())).count() as u64
}

fn print(report: &Report) {
    output::title("What each decode rank reads");
    let row = |read: &Read| {
        vec![
            read.decode_rank.to_string(),
            read.prefill_rank.to_string(),
            output::count(read.copies as u64),
            output::count(read.ranges),
            output::bytes(read.bytes),
        ]
    };
    let rows = report.reads.iter().map(row).collect();
    let header = ["decode rank", "from prefill rank", "copies", "ranges", "bytes"];
    output::line(output::table(&header, &[], rows));
    output::title("Whom each prefill rank waits for");
    let row = |(rank, of): (usize, &Vec<usize>)| {
        let names: Vec<String> = of.iter().map(usize::to_string).collect();
        let names = if names.is_empty() {
            "nobody: it is told to free".to_owned()
        } else {
            names.join(", ")
        };
        vec![rank.to_string(), names]
    };
    let rows = report.readers.iter().enumerate().map(row).collect();
    output::line(output::table(&["prefill rank", "decode ranks"], &[1], rows));
    output::line(format_args!(
        "The prefill engine computes {} of {} tokens; each decode rank zeroes at most {}.",
        output::count(report.prefill_tokens),
        output::count(report.tokens),
        output::bytes(report.zeroed.iter().copied().max().unwrap_or(0))
    ));
}
