//! The plots of the page.

use std::error::Error;

use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, SegmentValue};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::bench::case::Kind;
use crate::bench::figures::{Measured, Series};

/// What the colours of bars mean.
pub(super) const KINDS: [(&str, &str); 2] = [("providers", PROVIDER), ("plain limits", LIMIT)];

const PROVIDER: &str = "#2563a8";
const LIMIT: &str = "#b9c2d0";

/// Lines of the limits, then those of providers.
const LINES: [&str; 6] = ["#8b95a5", "#d97a1d", PROVIDER, "#2d8a5b", "#7048a8", "#b3364a"];

const INK: RGBColor = RGBColor(31, 36, 48);
const FAINT: RGBColor = RGBColor(107, 114, 128);
const GRID: RGBColor = RGBColor(231, 233, 238);
const FONT: &str = "ui-sans-serif, system-ui, 'DejaVu Sans', sans-serif";

const WIDTH: u32 = 1040;
const ROW: u32 = 30;

/// Pixels for the names of cases.
const NAMES: u32 = 230;

type Drawn<T> = Result<T, Box<dyn Error>>;

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

/// One case as it is drawn.
struct Row<'a> {
    name: &'a str,
    paint: &'static str,
    median: f64,
    /// Each round.
    dots: Vec<f64>,
}

impl<'a> Row<'a> {
    fn new(series: &'a Series, value: impl Fn(f64) -> f64) -> Self {
        Self {
            name: &series.case,
            paint: if series.is_limit { LIMIT } else { PROVIDER },
            median: value(series.median()),
            dots: series.counted().map(|round| value(round.seconds)).collect(),
        }
    }
}

/// A bar for each case of a workload, with a dot for each round.
pub(super) fn cases(measured: &Measured) -> Drawn<String> {
    let is_latency = measured.workload.is_latency();
    let unit = if is_latency { "microseconds" } else { "gigabytes a second" };
    let value = |seconds| if is_latency { seconds * 1e6 } else { measured.rate(seconds) };
    // The axis counts upwards.
    let rows: Vec<Row<'_>> =
        measured.series.iter().rev().map(|series| Row::new(series, value)).collect();
    let height = u32::try_from(rows.len())? * ROW + 64;
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, (WIDTH, height)).into_drawing_area();
        bars(&area, &rows, unit)?;
        area.present()?;
    }
    Ok(text)
}

fn bars(area: &Area<'_>, rows: &[Row<'_>], unit: &str) -> Drawn<()> {
    // The numbers stand right of all dots.
    let most = rows.iter().flat_map(|row| &row.dots).copied().fold(0.0, f64::max).max(1e-9) * 1.1;
    let last = rows.len().saturating_sub(1);
    let mut chart = ChartBuilder::on(area)
        .margin(8)
        .margin_right(24)
        .x_label_area_size(48)
        .y_label_area_size(NAMES)
        .build_cartesian_2d(0.0..most, (0..last).into_segmented())?;
    let name = |at: &SegmentValue<usize>| match at {
        SegmentValue::CenterOf(row) => {
            rows.get(*row).map_or_else(String::new, |row| row.name.to_owned())
        }
        _ => String::new(),
    };
    chart
        .configure_mesh()
        .disable_y_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(FAINT)
        .x_desc(unit)
        .y_labels(rows.len() + 1)
        .y_label_formatter(&name)
        .x_label_formatter(&|value| plain(*value))
        .label_style((FONT, 14).with_color(INK))
        .axis_desc_style((FONT, 14).with_color(FAINT))
        .draw()?;
    for (at, row) in rows.iter().enumerate() {
        let above = if at == last { SegmentValue::Last } else { SegmentValue::Exact(at + 1) };
        let corners = [(0.0, SegmentValue::Exact(at)), (row.median, above)];
        let mut bar = Rectangle::new(corners, colour(row.paint).filled());
        bar.set_margin(6, 6, 0, 0);
        chart.draw_series([bar])?;
        let place = |value| (value, SegmentValue::CenterOf(at));
        let dot = |&value: &f64| Circle::new(place(value), 2, INK.mix(0.45).filled());
        chart.draw_series(row.dots.iter().map(dot))?;
        let right = Pos::new(HPos::Right, VPos::Center);
        let style = (FONT, 14).into_font().color(&INK).pos(right);
        chart.draw_series([Text::new(short(row.median), place(most), style)])?;
    }
    Ok(())
}

/// The lines of one plot, each with its colour.
type Lines = Vec<(String, &'static str)>;

/// A plot of speed over block size for each number of blocks, and what its lines are.
pub(super) fn sweep(all: &[&Measured]) -> Drawn<(String, Lines)> {
    let mut counts: Vec<u32> = all.iter().map(|measured| measured.workload.moved).collect();
    counts.sort_unstable();
    counts.dedup();
    let lines = lines(all);
    let points = || lines.iter().flat_map(|(line, _)| points(all, line));
    let axes = [doublings(points().map(|point| point.0)), doublings(points().map(|point| point.1))];
    let columns = counts.len().max(1);
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, (WIDTH, 340)).into_drawing_area();
        for (panel, count) in area.split_evenly((1, columns)).iter().zip(&counts) {
            let of_count: Vec<&Measured> =
                all.iter().filter(|measured| measured.workload.moved == *count).copied().collect();
            panel_of(panel, &of_count, *count, &axes, &lines)?;
        }
        area.present()?;
    }
    Ok((text, lines))
}

