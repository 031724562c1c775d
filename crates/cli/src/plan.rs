//! `kvferry plan`: what a hand-off of a prompt would move.

mod map;
mod pair;
mod report;

use crate::args::PlanArgs;
use crate::failure::Failure;
use crate::{model, output};
pub(crate) use pair::check as check_pair;
use report::{Report, Scheme};

pub(crate) fn run(arguments: &PlanArgs, json: bool) -> Result<(), Failure> {
    let model = model::load(&arguments.model.model)?;
    if let (Some(from), Some(to)) = (&arguments.pair.from, &arguments.pair.to) {
        let shape = |path| model::load_shape(path, arguments.model.block_size);
        return pair::run(&model, shape(from)?, shape(to)?, arguments.tokens, json);
    }
    let report = Report::new(&model, arguments.model.block_size, arguments.tokens)?;
    if let Some(path) = &arguments.svg {
        svg::save(path, &map::draw(&report)).map_err(|why| {
            Failure::input(format!("{}: {why}", path.display()))
                .hint("give --svg a file name in a folder that can be written to")
        })?;
    }
    if json {
        output::line(serde_json::json!(report));
    } else {
        print(&report);
    }
    Ok(())
}

fn print(report: &Report) {
    output::title(&format!(
        "{} · {} · {} layers that keep something · block size {}",
        report.model_type,
        report.dtype,
        report.layers.len(),
        report.block_size
    ));
    output::line(format_args!(
        "A prompt of {} tokens; the decode engine computes from token {} on.\n",
        output::count(report.tokens),
        output::count(report.resume_at)
    ));
    output::title("KV cache groups (layers that share a block table)");
    output::line(groups(report));
    output::title("Shared regions (one slot of every group)");
    output::line(regions(report));
    output::title("What moves");
    output::line(schemes(report));
}

fn groups(report: &Report) -> String {
    let row = |(index, group): (usize, &report::GroupRow)| {
        let moved = match group.moved {
            0 => "none".to_owned(),
            _ if group.kind.is_recurrent() => "the state".to_owned(),
            n => format!("{}..={}", group.first_moved, group.first_moved + n - 1),
        };
        vec![
            index.to_string(),
            group.kind.to_string(),
            group.layers.to_string(),
            group.block_size.to_string(),
            output::count(group.kept),
            output::count(group.moved),
            moved,
        ]
    };
    output::table(
        &["group", "kind", "layers", "tokens a block", "blocks kept", "moved", "which"],
        &[1],
        report.groups.iter().enumerate().map(row).collect(),
    )
}

/// Regions that look alike make one line.
fn regions(report: &Report) -> String {
    let mut rows: Vec<Vec<String>> = Vec::new();
    let alike = |a: &report::RegionRow, b: &report::RegionRow| {
        a.page_bytes == b.page_bytes && a.layers == b.layers
    };
    let mut first = 0;
    for run in report.regions.chunk_by(alike) {
        let last = first + run.len() - 1;
        let name = if first == last { first.to_string() } else { format!("{first}..={last}") };
        rows.push(vec![name, output::bytes(run[0].page_bytes), run[0].layers.to_string()]);
        first = last + 1;
    }
    output::table(&["region", "page", "layers that share it"], &[], rows)
}

fn schemes(report: &Report) -> String {
    let whole = report.schemes.all_full.bytes;
    let row = |name: &str, scheme: &Scheme| {
        vec![
            name.to_owned(),
            output::count(scheme.ranges_joint),
            output::count(scheme.ranges_apart),
            output::bytes(scheme.bytes),
            output::percent(scheme.bytes, whole),
        ]
    };
    let schemes = &report.schemes;
    output::table(
        &["", "ranges, K and V joint", "K and V apart", "bytes", "of full attention"],
        &[0],
        vec![
            row("all layers as full attention", &schemes.all_full),
            row("flat hybrid: every region × every group", &schemes.flat_hybrid),
            row("exact: what kvferry moves", &schemes.exact),
            row("exact, runs of contiguous ids merged", &schemes.exact_merged),
        ],
    )
}
