//! Runs the commands that the pages show, so that they stay true.
//!
//! In a `console` block each line behind `$ ` is a command; an `sh`, `bash` or `shell` block is
//! one script. The line
//! that opens the block may say `exit=3`, the exit code that is right for its commands, or
//! `ignore=` and the reason why they cannot run here. What a command prints is not compared.

use std::process::{Command, Output, Stdio};
use std::time::Instant;

use anstyle::{AnsiColor, Style};

use crate::error::Error;
use crate::workspace::Workspace;

const BAD: Style = AnsiColor::Red.on_default().bold();
const DIM: Style = Style::new().dimmed();

/// A command that is still running then was not meant to be shown without a mark.
const LIMIT_SECONDS: &str = "300";

/// Commands that lead back to this stage.
const OURSELVES: [&str; 3] = ["cargo xtask ci", "cargo xtask doc-commands", ".ci/run"];

/// How many of a failed command's last lines are shown.
const SHOWN_LINES: usize = 40;

/// A command as a page shows it.
#[derive(Debug, PartialEq, Eq)]
struct Shown {
    line: usize,
    command: String,
    /// The exit code that is right, or what stands where none can be read.
    exit: Result<i32, String>,
    /// Why it is not run.
    ignored: Option<String>,
}

/// Runs every command of every page, past those that fail.
pub fn run(workspace: &Workspace) -> Result<(), Error> {
    let mut failed = 0;
    for page in workspace.text_files()?.iter().filter(|file| is_page(&file.path)) {
        for shown in commands(&page.text) {
            failed += usize::from(!holds(workspace, &page.path, &shown)?);
        }
    }
    match failed {
        0 => Ok(()),
        failed => Err(Error::DocCommands(failed)),
    }
}

fn is_page(path: &str) -> bool {
    let in_docs = path.strip_prefix("docs/").is_some_and(|name| !name.contains('/'));
    path.ends_with(".md") && (in_docs || !path.contains('/'))
}

/// Runs one command; true if it does what its page says.
fn holds(workspace: &Workspace, page: &str, shown: &Shown) -> Result<bool, Error> {
    let place = format!("{page}:{}", shown.line);
    let wanted = match &shown.exit {
        Ok(wanted) => *wanted,
        Err(text) => {
            anstream::println!("{BAD}{place}: exit={text}{BAD:#} — write a number: exit=3");
            return Ok(false);
        }
    };
    let aside = match &shown.ignored {
        Some(reason) => Some(format!("not run: {reason}")),
        None => is_ourselves(&shown.command).then(|| "this run".to_owned()),
    };
    if let Some(aside) = aside {
        anstream::println!("{place}: $ {} {DIM}({aside}){DIM:#}", shown.command);
        return Ok(true);
    }
    anstream::println!("{place}: $ {}", shown.command);
    let started = Instant::now();
    let output = execute(workspace, &shown.command)?;
    anstream::println!("{DIM}    {:.1} s{DIM:#}", started.elapsed().as_secs_f32());
    if output.status.code() == Some(wanted) {
        return Ok(true);
    }
    complain(&place, wanted, &output);
    Ok(false)
}

fn is_ourselves(command: &str) -> bool {
    OURSELVES.iter().any(|ours| {
        let command = command.strip_prefix("./").unwrap_or(command);
        command.strip_prefix(ours).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
    })
}

fn execute(workspace: &Workspace, command: &str) -> Result<Output, Error> {
    // `timeout` ends the whole group of processes, which we could not do without unsafe code.
    Command::new("timeout")
        .args(["--kill-after=5", LIMIT_SECONDS, "bash", "-euo", "pipefail", "-c", command])
        .current_dir(&workspace.root)
        .stdin(Stdio::null())
        .output()
        .map_err(|source| Error::Spawn { program: "timeout".to_owned(), source })
}

fn complain(place: &str, wanted: i32, output: &Output) {
    let text = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    for line in &lines[lines.len().saturating_sub(SHOWN_LINES)..] {
        anstream::println!("    {line}");
    }
    let status = output.status;
    anstream::println!(
        "{BAD}{place}: {status}, where the page promises {wanted}{BAD:#} — mend the command or \
         the page, or mark the block with exit=CODE or ignore=REASON"
    );
}

/// The commands of a page, in their order.
fn commands(page: &str) -> Vec<Shown> {
    let lines: Vec<&str> = page.lines().collect();
    let mut found = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        let Some((fence, info)) = opening(lines[at]) else {
            at += 1;
            continue;
        };
        let inside = &lines[at + 1..];
        let length = inside.iter().position(|line| line.trim() == fence).unwrap_or(inside.len());
        found.extend(block(info, at + 2, &inside[..length]));
        at += length + 2;
    }
    found
}

/// The fence of a code block that starts here, and what stands behind it.
fn opening(line: &str) -> Option<(&str, &str)> {
    let line = line.trim();
    let info = line.trim_start_matches('`');
    let fence = &line[..line.len() - info.len()];
    (fence.len() >= 3).then_some((fence, info))
}

/// The commands of one block, whose first line has this number in the page.
fn block(info: &str, first: usize, lines: &[&str]) -> Vec<Shown> {
    let (language, marks) = info.split_once(' ').unwrap_or((info, ""));
    let commands = match language {
        "console" => prompted(first, lines),
        "sh" | "bash" | "shell" => vec![(first, lines.join("\n"))],
        _ => Vec::new(),
    };
    // A reason may have many words, so it is all that follows its mark.
    let (marks, ignored) = match marks.split_once("ignore=") {
        Some((before, reason)) => (before, Some(reason.trim().to_owned())),
        None => (marks, None),
    };
    let exit = marks.split_whitespace().find_map(|mark| mark.strip_prefix("exit="));
    let exit = exit.map_or(Ok(0), |code| code.parse().map_err(|_| code.to_owned()));
    let shown =
        |(line, command)| Shown { line, command, exit: exit.clone(), ignored: ignored.clone() };
    commands.into_iter().map(shown).collect()
}

/// The lines behind `$ `; one that ends with a backslash goes on in the next.
fn prompted(first: usize, lines: &[&str]) -> Vec<(usize, String)> {
    let mut commands: Vec<(usize, String)> = Vec::new();
    let mut continues = false;
    for (line, text) in (first..).zip(lines.iter().map(|text| text.trim())) {
        match text.strip_prefix("$ ") {
            Some(command) if !continues => commands.push((line, command.to_owned())),
            _ if !continues => continue,
            _ => commands.last_mut().into_iter().for_each(|(_, c)| *c += &format!("\n{text}")),
        }
        continues = text.ends_with('\\');
    }
    commands
}

#[cfg(test)]
mod tests;
