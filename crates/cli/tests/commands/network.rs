//! Secrets, allow-lists and addresses: what both sides prove, and where they go.

use std::fs;

use crate::common::processes::{kill, rank_of};
use crate::common::{SECRET, failed, nothing_left, run, start, with_secrets, write};

const EVERYWHERE: [&str; 2] = ["--listen", "0.0.0.0:0"];

/// Ranks that prove a secret to each other may be anywhere that the list allows.
#[test]
fn a_secret_leads_beyond_loopback() {
    let folder = with_secrets();
    let reached = ["--advertise", "localhost", "--allow", "127.0.0.0/8,::1"];
    let network = [&EVERYWHERE[..], &reached, &SECRET].concat();
    let handoff = ["handoff", "full.json", "--prefill-tp", "2", "--requests", "2", "--json"];
    let replay = ["replay", "full.json", "--pool", "64MiB", "--limit", "1", "--speed", "1000"];
    for command in [&handoff[..], &[&replay[..], &["--json"]].concat()] {
        nothing_left(&run(folder.path(), &[command, &network].concat()).json());
    }
}

/// The path of the secret is what ranks are given: anybody can read their arguments.
#[test]
fn no_process_shows_the_secret() {
    let folder = with_secrets();
    let arguments = ["handoff", "full.json", "--requests", "100000000"];
    let running = start(folder.path(), &[&arguments[..], &SECRET].concat());
    let parent = running.child.id();
    let secret = fs::read_to_string(folder.path().join("secret")).unwrap();
    for id in [parent, rank_of(parent, "prefill", 0), rank_of(parent, "decode", 0)] {
        for what in ["cmdline", "environ"] {
            let shown = fs::read(format!("/proc/{id}/{what}")).unwrap();
            let shown = String::from_utf8_lossy(&shown).into_owned();
            assert!(!shown.is_empty() && !shown.contains(&secret), "{what}: {shown}");
        }
    }
    kill(parent);
    running.end();
}

#[test]
fn secrets_and_lists_that_cannot_be_used() {
    let folder = with_secrets();
    write(&folder, "short", "short\n");
    let readable = "give --secret-file a file that this user can read";
    let missing = "cannot read the secret nope: No such file or directory (os error 2)";
    let short = "a secret of 5 bytes is too short, 16 are the least: make one with `head -c 32 \
                 /dev/urandom | base64 > FILE`";
    for command in [&["handoff", "full.json"][..], &["replay", "full.json", "--pool", "1MiB"]] {
        for (file, error, help) in [
            ("nope", missing, readable),
            (".", "the secret . is not a file", readable),
            ("short", short, ""),
        ] {
            let said = run(folder.path(), &[command, &["--secret-file", file]].concat());
            assert_eq!(failed(&said), (Some(2), error.to_owned(), help.to_owned()));
        }
        let said = run(folder.path(), &[command, &["--allow", "localhost"]].concat());
        let error = "invalid value 'localhost' for '--allow <NET[,NET…]>': \"localhost\" is no \
                     network: write for example 10.0.0.0/8 or 192.168.7.1, not a name";
        assert_eq!((said.code, failed(&said).1.as_str()), (Some(2), error));
    }
}

#[test]
fn addresses_that_lead_nowhere() {
    let folder = with_secrets();
    let refused = |more: &[&str]| {
        let more = [&["handoff", "full.json"], &SECRET[..], more].concat();
        let (code, error, help) = failed(&run(folder.path(), &more));
        assert_eq!(code, Some(5), "{error}");
        (error, help)
    };
    let (error, help) = refused(&["--allow", "10.0.0.0/8"]);
    let not_allowed = " is at 127.0.0.1, which is not on the list of allowed addresses";
    assert!(error.starts_with("request 0: 127.0.0.1:") && error.ends_with(not_allowed), "{error}");
    assert_eq!(help, "put the address on the list of --allow, if you mean it");
    let (error, help) = refused(&EVERYWHERE);
    assert_eq!(error, "0.0.0.0 leads no peer to this host: set `advertise` to its name or address");
    assert!(help.starts_with("give --advertise "), "{help}");
    let (error, _) = refused(&[&EVERYWHERE[..], &["--advertise", "host:1"]].concat());
    let no_name = "`advertise` of \"host:1\" is no host name or IP address: a port is none of it";
    assert_eq!(error, no_name);
}
