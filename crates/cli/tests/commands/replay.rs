//! `kvferry replay`: traces with bounded pools.

use std::thread;
use std::time::{Duration, Instant};

use crate::common::processes::{is_worker, kill, wait, worker_of};
use crate::common::{TOKEN_BYTES, folder, nothing_left, run, start, words, write};
use serde_json::{Value, json};

/// 32 blocks of 16 tokens, one of which is the null block: 496 tokens.
const POOL: u64 = 1 << 20;
const PAGE: u64 = 16 * TOKEN_BYTES;

/// Starts a day after the epoch of its clock; one request is larger than the pool.
const TRACE: &str = r#"{"timestamp": 86400000, "input_length": 100, "output_length": 1}
{"timestamp": 86400000, "input_length": 1, "output_length": 1, "hash_ids": [1, 2]}
{"timestamp": 86400001, "input_length": 100000, "output_length": 5}
{"timestamp": 86400003, "input_length": 200, "output_length": 2}
"#;

const REPLAY: [&str; 7] =
    ["replay", "full.json", "--pool", "1MiB", "--block-size", "16", "--trace"];

/// What a worker may take beside its pool.
fn memory_is_bounded(report: &Value, pool: u64) {
    for side in ["prefill", "decode"] {
        let peak = report["accounts"][side]["peak_resident_bytes"].as_u64().unwrap();
        assert!(peak > pool, "{side}: the pool is touched all over, and {peak} bytes are resident");
        assert!(peak <= pool + (64 << 20), "{side}: {peak} bytes are resident");
    }
}

#[test]
fn a_trace_with_a_request_larger_than_the_pool() {
    let folder = folder();
    write(&folder, "trace.jsonl", TRACE);
    let arguments = [&REPLAY[..], &["trace.jsonl", "--json"]].concat();
    let report = run(folder.path(), &arguments).json();
    assert_eq!(report["trace"], "trace.jsonl");
    assert_eq!(report["skipped"], json!([2]));
    assert_eq!(report["requests"], 3);
    // 99, 0 and 199 tokens that D does not recompute: 7, 0 and 13 blocks.
    assert_eq!(report["bytes"], 20 * PAGE);
    // As full attention, 100, 1 and 200 tokens: 7, 1 and 13 blocks.
    assert_eq!(report["full_attention_bytes"], 21 * PAGE);
    nothing_left(&report);
    memory_is_bounded(&report, POOL);
}

#[test]
fn the_text_names_what_is_skipped() {
    let folder = folder();
    write(&folder, "trace.jsonl", TRACE);
    let said = run(folder.path(), &[&REPLAY[..], &["trace.jsonl"]].concat());
    assert_eq!(said.code, Some(0));
    let skipped = "request 2 of 100,000 tokens is larger than the pool: skipped\n";
    assert_eq!(said.stderr, skipped);
    for line in [
        "llama · blocks of 16 · 1.0 MiB of KV cache on each side · 1 × the trace's speed",
        "4 requests of trace.jsonl",
        "handed over 3 requests, every byte checked",
        "skipped as larger than the pool 1 requests",
    ] {
        assert!(words(&said.stdout).any(|found| found == line), "{line}\n{}", said.stdout);
    }
}

/// Twelve of 300 tokens at once, of which a pool holds one: they queue, and all are served.
#[test]
fn requests_queue_when_the_pool_is_full() {
    let folder = folder();
    let line = json!({ "timestamp": 0, "input_length": 300, "output_length": 2 });
    write(&folder, "trace.jsonl", &format!("{line}\n").repeat(12));
    let arguments = [&REPLAY[..], &["trace.jsonl", "--json"]].concat();
    let report = run(folder.path(), &arguments).json();
    assert_eq!((&report["requests"], &report["skipped"]), (&12.into(), &json!([])));
    assert_eq!(report["bytes"], 12 * 19 * PAGE);
    // Each keeps D's blocks for twice 20 ms, and no two are there at a time.
    assert!(report["seconds"].as_f64().unwrap() >= 12.0 * 0.040);
    nothing_left(&report);
    memory_is_bounded(&report, POOL);
}

#[test]
fn only_as_many_as_the_limit() {
    let folder = folder();
    write(&folder, "trace.jsonl", &format!("{TRACE}not looked at"));
    let arguments = [&REPLAY[..], &["trace.jsonl", "--json", "--limit", "2"]].concat();
    let report = run(folder.path(), &arguments).json();
    assert_eq!((&report["requests"], &report["skipped"]), (&2.into(), &json!([])));
}

