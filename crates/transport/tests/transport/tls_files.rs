//! What is refused before any socket is opened.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::certs::{Authority, HERE};
use crate::common::{tls, tls_for};
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, date_time_ymd};
use transport::Class;
use transport::session::Tls;

/// Why the files of a folder are refused, as if it were the folder of the process.
fn refused(folder: &Path) -> String {
    let [chain, key, ca] = ["cert.pem", "key.pem", "ca.pem"].map(|name| folder.join(name));
    let why = Tls::from_files(&chain, &key, &ca).unwrap_err();
    assert_eq!(why.class(), Class::Config);
    why.to_string().replace(&format!("{}/", folder.display()), "")
}

/// Why they are refused after a change to a folder of good ones.
fn after(change: impl FnOnce(&Path)) -> String {
    let folder = tempfile::tempdir().unwrap();
    Authority::new().certify(folder.path(), &HERE);
    change(folder.path());
    refused(folder.path())
}

fn issued(change: impl FnOnce(&mut CertificateParams)) -> String {
    after(|folder| Authority::new().issue(folder, &HERE, change))
}

fn write(folder: &Path, name: &str, text: &str) {
    fs::write(folder.join(name), text).unwrap();
}

#[test]
fn files_that_cannot_be_read() {
    let missing = |name: &'static str| after(move |at| fs::remove_file(at.join(name)).unwrap());
    for name in ["cert.pem", "key.pem", "ca.pem"] {
        let error = format!("cannot read {name}: No such file or directory (os error 2)");
        assert_eq!(missing(name), error);
        let error = format!("{name} is not a file");
        let folder_there = |at: &Path| {
            fs::remove_file(at.join(name)).unwrap();
            fs::create_dir(at.join(name)).unwrap();
        };
        assert_eq!(after(folder_there), error);
        let error = format!(
            "others may write {name} (mode 666): take that from them with `chmod go-w FILE`"
        );
        let open = |at: &Path| {
            fs::set_permissions(at.join(name), Permissions::from_mode(0o666)).unwrap();
        };
        assert_eq!(after(open), error);
    }
}

/// What comes late in a file counts as what comes first: none is read in part.
#[test]
fn files_beyond_the_limit() {
    let padded = |name: &'static str, bytes: usize| {
        move |at: &Path| {
            let pem = fs::read_to_string(at.join(name)).unwrap();
            let space = " \n".repeat((bytes - pem.len()) / 2);
            let end = &"  "[..(bytes - pem.len()) % 2];
            write(at, name, &[&space, &pem, end].concat());
        }
    };
    for name in ["cert.pem", "key.pem", "ca.pem"] {
        let error = format!("{name} has more than 1048576 bytes: it is probably another file");
        assert_eq!(after(padded(name, (1 << 20) + 1)), error);
    }
    let folder = tempfile::tempdir().unwrap();
    Authority::new().certify(folder.path(), &HERE);
    let [chain, key, ca] = ["cert.pem", "key.pem", "ca.pem"].map(|name| {
        padded(name, 1 << 20)(folder.path());
        folder.path().join(name)
    });
    Tls::from_files(&chain, &key, &ca).unwrap();
}

#[test]
fn files_without_sense() {
    let wanted = "PEM is wanted, not encrypted";
    for (name, what) in
        [("cert.pem", "certificate"), ("key.pem", "private key"), ("ca.pem", "certificate")]
    {
        let error = format!("{name} has no {what} in it: {wanted}");
        let encrypted = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAA==\n\
                         -----END ENCRYPTED PRIVATE KEY-----\n";
        for text in ["", "what?\n", encrypted] {
            assert_eq!(after(|at| write(at, name, text)), error);
        }
        let kind = what.to_uppercase();
        let cut = format!("-----BEGIN {kind}-----\nAAAA\n");
        let error = format!("{name} cannot be used: what begins in it has no end");
        assert_eq!(after(|at| write(at, name, &cut)), error);
        let odd = format!("-----BEGIN {kind}-----\nA*\n-----END {kind}-----\n");
        let error = format!("{name} cannot be used: what is in it is not base64");
        assert_eq!(after(|at| write(at, name, &odd)), error);
    }
    let empty = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n";
    let bad = after(|at| write(at, "ca.pem", empty));
    assert_eq!(bad, "ca.pem cannot be used: it is malformed");
    let bad = after(|at| write(at, "cert.pem", empty));
    assert_eq!(bad, "the certificate cert.pem does not hold against ca.pem: it is malformed");
}

#[test]
fn a_key_of_another_certificate() {
    let other = |at: &Path| {
        let elsewhere = tempfile::tempdir().unwrap();
        Authority::new().certify(elsewhere.path(), &HERE);
        fs::copy(elsewhere.path().join("key.pem"), at.join("key.pem")).unwrap();
    };
    let error = "the key key.pem does not go with the certificate cert.pem: it is the key of \
                 another certificate";
    assert_eq!(after(other), error);
}

#[test]
fn a_certificate_that_nobody_would_take() {
    let held = |why: &str| format!("the certificate cert.pem does not hold against ca.pem: {why}");
    let other = |at: &Path| {
        let elsewhere = tempfile::tempdir().unwrap();
        Authority::new().certify(elsewhere.path(), &HERE);
        fs::copy(elsewhere.path().join("ca.pem"), at.join("ca.pem")).unwrap();
    };
    assert_eq!(after(other), held("none of these authorities has signed it"));
    let expired = issued(|params| params.not_after = date_time_ymd(2020, 1, 1));
    assert_eq!(expired, held("it has expired"));
    let early = issued(|params| params.not_before = date_time_ymd(2090, 1, 1));
    assert_eq!(early, held("it is not valid yet"));
    for one in [ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth] {
        let one = issued(|params| params.extended_key_usages.push(one));
        let error = "it is not for both ends of a connection: its extended key usage, if it has \
                     one, must have serverAuth and clientAuth";
        assert_eq!(one, held(error));
    }
}

#[test]
fn what_a_certificate_is_for() {
    let here = tls(&Authority::new());
    for host in HERE {
        here.covers(host).unwrap();
    }
    let tls = tls_for(&Authority::new(), &["*.p.example", "10.0.0.1"]);
    tls.covers("a.p.example").unwrap();
    for host in ["10.0.0.2", "p.example"] {
        let why = tls.covers(host).unwrap_err().to_string();
        let (_, why) = why.split_once(" is not for ").unwrap();
        let error = format!(
            "{host}, where others reach this side: it is not for {host}, but for \
             DnsName(\"*.p.example\"), IpAddress(10.0.0.1)"
        );
        assert_eq!(why, error);
    }
}
