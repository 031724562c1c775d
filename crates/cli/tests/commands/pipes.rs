//! Outputs that nobody reads, and what a worker says over its own.

use std::io::{BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

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

/// A worker as its parent has it: one rank with 31 blocks of 16 tokens.
struct Worker {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Worker {
    fn start(folder: &Path, role: &str) -> Self {
        let shape = r#"{"block_size": 16}"#;
        let arguments = [
            &[role, "full.json", "--pool", "1048576", "--shape", shape, "--peer", shape][..],
            &["--rank", "0", "--epoch", "18446744073709551615"],
        ];
        let mut child = command(folder, &arguments.concat()).stdin(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { stdin: child.stdin.take(), child, lines }
    }

    fn tell(&mut self, word: &Value) {
        writeln!(self.stdin.as_ref().unwrap(), "{word}").unwrap();
    }

    /// The next word, but for those that only say that it runs.
    fn heard(&mut self) -> Value {
        loop {
            let word: Value = serde_json::from_str(&self.lines.next().unwrap().unwrap()).unwrap();
            if word["say"] != "here" {
                return word;
            }
        }
    }

    fn ends(&mut self) {
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }
}

fn lease(request: u64) -> Value {
    json!({ "engine": u64::MAX, "request": request.to_string(), "nonce": 1 })
}

fn prefill(request: u64, tokens: u64) -> Value {
    json!({ "say": "prefill", "request": request, "tokens": tokens, "lease": lease(request) })
}

/// The worker answers a prompt that it can never hold, and goes on.
#[test]
fn a_prompt_larger_than_the_pool_is_refused_by_the_worker() {
    let folder = folder();
    let mut worker = Worker::start(folder.path(), "prefill-worker");
    let ready = worker.heard();
    assert_eq!((&ready["say"], &ready["blocks"]), (&"ready".into(), &31.into()));
    worker.tell(&prefill(7, 100_000));
    let failure = json!({
        "hint": null, "exit_code": 1,
        "message": "request 7: 100000 tokens are larger than the pool",
    });
    assert_eq!(worker.heard(), json!({ "say": "refused", "request": 7, "failure": failure }));
    worker.tell(&prefill(8, 40));
    assert_eq!(worker.heard(), json!({ "say": "kept", "request": 8 }));
    worker.stdin.take();
    assert_eq!(worker.heard()["message"], "the parent is gone");
    worker.ends();
}

/// One that waits for blocks and is dismissed, as where another rank failed, lets its claim go:
/// nobody keeps anything for it, and the request before it is not touched.
#[test]
fn a_request_that_is_dismissed_while_it_waits() {
    let folder = folder();
    let start = |role| Worker::start(folder.path(), role);
    let (mut p, mut d) = (start("prefill-worker"), start("decode-worker"));
    let address = p.heard()["address"].clone();
    assert_eq!(d.heard(), json!({ "say": "ready", "address": null, "blocks": 31 }));
    let receive = |request: u64| {
        let params = json!({
            "do_remote_prefill": true, "remote_engine_id": "prefill", "tp_size": 1,
            "remote_request_id": request.to_string(), "remote_num_tokens": 300,
            "remote_host": address["host"], "remote_port": address["port"],
            "kvferry": { "version": 1, "engine": "f".repeat(16), "nonce": format!("{:016x}", 1) },
        });
        json!({ "say": "receive", "request": request, "tokens": 300, "params": params })
    };
    // Each pool holds one of 300 tokens.
    p.tell(&prefill(1, 300));
    assert_eq!(p.heard(), json!({ "say": "kept", "request": 1 }));
    d.tell(&receive(1));
    let received = d.heard();
    assert_eq!((&received["say"], &received["request"]), (&"received".into(), &1.into()));
    assert_eq!(p.heard(), json!({ "say": "freed", "lease": lease(1) }));
    p.tell(&prefill(2, 300));
    assert_eq!(p.heard(), json!({ "say": "kept", "request": 2 }));
    d.tell(&receive(2));
    // Most likely it has claimed by now. If not, the lease runs out, which takes longer.
    thread::sleep(Duration::from_millis(300));
    d.tell(&json!({ "say": "dismiss", "request": 2 }));
    assert_eq!(d.heard()["failure"]["message"], "request 2: given up");
    assert_eq!(p.heard(), json!({ "say": "freed", "lease": lease(2) }));
    d.tell(&json!({ "say": "dismiss", "request": 1 }));
    assert_eq!(d.heard(), json!({ "say": "dismissed", "request": 1 }));
    for mut worker in [p, d] {
        worker.tell(&json!({ "say": "finish" }));
        let account = worker.heard()["account"].clone();
        for what in ["leaked_blocks", "leases", "claims", "tokens", "receives"] {
            assert_eq!(account[what], 0, "{what}");
        }
        worker.ends();
    }
}
