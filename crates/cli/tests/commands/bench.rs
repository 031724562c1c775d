//! `kvferry bench`: two processes, every case of every round told, every byte compared.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::common::processes::{child_of, kill, wait};
use crate::common::{SECRET, command, failed, first_line, folder, run, start, with_secrets, words};

/// 3 × 4 KiB.
const TINY: [&str; 5] = ["bench", "--workload", "4KiBx3", "--rounds", "2"];

/// Of a source that is a process of this host.
const CASES: [&str; 12] = [
    "process_vm_readv 1 thread",
    "process_vm_readv 2 threads",
    "memcpy",
    "plain tcp 1 stream",
    "plain tcp 1 stream low-water",
    "plain tcp 2 streams",
    "plain tcp 2 streams low-water",
    "plain tcp 4 streams",
    "plain tcp 4 streams low-water",
    "tcp",
    "shm",
    "shm mapped",
];

/// By workload and case.
type Rounds = BTreeMap<(String, String), Vec<Value>>;

/// The rounds that were told of, and the summaries behind them.
fn told(stdout: &str) -> (Rounds, Vec<Value>) {
    let (mut rounds, mut summaries) = (Rounds::new(), Vec::new());
    for line in stdout.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        if let Some(summary) = line.get("summary") {
            summaries.push(summary.clone());
            continue;
        }
        assert!(summaries.is_empty(), "a round after a summary: {line}");
        let name = |what: &str| line[what].as_str().unwrap().to_owned();
        rounds.entry((name("workload"), name("case"))).or_default().push(line.clone());
    }
    (rounds, summaries)
}

fn right(stdout: &str, cases: &[&str], workloads: &[(&str, u64)], rounds: usize) {
    let (told, summaries) = told(stdout);
    assert_eq!(told.len(), cases.len() * workloads.len(), "{:?}", told.keys());
    assert_eq!(summaries.len(), told.len());
    for (workload, bytes) in workloads {
        for case in cases {
            let of_case = &told[&((*workload).to_owned(), (*case).to_owned())];
            let numbers: Vec<&Value> = of_case.iter().map(|round| &round["round"]).collect();
            assert_eq!(numbers, (0..=rounds).collect::<Vec<_>>(), "{case}");
            for round in of_case {
                assert_eq!((&round["bytes"], &round["wrong"]), (&(*bytes).into(), &0.into()));
                for what in ["seconds", "cpu_reader_s", "cpu_source_s"] {
                    assert!(round[what].as_f64().unwrap() >= 0.0, "{round}");
                }
                assert!(round["seconds"].as_f64().unwrap() > 0.0, "{round}");
            }
            let summary = summaries
                .iter()
                .find(|summary| summary["case"] == *case && summary["workload"] == *workload);
            let summary = summary.unwrap();
            // Nothing else reads the memory of another host's process.
            let alone = *case == "shm" && !cases.contains(&"process_vm_readv 1 thread");
            let ratio = summary["of_limit"].as_f64();
            assert_eq!(ratio.is_some_and(|ratio| ratio > 0.0), !alone, "{summary}");
        }
    }
}

#[test]
fn every_case_of_every_round_is_told_and_every_byte_is_right() {
    let folder = folder();
    let said = run(folder.path(), &[&TINY[..], &["--json"]].concat());
    assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""));
    right(&said.stdout, &CASES, &[("4KiBx3", 3 * 4096)], 2);
}

/// Blocks that no stream can share evenly, more than one vectored call takes, and more than the
/// low-water mark holds.
#[test]
fn blocks_of_every_kind() {
    let folder = folder();
    let arguments = ["bench", "--json", "--workload", "4KiBx1500,1MiBx3,12KiBx5", "--rounds", "1"];
    let said = run(folder.path(), &arguments);
    assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""));
    let workloads = [("4KiBx1500", 1500 << 12), ("1MiBx3", 3 << 20), ("12KiBx5", 5 * (12 << 10))];
    right(&said.stdout, &CASES, &workloads, 1);
}

const W4: [&str; 6] =
    ["memcpy", "process_vm_readv 1 thread", "plain tcp 1 stream", "tcp", "shm", "shm mapped"];

#[test]
fn the_time_of_one_block() {
    let folder = folder();
    let said = run(folder.path(), &["bench", "--json", "--workload", "w4", "--rounds", "1"]);
    assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""));
    right(&said.stdout, &W4, &[("W4", 4096)], 1);
    for summary in told(&said.stdout).1 {
        let time = |what: &str| summary[what].as_f64().unwrap();
        assert!(time("p99_s") >= time("median_s"), "{summary}");
    }
}

#[test]
fn the_text_for_people_and_the_page() {
    let folder = folder();
    let more = ["--case", "memcpy,2 streams,tcp", "--html", "page.html", "--streams", "3"];
    let said = run(folder.path(), &[&TINY[..], &more].concat());
    assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""));
    let header = "blocks memcpy plain tcp 2 streams plain tcp 2 streams low-water tcp";
    assert!(words(&said.stdout).any(|line| line == header), "{}", said.stdout);
    assert!(words(&said.stdout).any(|line| line.starts_with("4KiBx3 ")), "{}", said.stdout);
    let page = std::fs::read_to_string(folder.path().join("page.html")).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
    let start = page.find("<svg").unwrap();
    let end = page.find("</svg>").unwrap() + "</svg>".len();
    roxmltree::Document::parse(&page[start..end]).unwrap();
}

