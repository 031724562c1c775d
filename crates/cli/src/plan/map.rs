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
    let scale = Scale::new(report);
    let height = TOP + ROW * units(report.layers.len() as u64) + 2.2 * MARGIN;
    let width = LEFT + scale.at(scale.tokens).max(560.0) + 1.5 * MARGIN;
    let mut document = Document::new()
        .set("viewBox", (0, 0, width.ceil(), height.ceil()))
        .set("width", width.ceil())
        .set("height", height.ceil())
        .set("font-family", FONT)
        .add(Rectangle::new().set("width", "100%").set("height", "100%").set("fill", "#ffffff"));
    document = document.add(heading(report)).add(legend(report));
    for (index, layer) in (0_u32..).zip(&report.layers) {
        document = document.add(row(layer, report, TOP + ROW * f64::from(index), &scale));
    }
    let bottom = TOP + ROW * units(report.layers.len() as u64);
    document.add(axis(report, &scale, bottom))
}

/// Tokens to pixels: rows of different block size share one axis.
struct Scale {
    /// Tokens of the longest row, its last block filled up.
    tokens: u64,
    pixels_a_token: f64,
}

impl Scale {
    fn new(report: &Report) -> Self {
        let attention = || report.layers.iter().filter(|layer| !layer.kind.is_recurrent());
        let filled = |layer: &LayerRow| layer.blocks.saturating_mul(u64::from(layer.block_size));
        let tokens = attention().map(filled).max().unwrap_or(report.tokens).max(1);
        let block = attention().map(|layer| layer.block_size).min().unwrap_or(1);
        let pixels_a_token = (WIDTH / units(tokens)).min(4.0 * ROW / f64::from(block));
        Self { tokens, pixels_a_token }
    }

    fn at(&self, tokens: u64) -> f64 {
        units(tokens) * self.pixels_a_token
    }
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
    let mut sizes: Vec<u32> = report.groups.iter().map(|group| group.block_size).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let sizes: Vec<String> = sizes.iter().map(u32::to_string).collect();
    let title = format!(
        "{}: {} tokens in blocks of {}",
        report.model_type,
        output::count(report.tokens),
        sizes.join(" and ")
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
    if report.layers.iter().any(|layer| layer.moved < layer.blocks) {
        entries.push((PRUNED, "pruned: no later token sees it".to_owned()));
    }
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

/// A cell a block, as long as there is room for its edge; a state is a mark where it belongs.
fn row(layer: &LayerRow, report: &Report, y: f64, scale: &Scale) -> Group {
    let block = u64::from(layer.block_size);
    let bar = |x: f64, width: f64, fill: &str| {
        let bar = Rectangle::new().set("x", LEFT + x).set("y", y + 1.0).set("width", width);
        bar.set("height", ROW - 2.0).set("fill", fill)
    };
    let name = format!("{} · group {}", layer.name, layer.group);
    let group =
        Group::new().add(text(LEFT - 8.0, y + 11.0, 11, INK, name).set("text-anchor", "end"));
    if layer.kind.is_recurrent() {
        let mark = if layer.moved > 0 { 8.0 } else { 0.0 };
        return group.add(bar(scale.at(report.resume_at), mark, colour(layer.kind)));
    }
    let (from, moved) = (scale.at(layer.first_moved * block), scale.at(layer.moved * block));
    group
        .add(bar(0.0, scale.at(layer.blocks * block), PRUNED))
        .add(bar(from, moved, colour(layer.kind)))
        .add(edges(layer, y, scale))
}

fn edges(layer: &LayerRow, y: f64, scale: &Scale) -> Group {
    let cell = scale.at(u64::from(layer.block_size));
    let mut group =
        Group::new().set("stroke", "#ffffff").set("stroke-width", (cell / 7.0).min(1.0));
    if cell >= 1.5 {
        for block in 1..layer.blocks {
            let x = LEFT + scale.at(block * u64::from(layer.block_size));
            let line = Line::new().set("x1", x).set("x2", x).set("y1", y).set("y2", y + ROW);
            group = group.add(line);
        }
    }
    group
}

/// About eight labels, fewer where there is no room for them.
fn axis(report: &Report, scale: &Scale, bottom: f64) -> Group {
    const LABEL: f64 = 70.0;
    let block = report.groups.iter().map(|group| u64::from(group.block_size)).min().unwrap_or(1);
    let blocks = report.tokens.div_ceil(block);
    let step = (1..=blocks).find(|&step| scale.at(step * block) >= LABEL && step * 9 > blocks);
    let step = step.unwrap_or(blocks).max(1);
    let mut group = Group::new();
    for index in (0..=blocks).step_by(usize::try_from(step).unwrap_or(usize::MAX)) {
        let tokens = index.saturating_mul(block).min(report.tokens);
        let x = LEFT + scale.at(tokens);
        let label = text(x, bottom + 16.0, 11, FAINT, output::count(tokens));
        group = group.add(label.set("text-anchor", "middle"));
    }
    group.add(text(LEFT - 8.0, bottom + 16.0, 11, FAINT, "token").set("text-anchor", "end"))
}
