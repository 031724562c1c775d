//! `kvferry doctor`: what this host offers, and what it lacks.

use serde_json::Value;

use crate::common::{failed, folder, run};

/// Exit code 0 whatever is found, for people and for scripts.
#[test]
fn every_provider_is_looked_at() {
    let folder = folder();
    let said = run(folder.path(), &["doctor"]);
    assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""));
    let report = run(folder.path(), &["doctor", "--json"]).json();
    let all = report.as_array().unwrap();
    let subjects: Vec<&str> = all.iter().map(|one| one["subject"].as_str().unwrap()).collect();
    assert_eq!(subjects, ["tcp", "shm", "libfabric", "cuda", "limits"]);
    for diagnosis in all {
        let findings = diagnosis["findings"].as_array().unwrap();
        assert!(!findings.is_empty());
        for finding in findings {
            let what = finding["what"].as_str().unwrap();
            assert!(said.stdout.contains(what), "{what}\n{}", said.stdout);
            let is_ok = finding["status"] == "ok";
            assert_eq!(finding["mend"].is_null(), is_ok, "each other line has its mend: {what}");
        }
        let lacks = findings.iter().any(|finding| finding["status"] == "missing");
        assert_eq!(diagnosis["usable"], !lacks);
    }
}

/// The tests of this crate need as much.
#[test]
fn a_block_really_moves() {
    let folder = folder();
    let report = run(folder.path(), &["doctor", "--json", "--require", "tcp"]).json();
    let moved = &report[0]["findings"][0];
    assert_eq!(moved["status"], "ok");
    assert!(moved["what"].as_str().unwrap().starts_with("a block was read"), "{moved}");
}

#[test]
fn what_is_required_and_not_here() {
    let folder = folder();
    let said = run(folder.path(), &["doctor", "--json", "--require", "tcp,libfabric"]);
    assert_eq!(said.code, Some(3));
    let report: Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!(report[2]["usable"], false);
    let told: Value = serde_json::from_str(&said.stderr).unwrap();
    assert_eq!(told["exit_code"], 3);
    let error = told["error"].as_str().unwrap();
    assert!(error.starts_with("libfabric cannot be used here: "), "{error}");
}

#[test]
fn a_provider_that_nobody_knows() {
    let folder = folder();
    let (code, error, _) = failed(&run(folder.path(), &["doctor", "--require", "pigeon"]));
    assert_eq!(code, Some(2));
    assert!(error.starts_with("invalid value 'pigeon' for '--require "), "{error}");
}
