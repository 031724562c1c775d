//! How a command fails: one clear line, what to do about it, and an exit code that means
//! something.

use std::process::ExitCode;

use anstyle::{AnsiColor, Style};

use crate::output;

/// Whose fault it is, as the exit code tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Code {
    /// Something went wrong that none of the others names.
    Failed = 1,
    /// Wrong usage or input.
    Input = 2,
    /// The request is sound and not supported.
    Unsupported = 3,
    /// Bytes arrived wrong.
    Bytes = 4,
    /// A peer or an address cannot be used.
    Peer = 5,
}

impl Code {
    /// The code of that number; anything unknown is a plain failure.
    pub(crate) fn from_number(number: u8) -> Self {
        let all = [Self::Input, Self::Unsupported, Self::Bytes, Self::Peer];
        all.into_iter().find(|&code| code as u8 == number).unwrap_or(Self::Failed)
    }
}

/// A failed command.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

impl Failure {
    pub(crate) fn new(code: Code, message: impl ToString) -> Self {
        Self { code, message: message.to_string(), hint: None }
    }

    /// Wrong usage or input.
    pub(crate) fn input(message: impl ToString) -> Self {
        Self::new(Code::Input, message)
    }

    /// A command line that clap refuses, on one line, with clap's tip or the usage below it.
    pub(crate) fn usage(why: &clap::Error) -> Self {
        let text = why.render().to_string();
        let said = text.lines().map(str::trim).take_while(|line| !line.is_empty());
        // A list in brackets would name commands that are not for people.
        let said: Vec<&str> = said.filter(|line| !line.starts_with('[')).collect();
        let said = said.join(" ");
        let after = |start| text.lines().find_map(|line| line.trim().strip_prefix(start));
        let hint = match (after("tip: "), after("Usage: ")) {
            (Some(tip), _) => tip.to_owned(),
            (None, Some(usage)) => format!("usage: {usage}"),
            (None, None) => "see kvferry --help".to_owned(),
        };
        Self::input(said.strip_prefix("error: ").unwrap_or(&said)).hint(hint)
    }

    /// Adds what to do about it.
    pub(crate) fn hint(mut self, hint: impl ToString) -> Self {
        self.hint = Some(hint.to_string());
        self
    }

    /// On standard error; as JSON where that was asked for.
    pub(crate) fn print(&self, json: bool) {
        if json {
            let value = serde_json::json!({
                "error": self.message,
                "hint": self.hint,
                "exit_code": self.code as u8,
            });
            output::error_line(value);
            return;
        }
        let red = Style::new().bold().fg_color(Some(AnsiColor::Red.into()));
        let dim = Style::new().bold().fg_color(Some(AnsiColor::Cyan.into()));
        output::error_line(format_args!("{red}error{red:#}: {}", self.message));
        if let Some(hint) = &self.hint {
            output::error_line(format_args!("{dim} help{dim:#}: {hint}"));
        }
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.code as u8)
    }
}