#[test]
fn on_two_hosts() {
    let folder = with_secrets();
    for trust in [&SECRET[..], &[]] {
        let listen = [&["bench", "--listen", "127.0.0.1:0"], trust].concat();
        let (line, source) = first_line(&mut command(folder.path(), &listen));
        let address = line.strip_prefix("listening on ").unwrap().trim_end();
        let connect = [&TINY[..], &["--json", "--connect", address], trust].concat();
        let said = run(folder.path(), &connect);
        assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""));
        right(&said.stdout, &CASES[2..], &[("4KiBx3", 3 * 4096)], 2);
        let said = source.end();
        assert_eq!((said.code, said.stdout.as_str()), (Some(0), "served 1 workloads\n"));
    }
}

#[test]
fn what_cannot_be_measured() {
    let folder = with_secrets();
    let refused = |more: &[&str]| {
        let (code, error, help) = failed(&run(folder.path(), &[&["bench"], more].concat()));
        assert_eq!(code, Some(2), "{error}");
        (error, help)
    };
    let (error, help) = refused(&["--workload", "W3", "--case", "pigeon"]);
    assert_eq!(error, "--case pigeon: no case has this in its name");
    assert!(help.starts_with("the cases are: memcpy; plain tcp 1 stream; "), "{help}");
    let (error, _) = refused(&["--workload", "W5"]);
    assert!(error.ends_with("must be W1, W2, W3, W4, sweep or BLOCKxCOUNT, such as 64KiBx128"));
    let (error, _) = refused(&["--rounds", "0"]);
    assert!(error.contains("'--rounds <N>'"), "{error}");
    let (error, _) = refused(&["--listen", "127.0.0.1:0", "--rounds", "3"]);
    assert!(error.contains("cannot be used with"), "{error}");
    let (error, help) = refused(&["--listen", "0.0.0.0:0", "--secret-file", "secret"]);
    assert_eq!(error, "--listen 0.0.0.0:0 is no address that a reader can be told");
    assert!(help.starts_with("give the address of this host"), "{help}");
    let (error, _) = refused(&["--secret-file", "nope"]);
    assert_eq!(error, "cannot read the secret nope: No such file or directory (os error 2)");
    let (error, help) = refused(&["--workload", "64MiBx32768", "--case", "memcpy"]);
    assert!(error.starts_with("64MiBx32768 needs 8.0 TiB of memory, and "), "{error}");
    assert!(help.contains("--workload"), "{help}");
}

#[test]
fn a_source_that_is_not_there() {
    let folder = folder();
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = nobody.local_addr().unwrap().to_string();
    // It takes the connection and never says a word; then it is gone.
    let running = start(folder.path(), &["bench", "--workload", "W4", "--connect", &address]);
    drop(nobody.accept().unwrap());
    drop(nobody);
    let (code, error, _) = failed(&running.end());
    assert_eq!(code, Some(5));
    assert!(error.starts_with(&format!("cannot reach the source host at {address}: ")), "{error}");
}

#[test]
fn a_source_that_is_killed() {
    let folder = folder();
    let endless = ["bench", "--workload", "W4", "--rounds", "10000"];
    let running = start(folder.path(), &endless);
    let source = wait("a source", || child_of(running.child.id(), "bench-source"));
    kill(source);
    let (code, error, _) = failed(&running.end());
    assert_eq!(code, Some(5), "{error}");
    assert!(error.contains("source"), "{error}");
}

/// Report R99: reads far slower than writes, and small batches far under the raw tool, showed only
/// in production. One table has blocks singly and many at once, small and large, for each provider
/// beside the limit; there are reads alone, and the help says so.
#[test]
fn r99_one_table_of_single_blocks_and_batches() {
    let folder = folder();
    let names = ["4KiBx1", "4KiBx128", "64KiBx1", "64KiBx32", "1MiBx1", "1MiBx4"];
    let bytes = [1 << 12, 128 << 12, 1 << 16, 32 << 16, 1 << 20, 4 << 20];
    let (workloads, cases) = (names.join(","), ["memcpy", "plain tcp 1 stream", "tcp", "shm"]);
    let shown = cases.join(",");
    let arguments = ["bench", "--workload", &workloads, "--rounds", "1", "--case", &shown];
    let said = run(folder.path(), &[&arguments[..], &["--json"]].concat());
    assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""));
    let workloads: Vec<(&str, u64)> = names.into_iter().zip(bytes).collect();
    right(&said.stdout, &cases, &workloads, 1);
    let said = run(folder.path(), &arguments);
    assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""));
    let lines: Vec<String> = words(&said.stdout).collect();
    assert!(
        lines.iter().any(|line| line == "blocks memcpy plain tcp 1 stream tcp shm"),
        "{}",
        said.stdout
    );
    for name in names {
        assert!(lines.iter().any(|line| line.starts_with(&format!("{name} "))), "{}", said.stdout);
    }
    let help = run(folder.path(), &["bench", "--help"]).stdout;
    assert!(help.contains("Only reads are measured"), "{help}");
}
