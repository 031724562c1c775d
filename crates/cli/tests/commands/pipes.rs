//! Outputs that nobody reads, and what the prefill worker says over its own.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{ExitStatus, Stdio};

use crate::common::{command, folder};
use serde_json::{Value, json};

/// A pipe whose reader is gone.
fn closed() -> Stdio {
    let (_, writer) = std::io::pipe().unwrap();
    writer.into()
}

const SHORT: [&str; 6] = ["full.json", "--tokens", "40", "--block-size", "16", "--json"];
const REPLAY: [&str; 6] = ["replay", "windowed.json", "--pool", "16MiB", "--limit", "2"];

fn unread(folder: &Path, arguments: &[&str]) -> (ExitStatus, String) {
    let output = command(folder, arguments).stdout(closed()).output().unwrap();
    (output.status, String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_reader_that_has_gone_away_has_seen_enough() {
    let folder = folder();
    let handoff = [&["handoff"], &SHORT[..]].concat();
    let all: [&[&str]; 6] = [
        &["plan", "full.json"],
        &["plan", "full.json", "--json"],
        &["--help"],
        &handoff,
        &handoff[..6],
        &REPLAY,
    ];
    for arguments in all {
        let (status, stderr) = unread(folder.path(), arguments);
        assert_eq!((status.code(), stderr.as_str()), (Some(0), ""), "{arguments:?}");
    }
}

/// Nobody sees the line, so the code alone says what happened.
#[test]
fn an_error_that_nobody_reads_is_still_an_error() {
    let folder = folder();
    for arguments in [&["plan", "nope.json"][..], &["plan", "nope.json", "--json"], &["fly"]] {
        let output = command(folder.path(), arguments).stderr(closed()).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert_eq!(output.stdout, b"");
    }
}

/// A disk that is full is no reader that has gone away.
#[test]
fn an_output_that_cannot_be_written_is_a_failure() {
    let folder = folder();
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let output = command(folder.path(), &["plan", "full.json"]).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    let error = "error: cannot write the output: No space left on device (os error 28)\n";
    assert_eq!(said, error);
}

/// The worker answers a prompt that it can never hold, and goes on.
#[test]
fn a_prompt_larger_than_the_pool_is_refused_by_the_worker() {
    let folder = folder();
    let arguments = ["prefill-worker", "full.json", "--pool", "1048576", "--block-size", "16"];
    let mut worker = command(folder.path(), &arguments).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = worker.stdin.take().unwrap();
    let mut lines = BufReader::new(worker.stdout.take().unwrap()).lines();
    let mut next = || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    assert_eq!(next(), json!({ "say": "ready" }));
    writeln!(stdin, "{}", json!({ "say": "prefill", "request": 7, "tokens": 100_000 })).unwrap();
    let failed = json!({
        "say": "failed", "hint": null, "exit_code": 1,
        "message": "request 7: 100000 tokens are larger than the pool",
    });
    assert_eq!(next(), failed);
    writeln!(stdin, "{}", json!({ "say": "prefill", "request": 8, "tokens": 40 })).unwrap();
    assert_eq!(next()["say"], "offered");
    drop(stdin);
    assert_eq!(next()["message"], "the parent is gone");
    assert_eq!(worker.wait().unwrap().code(), Some(0));
}
