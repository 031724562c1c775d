//! `kvferry handoff`: two processes, every byte right, whatever comes in between.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::processes::{kill, worker_of};
use crate::common::{Said, TOKEN_BYTES, folder, nothing_left, run, start, words};

/// A request that is never over soon.
const ENDLESS: [&str; 4] = ["--requests", "100000000", "--block-size", "16"];

#[test]
fn the_bytes_are_those_of_the_rule() {
    let folder = folder();
    // 200 tokens in blocks of 16, the last recomputed: a query at 199 sees keys from 0 or, with
    // a window of 64, from 136 on. Blocks 0 to 12, or 8 to 12.
    for (model, blocks) in [("full.json", 13), ("windowed.json", 5)] {
        let arguments = [
            "handoff",
            model,
            "--json",
            "--tokens",
            "200",
            "--block-size",
            "16",
            "--requests",
            "3",
        ];
        let report = run(folder.path(), &arguments).json();
        assert_eq!(report["requests"], 3);
        assert_eq!(report["bytes"], 3 * blocks * 16 * TOKEN_BYTES, "{model}");
        assert_eq!(report["full_attention_bytes"], 3 * 13 * 16 * TOKEN_BYTES, "{model}");
        nothing_left(&report);
    }
}

/// A prompt of one token is recomputed: there is nothing to move, and nothing goes wrong.
#[test]
fn a_prompt_of_one_token() {
    let folder = folder();
    let report = run(folder.path(), &["handoff", "full.json", "--json", "--tokens", "1"]).json();
    assert_eq!((&report["requests"], &report["bytes"]), (&10.into(), &0.into()));
    nothing_left(&report);
}

#[test]
fn the_text_for_people() {
    let folder = folder();
    let arguments = ["handoff", "full.json", "--tokens", "200", "--block-size", "16"];
    let said = run(folder.path(), &arguments);
    assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""));
    for line in [
        "llama · 200 tokens in blocks of 16 · two processes",
        // 10 requests of 416 KiB.
        "moved 4.1 MiB",
        "read by shm, out of the prefill process's memory",
        "handed over 10 requests, every byte checked",
        "left at the prefill worker 0 blocks, 0 leases, 0 claims, 0 receives",
        "left at the decode worker 0 blocks, 0 leases, 0 claims, 0 receives",
    ] {
        assert!(words(&said.stdout).any(|found| found == line), "{line}\n{}", said.stdout);
    }
}

/// By whichever way the blocks go, they are right, and the report says which it was.
#[test]
fn the_wanted_transport() {
    let folder = folder();
    for (transport, shm, tcp) in [("auto", 1, 0), ("shm", 1, 0), ("tcp", 0, 1)] {
        let arguments =
            ["handoff", "full.json", "--json", "--tokens", "200", "--transport", transport];
        let report = run(folder.path(), &arguments).json();
        assert_eq!((&report["ways"]["shm"], &report["ways"]["tcp"]), (&shm.into(), &tcp.into()));
        nothing_left(&report);
    }
    let said = run(folder.path(), &["handoff", "full.json", "--transport", "pigeon"]);
    assert_eq!(said.code, Some(2));
    let told = "\"pigeon\" is no provider: choose `auto`, `tcp` or `shm`";
    assert!(said.stderr.contains(told), "{}", said.stderr);
}

/// Runs against a port that was free a moment ago; again, should another have taken it.
fn on_a_free_port(mut run: impl FnMut(SocketAddr) -> Said) -> Said {
    for _ in 0..10 {
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
        let said = run(free);
        if said.code != Some(5) || !said.stderr.contains("Address already in use") {
            return said;
        }
    }
    panic!("ten free ports were taken by others");
}

/// Talks nonsense to an address until told to stop. Gives how often it was listened to.
fn pester(address: SocketAddr, stop: &AtomicBool, heard: &AtomicU64) {
    while !stop.load(Ordering::Relaxed) {
        if let Ok(mut socket) = TcpStream::connect(address) {
            heard.fetch_add(1, Ordering::Relaxed);
            let _ = socket.write_all(&[0x5a; 3000]);
        }
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn strangers_on_the_port_while_requests_run() {
    let folder = folder();
    let heard = Arc::new(AtomicU64::new(0));
    let said = on_a_free_port(|address| {
        heard.store(0, Ordering::Relaxed);
        let stop = Arc::new(AtomicBool::new(false));
        let stranger = {
            let (stop, heard) = (Arc::clone(&stop), Arc::clone(&heard));
            thread::spawn(move || pester(address, &stop, &heard))
        };
        let listen = address.to_string();
        let arguments = ["handoff", "full.json", "--json", "--tokens", "500", "--listen", &listen];
        let said = run(folder.path(), &[&arguments[..], &["--requests", "200"]].concat());
        stop.store(true, Ordering::Relaxed);
        stranger.join().unwrap();
        said
    });
    let report = said.json();
    assert_eq!(report["requests"], 200);
    nothing_left(&report);
    assert!(heard.load(Ordering::Relaxed) > 0, "nobody listened to the stranger");
}

/// Whenever the prefill worker dies, the same line says so within seconds.
#[test]
fn a_prefill_worker_that_is_killed() {
    let folder = folder();
    for after in [0, 20, 300] {
        let running = start(folder.path(), &[&["handoff", "full.json"], &ENDLESS[..]].concat());
        let worker = worker_of(running.child.id());
        thread::sleep(Duration::from_millis(after));
        let killed = Instant::now();
        kill(worker);
        let said = running.end();
        assert!(killed.elapsed() < Duration::from_secs(10));
        assert_eq!(said.stderr, "error: the prefill worker is lost: it ended without a word\n");
        assert_eq!((said.code, said.stdout.as_str()), (Some(5), ""));
    }
}