#[test]
fn a_trace_that_is_not_there_is_generated() {
    let folder = folder();
    let arguments =
        ["replay", "windowed.json", "--pool", "16MiB", "--speed", "1000", "--limit", "3"];
    for (trace, source) in [
        (&["--trace", "nope.jsonl"][..], "a generated trace (nope.jsonl is not there)"),
        (&[], "a generated trace (no trace given)"),
    ] {
        let arguments = [&arguments[..], trace].concat();
        let report = run(folder.path(), &[&arguments[..], &["--json"]].concat()).json();
        assert_eq!(report["trace"], source);
        assert_eq!((&report["requests"], &report["skipped"]), (&3.into(), &json!([])));
        nothing_left(&report);
        memory_is_bounded(&report, 16 << 20);
        let said = run(folder.path(), &arguments);
        let line = format!("3 requests of {source}");
        assert!(said.stdout.lines().any(|found| found == line), "{line}\n{}", said.stdout);
    }
}

#[test]
fn a_line_that_is_no_request() {
    let folder = folder();
    let good = r#"{"timestamp": 0, "input_length": 5, "output_length": 1}"#;
    let help = " help: a trace has one JSON object a line, with timestamp (ms), input_length and \
                output_length\n";
    for (line, why) in [
        ("what?", "expected value at column 1"),
        (r#"{"timestamp": 1, "output_length": 1}"#, "missing field `input_length` at column 36"),
        (
            r#"{"timestamp": 1, "input_length": -1, "output_length": 1}"#,
            "invalid value: integer `-1`, expected u64 at column 35",
        ),
        (
            r#"{"timestamp": 1, "input_length": 0, "output_length": 1}"#,
            "input_length 0: a prompt has at least one token",
        ),
    ] {
        write(&folder, "trace.jsonl", &format!("{good}\n{line}\n{good}\n"));
        let said = run(folder.path(), &[&REPLAY[..], &["trace.jsonl"]].concat());
        assert_eq!(said.stderr, format!("error: trace.jsonl, line 2: {why}\n{help}"));
        assert_eq!((said.code, said.stdout.as_str()), (Some(2), ""));
    }
    write(&folder, "trace.jsonl", "");
    let said = run(folder.path(), &[&REPLAY[..], &["trace.jsonl"]].concat());
    assert_eq!(said.stderr, "error: trace.jsonl: no requests\n");
    assert_eq!(said.code, Some(2));
}

/// With many requests under way, too, one line says what happened.
#[test]
fn a_prefill_worker_that_is_killed() {
    let folder = folder();
    let line = json!({ "timestamp": 0, "input_length": 20, "output_length": 1 });
    write(&folder, "trace.jsonl", &format!("{line}\n").repeat(20_000));
    for after in [20, 300] {
        let running = start(folder.path(), &[&REPLAY[..], &["trace.jsonl", "--json"]].concat());
        let worker = worker_of(running.child.id());
        thread::sleep(Duration::from_millis(after));
        let killed = Instant::now();
        kill(worker);
        let said = running.end();
        assert!(killed.elapsed() < Duration::from_secs(10));
        let told: Value = serde_json::from_str(&said.stderr).unwrap();
        assert_eq!(told["error"], "the prefill worker is lost: it ended without a word");
        assert_eq!((said.code, said.stdout.as_str()), (Some(5), ""));
    }
}

/// A worker whose parent is gone has nobody to serve, even where it keeps blocks for somebody.
#[test]
fn a_prefill_worker_does_not_outlive_its_parent() {
    let folder = folder();
    // The first keeps D's blocks for hours: the second is offered, and waits.
    let line = json!({ "timestamp": 0, "input_length": 300, "output_length": 1_000_000 });
    write(&folder, "trace.jsonl", &format!("{line}\n").repeat(2));
    let running = start(folder.path(), &[&REPLAY[..], &["trace.jsonl"]].concat());
    let worker = worker_of(running.child.id());
    thread::sleep(Duration::from_millis(500));
    let killed = Instant::now();
    kill(running.child.id());
    wait("the end of the worker", || (!is_worker(worker)).then_some(()));
    assert!(killed.elapsed() < Duration::from_secs(10));
    assert_eq!(running.end().code, None);
}
