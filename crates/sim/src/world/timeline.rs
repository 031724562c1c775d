//! What happened, for people.

use std::fmt::Write;

#[derive(Debug, Default)]
pub(crate) struct Timeline {
    /// Nothing is written down in a run that nobody looks at.
    pub(crate) kept: bool,
    lines: Vec<Line>,
}

#[derive(Debug)]
struct Line {
    at: u64,
    request: Option<u32>,
    text: String,
}

impl Timeline {
    pub(crate) fn note(&mut self, at: u64, request: Option<u32>, text: impl FnOnce() -> String) {
        if self.kept {
            self.lines.push(Line { at, request, text: text() });
        }
    }

    /// The lines that concern one request, or all.
    pub(crate) fn text(&self, of: Option<u32>) -> String {
        let mut text = String::new();
        let concerns = |line: &&Line| of.is_none() || line.request.is_none() || line.request == of;
        for Line { at, request, text: what } in self.lines.iter().filter(concerns) {
            let (seconds, nanos) = (at / 1_000_000_000, at % 1_000_000_000);
            let name = request.map(|request| format!("r{request}")).unwrap_or_default();
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{seconds:>4}.{nanos:09} {name:>5} {what}");
        }
        text
    }
}