/// One panel of the sweep. Both axes count doublings.
fn panel_of(
    panel: &Area<'_>,
    all: &[&Measured],
    count: u32,
    [blocks, rates]: &[Vec<f64>; 2],
    lines: &Lines,
) -> Drawn<()> {
    let mut chart = ChartBuilder::on(panel)
        .margin(8)
        .caption(format!("{count} blocks"), (FONT, 15).with_color(INK))
        .x_label_area_size(48)
        .y_label_area_size(60)
        .build_cartesian_2d(Axis::new(blocks), Axis::new(rates))?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(FAINT)
        .x_desc("KiB a block")
        .y_desc("gigabytes a second")
        .x_labels(blocks.len())
        .y_labels(rates.len())
        .x_label_formatter(&|doublings| plain(doublings.exp2()))
        .y_label_formatter(&|doublings| plain(doublings.exp2()))
        .label_style((FONT, 13).with_color(INK))
        .axis_desc_style((FONT, 13).with_color(FAINT))
        .draw()?;
    for (line, paint) in lines {
        let points = points(all, line);
        let style = colour(paint).stroke_width(2);
        chart.draw_series(LineSeries::new(points.iter().copied(), style))?;
        let dot = |&point: &(f64, f64)| Circle::new(point, 3, colour(paint).filled());
        chart.draw_series(points.iter().map(dot))?;
    }
    Ok(())
}

/// The points of a line, by block size.
fn points(all: &[&Measured], line: &str) -> Vec<(f64, f64)> {
    let point = |measured: &&Measured| {
        let rate = rate(measured, line).filter(|rate| *rate > 0.0)?;
        Some(((f64::from(measured.workload.block) / 1024.0).log2(), rate.log2()))
    };
    let mut points: Vec<_> = all.iter().filter_map(point).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points
}

/// Every whole doubling from the least of these to the most.
fn doublings(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let (least, most) = values.fold((f64::MAX, f64::MIN), |(l, m), v| (l.min(v), m.max(v)));
    let (least, most) = if least <= most { (least.floor(), most.ceil()) } else { (0.0, 1.0) };
    std::iter::successors(Some(least), |at| Some(at + 1.0)).take_while(|at| *at <= most).collect()
}

/// An axis with marks at whole doublings, which the library would set elsewhere.
struct Axis {
    along: RangedCoordf64,
    marks: Vec<f64>,
}

impl Axis {
    fn new(marks: &[f64]) -> Self {
        let [first, last] = [marks.first(), marks.last()].map(|mark| mark.copied().unwrap_or(0.0));
        // Room beside the first and the last mark.
        Self { along: (first - 0.3..last + 0.3).into(), marks: marks.to_vec() }
    }
}

impl Ranged for Axis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        self.along.map(value, limit)
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if hint.weight().allow_light_points() { Vec::new() } else { self.marks.clone() }
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.along.range()
    }
}

const BEST_TCP: &str = "fastest plain tcp";
const BEST_COPY: &str = "fastest plain copy";

/// The fastest limit of each kind, and every provider.
fn lines(all: &[&Measured]) -> Lines {
    let series = || all.iter().flat_map(|measured| &measured.series);
    let mut names: Vec<String> = Vec::new();
    for (name, kind) in [(BEST_COPY, Kind::Memory), (BEST_TCP, Kind::Tcp)] {
        if series().any(|series| series.is_limit && series.kind == kind) {
            names.push(name.to_owned());
        }
    }
    for series in series().filter(|series| !series.is_limit) {
        if !names.contains(&series.case) {
            names.push(series.case.clone());
        }
    }
    names.into_iter().zip(LINES.into_iter().cycle()).collect()
}

fn rate(measured: &Measured, line: &str) -> Option<f64> {
    let series = match line {
        BEST_COPY => measured.limit(Kind::Memory),
        BEST_TCP => measured.limit(Kind::Tcp),
        name => measured.series.iter().find(|series| series.case == name),
    };
    Some(measured.rate(series?.median()))
}

/// A number with three digits or so.
fn short(value: f64) -> String {
    match value {
        _ if value >= 100.0 => format!("{value:.0}"),
        _ if value >= 10.0 => format!("{value:.1}"),
        _ if value >= 0.01 || value == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

/// A number of an axis, with no more digits than it has.
fn plain(value: f64) -> String {
    format!("{value:.3}").trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// From `#rrggbb`.
fn colour(text: &str) -> RGBColor {
    let part = |at: usize| {
        text.get(at..at + 2).and_then(|part| u8::from_str_radix(part, 16).ok()).unwrap_or(0)
    };
    RGBColor(part(1), part(3), part(5))
}
