//! The block map: a row per layer, a cell per block.

use kv_layout::Kind;
use svg::Document;
use svg::node::element::{Group, Line, Rectangle, Text};

use super::report::{LayerRow, Report};
use crate::output;

const LEFT: f64 = 190.0;
const TOP: f64 = 92.0;
const ROW: f64 = 14.0;
const WIDTH: f64 = 960.0;
const MARGIN: f64 = 28.0;
const FONT: &str = "ui-sans-serif, system-ui, 'DejaVu Sans', sans-serif";
const PRUNED: &str = "#e7e9ee";
const INK: &str = "#1f2430";
const FAINT: &str = "#6b7280";

/// Draws which blocks of which layer move.
pub(crate) fn draw(report: &Report) -> Document {
    let longest = report.layers.iter().map(|layer| layer.blocks).max().unwrap_or(1).max(1);
    let cell = (WIDTH / units(longest)).min(ROW);
    let height = TOP + ROW * units(report.layers.len() as u64) + 2.2 * MARGIN;
    let width = LEFT + (cell * units(longest)).max(560.0) + MARGIN;
    let mut document = Document::new()
        .set("viewBox", (0, 0, width.ceil(), height.ceil()))
        .set("width", width.ceil())
        .set("height", height.ceil())
        .set("font-family", FONT)
        .add(Rectangle::new().set("width", "100%").set("height", "100%").set("fill", "#ffffff"));
    document = document.add(heading(report)).add(legend(report));
    for (index, layer) in (0_u32..).zip(&report.layers) {
        document = document.add(row(layer, TOP + ROW * f64::from(index), cell));
    }
    let bottom = TOP + ROW * units(report.layers.len() as u64);
    document.add(grid(longest, cell, bottom)).add(axis(report, cell, bottom))
}

#[allow(clippy::cast_precision_loss, reason = "pixels")]
fn units(number: u64) -> f64 {
    number as f64
}

fn colour(kind: Kind) -> &'static str {
    match kind {
        Kind::Full => "#2563a8",
        Kind::Mla => "#7048a8",
        Kind::SlidingWindow { .. } => "#d97a1d",
        _ => "#2d8a5b",
    }
}

fn text(x: f64, y: f64, size: u32, fill: &str, content: impl Into<String>) -> Text {
    Text::new(content).set("x", x).set("y", y).set("font-size", size).set("fill", fill)
}

fn heading(report: &Report) -> Group {
    let schemes = &report.schemes;
    let title = format!(
        "{}: {} tokens in blocks of {}",
        report.model_type,
        output::count(report.tokens),
        report.block_size
    );
    let figures = format!(
        "{} of {} pages move, {} of {} ({})",
        output::count(schemes.exact.ranges_joint),
        output::count(schemes.all_full.ranges_joint),
        output::bytes(schemes.exact.bytes),
        output::bytes(schemes.all_full.bytes),
        output::percent(schemes.exact.bytes, schemes.all_full.bytes)
    );
    Group::new()
        .add(text(MARGIN, 30.0, 17, INK, title).set("font-weight", "bold"))
        .add(text(MARGIN, 50.0, 13, FAINT, figures))
}

/// One entry for each kind that occurs, and one for what stays.
fn legend(report: &Report) -> Group {
    let mut entries: Vec<(&str, String)> = Vec::new();
    for layer in &report.layers {
        let entry = (colour(layer.kind), format!("{}: moved", layer.kind));
        if !entries.contains(&entry) {
            entries.push(entry);
        }
    }
    entries.push((PRUNED, "pruned: no later token sees it".to_owned()));
    let mut group = Group::new();
    let mut x = MARGIN;
    for (fill, label) in entries {
        let swatch = Rectangle::new().set("width", 11).set("height", 11).set("fill", fill);
        group = group.add(swatch.set("x", x).set("y", 64));
        x += 34.0 + 6.4 * units(label.chars().count() as u64);
        let label_x = x - 18.0 - 6.4 * units(label.chars().count() as u64);
        group = group.add(text(label_x, 74.0, 12, INK, label));
    }
    group
}

fn row(layer: &LayerRow, y: f64, cell: f64) -> Group {
    let bar = |from: u64, blocks: u64, fill: &str| {
        Rectangle::new()
            .set("x", LEFT + cell * units(from))
            .set("y", y + 1.0)
            .set("width", cell * units(blocks))
            .set("height", ROW - 2.0)
            .set("fill", fill)
    };
    let name = format!("{} · group {}", layer.name, layer.group);
    let moved = bar(layer.first_moved, layer.moved, colour(layer.kind));
    Group::new()
        .add(text(LEFT - 8.0, y + 11.0, 11, INK, name).set("text-anchor", "end"))
        .add(bar(0, layer.blocks, PRUNED))
        .add(moved)
}

/// White lines cut the bars into cells, as long as there is room between them.
fn grid(blocks: u64, cell: f64, bottom: f64) -> Group {
    let mut group =
        Group::new().set("stroke", "#ffffff").set("stroke-width", (cell / 7.0).min(1.0));
    if cell >= 1.5 {
        for block in 1..blocks {
            let x = LEFT + cell * units(block);
            let line = Line::new().set("x1", x).set("x2", x).set("y1", TOP).set("y2", bottom);
            group = group.add(line);
        }
    }
    group
}

fn axis(report: &Report, cell: f64, bottom: f64) -> Group {
    let block = u64::from(report.block_size);
    let blocks = report.tokens.div_ceil(block);
    let step = (blocks / 8).max(1);
    let mut group = Group::new();
    for index in (0..=blocks).step_by(usize::try_from(step).unwrap_or(usize::MAX)) {
        let x = LEFT + cell * units(index);
        let label = output::count(index.saturating_mul(block).min(report.tokens));
        group = group.add(text(x, bottom + 16.0, 11, FAINT, label).set("text-anchor", "middle"));
    }
    group.add(text(LEFT - 8.0, bottom + 16.0, 11, FAINT, "token").set("text-anchor", "end"))
}
