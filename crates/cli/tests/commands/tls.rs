//! Certificates on the command line: what they encrypt, and what does not go together.

use std::fs;
use std::path::Path;

use crate::certs::{Authority, HERE};
use crate::common::{SECRET, TOKEN_BYTES, failed, nothing_left, run, with_secrets, write};
use crate::hosts::{decode, four, prefill, right, served, two};
use rcgen::date_time_ymd;

const TLS: [&str; 6] = ["--tls-cert", "cert.pem", "--tls-key", "key.pem", "--tls-ca", "ca.pem"];
const OTHER: [&str; 6] = [
    "--tls-cert",
    "elsewhere/cert.pem",
    "--tls-key",
    "elsewhere/key.pem",
    "--tls-ca",
    "elsewhere/ca.pem",
];

/// Models, secrets and what a side needs for TLS; in `elsewhere` the same of another authority.
fn with_certificates() -> tempfile::TempDir {
    let folder = with_secrets();
    Authority::new().certify(folder.path(), &HERE);
    let other = folder.path().join("elsewhere");
    fs::create_dir(&other).unwrap();
    Authority::new().certify(&other, &HERE);
    folder
}

/// Every byte that arrives is checked by the command itself.
#[test]
fn a_hand_off_under_tls() {
    let folder = with_certificates();
    let handoff = ["handoff", "full.json", "--prefill-tp", "2", "--requests", "3", "--json"];
    for more in [&TLS[..], &[&TLS[..], &SECRET].concat()] {
        let blocks = ["--tokens", "200", "--block-size", "16"];
        let said = run(folder.path(), &[&handoff[..], &blocks, more].concat());
        let report = said.json();
        assert_eq!(
            (&report["requests"], &report["bytes"]),
            (&3.into(), &(3 * 13 * 16 * TOKEN_BYTES).into())
        );
        nothing_left(&report);
    }
    let replay = ["replay", "full.json", "--pool", "64MiB", "--limit", "1", "--speed", "1000"];
    nothing_left(&run(folder.path(), &[&replay[..], &["--json"], &TLS].concat()).json());
}

/// The source is a process that is given the same files; what it is not given, it refuses.
#[test]
fn a_bench_under_tls() {
    let folder = with_certificates();
    let bench = ["bench", "--json", "--workload", "4KiBx3", "--case", "tcp", "--rounds", "1"];
    let said = run(folder.path(), &[&bench[..], &TLS, &SECRET].concat());
    assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""), "{}", said.stdout);
    assert_eq!(said.stdout.lines().count(), 3);
    assert_eq!(said.stdout.matches(r#""wrong":0"#).count(), 3, "{}", said.stdout);
}

/// Flags, and why nobody comes in with them.
type Wrong = (&'static [&'static str], &'static str);

/// The link of the parents is encrypted as well, and each side finds out if only one has TLS.
#[test]
fn two_hosts_under_tls() {
    let folder = with_certificates();
    let help = "give both sides --tls-cert, --tls-key and --tls-ca, with certificates of one \
                authority, that of the prefill side for the address by which it is reached";
    let only_ours =
        "this side speaks TLS and the peer does not: give both certificates, or neither";
    let only_theirs =
        "the peer speaks TLS and this side does not: give both certificates, or neither";
    let unknown = "the peer's certificate is refused: none of these authorities has signed it";
    let cases: [(&'static [&'static str], &[Wrong]); 2] =
        [(&TLS, &[(&[], only_theirs), (&OTHER, unknown)]), (&[], &[(&TLS, only_ours)])];
    for (own, wrong) in cases {
        let own = [own, &SECRET].concat();
        let (p, address) = prefill(folder.path(), &two(&own));
        for (theirs, error) in wrong {
            let said = decode(folder.path(), &address, &four(&[theirs, &SECRET[..]].concat()));
            let told: serde_json::Value = serde_json::from_str(&said.stderr).unwrap();
            let error = format!("cannot reach the prefill host at {address}: {error}");
            let expected = serde_json::json!({ "error": error, "hint": help, "exit_code": 5 });
            assert_eq!((said.code, told), (Some(5), expected));
        }
        right(&decode(folder.path(), &address, &four(&own)).json());
        served(p, 3);
    }
}

/// What a command without a report says.
fn refused(folder: &Path, more: &[&str]) -> (Option<i32>, String, String) {
    failed(&run(folder, &[&["handoff", "full.json"], more].concat()))
}

#[test]
fn files_that_cannot_be_used() {
    let folder = with_certificates();
    let at = folder.path();
    let with = |flag: &str, file: &'static str| {
        let mut flags = TLS;
        flags[1 + TLS.iter().position(|given| *given == flag).unwrap()] = file;
        refused(at, &flags)
    };
    let told = |error: &str| (Some(2), error.to_owned(), String::new());
    let missing = "cannot read nope: No such file or directory (os error 2)";
    for flag in ["--tls-cert", "--tls-key", "--tls-ca"] {
        assert_eq!(with(flag, "nope"), told(missing));
    }
    write(&folder, "odd", "what?\n");
    let no = |what| format!("odd has no {what} in it: PEM is wanted, not encrypted");
    // The umask of whoever runs the tests may let others write it.
    fs::set_permissions(at.join("odd"), fs::metadata(at.join("ca.pem")).unwrap().permissions())
        .unwrap();
    assert_eq!(with("--tls-cert", "odd"), told(&no("certificate")));
    assert_eq!(with("--tls-key", "odd"), told(&no("private key")));
    assert_eq!(with("--tls-ca", "odd"), told(&no("certificate")));
    let another = "the key elsewhere/key.pem does not go with the certificate cert.pem: it is the \
                   key of another certificate";
    assert_eq!(with("--tls-key", "elsewhere/key.pem"), told(another));
    let unsigned = "the certificate cert.pem does not hold against elsewhere/ca.pem: none of these \
                    authorities has signed it";
    assert_eq!(with("--tls-ca", "elsewhere/ca.pem"), told(unsigned));
    Authority::new().issue(at, &HERE, |params| params.not_after = date_time_ymd(2020, 1, 1));
    let expired = "the certificate cert.pem does not hold against ca.pem: it has expired";
    assert_eq!(refused(at, &TLS), told(expired));
}

/// A flag alone would leave open what it encrypts.
#[test]
fn all_three_or_none() {
    let folder = with_certificates();
    for skip in 0..3 {
        let flags = TLS.chunks(2).enumerate().filter(|(index, _)| *index != skip);
        let flags: Vec<&str> = flags.flat_map(|(_, flag)| flag).copied().collect();
        let (code, error, _) = refused(folder.path(), &flags);
        assert_eq!(code, Some(2), "{error}");
        assert!(error.contains("required arguments were not provided"), "{error}");
        assert!(error.contains(TLS[2 * skip]), "{error}");
    }
}

#[test]
fn a_certificate_for_another_host() {
    let folder = with_certificates();
    Authority::new().certify(folder.path(), &["10.0.0.1"]);
    let (code, error, help) = refused(folder.path(), &TLS);
    let not_for = "the certificate cert.pem is not for 127.0.0.1, where others reach this side: \
                   it is not for 127.0.0.1, but for IpAddress(10.0.0.1)";
    assert_eq!((code, error.as_str()), (Some(5), not_for));
    assert_eq!(help, "make a certificate that has the address or name in its subjectAltName");
}
