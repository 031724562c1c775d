//! `kvferry handoff` on two hosts: a command on each, and one secret.

mod lost;
mod namespaces;
mod refused;

use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::common::{
    Running, SECRET, Said, TOKEN_BYTES, command, first_line, nothing_left, run, with_secrets, words,
};
use serde_json::Value;

const BLOCKS: [&str; 4] = ["--tokens", "200", "--block-size", "16"];
const ENDLESS: [&str; 2] = ["--requests", "100000000"];

pub fn role<'a>(model: &'a str, role: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["handoff", model, "--role", role], more].concat()
}

/// A prefill side that waits, and where.
pub fn prefill(folder: &Path, more: &[&str]) -> (Running, String) {
    let (line, running) = first_line(&mut command(folder, &role("full.json", "prefill", more)));
    let address = line.strip_prefix("listening on ").map(str::trim_end);
    (running, address.unwrap_or_else(|| panic!("it said {line:?}")).to_owned())
}

pub fn decode(folder: &Path, address: &str, more: &[&str]) -> Said {
    let more = [&["--connect", address], more].concat();
    run(folder, &role("full.json", "decode", &more))
}

/// The decode side's report of 3 requests of 200 tokens between two ranks and four, which two
/// heads are kept by twice each.
pub fn right(report: &Value) {
    assert_eq!(report["requests"], 3);
    assert_eq!(report["bytes"], 2 * 3 * 13 * 16 * TOKEN_BYTES);
    nothing_left(report);
    let ranks = |side: &str| report["accounts"][side]["ranks"].clone();
    assert_eq!([ranks("prefill"), ranks("decode")], [2.into(), 4.into()] as [Value; 2]);
}

/// Two ranks and four, whatever else is given.
pub fn two(more: &[&'static str]) -> Vec<&'static str> {
    [&BLOCKS[..], &["--prefill-tp", "2"], more].concat()
}

pub fn four(more: &[&'static str]) -> Vec<&'static str> {
    [&BLOCKS[..], &["--decode-tp", "4", "--requests", "3", "--json"], more].concat()
}

/// The prefill side has served so many requests and nothing is left.
pub fn served(running: Running, requests: u64) {
    let said = running.end();
    assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""), "{}", said.stdout);
    let handed_over = format!("handed over {requests} requests");
    let left = " 0 blocks, 0 leases, 0 claims, 0 receives";
    assert!(words(&said.stdout).any(|line| line == handed_over), "{}", said.stdout);
    assert!(words(&said.stdout).any(|line| line.ends_with(left)), "{}", said.stdout);
}

#[test]
fn each_side_does_its_part() {
    let folder = with_secrets();
    for secret in [&SECRET[..], &[]] {
        let (p, address) = prefill(folder.path(), &two(secret));
        right(&decode(folder.path(), &address, &four(secret)).json());
        served(p, 3);
    }
}

/// Each line of the prefill side is JSON where that was asked for, so that a script can read both.
#[test]
fn a_script_reads_where_to_connect() {
    let folder = with_secrets();
    let arguments = role("windowed.json", "prefill", &["--json"]);
    let (line, p) = first_line(&mut command(folder.path(), &arguments));
    let line: Value = serde_json::from_str(&line).unwrap();
    let connect = ["--connect", line["listening"].as_str().unwrap(), "--requests", "2"];
    let said = run(folder.path(), &role("windowed.json", "decode", &connect));
    assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""));
    let line = "handed over 2 requests, every byte checked";
    assert!(words(&said.stdout).any(|found| found == line), "{}", said.stdout);
    let report = p.end().json();
    assert_eq!((&report["requests"], &report["account"]["ranks"]), (&2.into(), &1.into()));
    for what in ["leaked_blocks", "leases", "claims", "tokens", "receives"] {
        assert_eq!(report["account"][what], 0, "{what}");
    }
}

/// Reached by another name than that of the address that is listened on.
#[test]
fn an_address_that_stands_for_all_of_them() {
    let folder = with_secrets();
    let everywhere = ["--listen", "0.0.0.0:0", "--advertise", "localhost"];
    let (p, address) = prefill(folder.path(), &two(&[&everywhere[..], &SECRET].concat()));
    let port = address.strip_prefix("0.0.0.0:").unwrap();
    let allow = [&["--allow", "127.0.0.0/8,::1"], &SECRET[..]].concat();
    right(&decode(folder.path(), &format!("localhost:{port}"), &four(&allow)).json());
    served(p, 3);
}

/// Whoever comes and is no decode side is in nobody's way, and nobody need come soon.
#[test]
fn garbage_at_the_door() {
    let folder = with_secrets();
    for secret in [&SECRET[..], &[]] {
        let (p, address) = prefill(folder.path(), &two(secret));
        thread::sleep(Duration::from_millis(300));
        // They stay connected to the end.
        let strangers: Vec<TcpStream> = (0..10_u8)
            .map(|seed| {
                let mut stranger = TcpStream::connect(&address).unwrap();
                let next = |byte: &u8| Some(byte.wrapping_mul(31).wrapping_add(7));
                let bytes = std::iter::successors(Some(seed), next);
                let bytes: Vec<u8> = bytes.take(200 * usize::from(seed)).collect();
                let _ = stranger.write_all(&bytes);
                stranger
            })
            .collect();
        right(&decode(folder.path(), &address, &four(secret)).json());
        served(p, 3);
        drop(strangers);
    }
}
