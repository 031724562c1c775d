//! Numbers and tables as people read them, and the one place that prints.

use std::fmt::Write;
use std::io::{ErrorKind, Write as _};

use anstyle::Style;
use bytesize::ByteSize;
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

use crate::failure::{Code, Failure};

/// Prints a line on standard output. A reader that has gone away, as `head` does, has seen
/// enough: the program ends there, and that is no failure.
pub(crate) fn line(text: impl std::fmt::Display) {
    let mut stdout = anstream::stdout().lock();
    let Err(why) = writeln!(stdout, "{text}").and_then(|()| stdout.flush()) else { return };
    if why.kind() == ErrorKind::BrokenPipe {
        std::process::exit(0);
    }
    let failure = Failure::new(Code::Failed, format!("cannot write the output: {why}"));
    failure.print(false);
    std::process::exit(i32::from(Code::Failed as u8));
}

/// Prints a line on standard error. Where nobody reads it, the exit code alone has to say what
/// happened.
pub(crate) fn error_line(text: impl std::fmt::Display) {
    let _ = writeln!(anstream::stderr().lock(), "{text}");
}

/// `12345` as `12,345`.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.char_indices() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Bytes in the largest binary unit that leaves at least one of it.
pub(crate) fn bytes(number: u64) -> String {
    ByteSize::b(number).display().iec().to_string()
}

/// `part` of `whole` in per cent.
#[allow(clippy::cast_precision_loss, reason = "one decimal is shown")]
pub(crate) fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "–".to_owned();
    }
    format!("{:.1} %", 100.0 * part as f64 / whole as f64)
}

/// A table without lines, numbers to the right: all columns but those in `left`.
pub(crate) fn table(header: &[&str], left: &[usize], rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table.set_header(header.iter().copied()).add_rows(rows);
    aligned(table, left)
}

/// Names and what is to be said of them.
pub(crate) fn facts(rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table.add_rows(rows);
    aligned(table, &[0, 1])
}

fn aligned(mut table: Table, left: &[usize]) -> String {
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    for (index, column) in table.column_iter_mut().enumerate() {
        let right = !left.contains(&index);
        column.set_cell_alignment(if right { CellAlignment::Right } else { CellAlignment::Left });
        column.set_padding((2, 0));
    }
    let mut text = String::new();
    for line in table.lines() {
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

/// A headline.
pub(crate) fn title(text: &str) {
    let bold = Style::new().bold();
    line(format_args!("{bold}{text}{bold:#}"));
}
