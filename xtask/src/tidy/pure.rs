//! What the crates that only compute may not name: no I/O, no clock, no thread, no async, and no
//! order that changes from run to run.

use super::names::Name;
use super::{Finding, Tree};

const PURE: [&str; 3] = ["strided", "kv-layout", "connector"];

/// Crates whose answers must not depend on a hash seed.
const ORDERED: [&str; 2] = ["kv-layout", "connector"];

const OURSELVES: &str = "xtask/src/tidy/pure.rs";

const IO: &str = "the caller does I/O and passes in what it read";
const CLOCK: &str = "the caller passes the time in";
const THREAD: &str = "be a state machine that the caller drives";

/// A run of path segments, and what to do instead.
const PATHS: [(&[&str], &str); 10] = [
    (&["std", "fs"], IO),
    (&["std", "net"], IO),
    (&["std", "env"], IO),
    (&["std", "process"], IO),
    (&["std", "thread"], THREAD),
    (&["std", "time", "Instant"], CLOCK),
    (&["std", "time", "SystemTime"], CLOCK),
    (&["time", "Instant"], CLOCK),
    (&["async"], THREAD),
    (&["await"], THREAD),
];

const MACROS: [&str; 4] = ["println", "print", "eprintln", "eprint"];

const HASHED: [&str; 2] = ["HashMap", "HashSet"];

pub fn check(tree: &Tree) -> Vec<Finding> {
    missing(tree).chain(words(tree)).collect()
}

/// A guard of a crate that is gone, or goes by another name, guards nothing.
fn missing(tree: &Tree) -> impl Iterator<Item = Finding> {
    let missing = PURE.iter().filter(|name| tree.rust_of(name).next().is_none());
    missing.map(|name| {
        let rule = format!("the pure crate `{name}` does not exist");
        Finding::new(OURSELVES, 0, rule, "name the crate that has taken its place")
    })
}

fn words(tree: &Tree) -> Vec<Finding> {
    PURE.iter()
        .flat_map(|name| {
            tree.rust_of(name).flat_map(move |file| {
                let broken = file.names_outside_tests().filter_map(|used| {
                    mend(name, used).map(|mend| {
                        let rule = format!("`{}` in the pure crate `{name}`", used.path());
                        Finding::new(&file.path, used.line, rule, mend)
                    })
                });
                broken.collect::<Vec<_>>()
            })
        })
        .collect()
}

/// What to do instead of naming this, if it may not be named.
fn mend(package: &str, used: &Name) -> Option<&'static str> {
    if let Some((_, mend)) = PATHS.iter().find(|(run, _)| used.has(run)) {
        return Some(mend);
    }
    let named = |word: &&str| used.segments.iter().any(|segment| segment == word);
    if used.segments[0] == "tokio" {
        Some(THREAD)
    } else if used.is_macro && MACROS.iter().any(named) {
        Some("return it as an event or an error")
    } else if ORDERED.contains(&package) && HASHED.iter().any(named) {
        Some("take a BTreeMap or BTreeSet, whose order is the same in every run")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{places, tree};
    use super::*;

    fn broken(package: &str, text: &str) -> usize {
        words(&tree(&[(&format!("crates/{package}/src/a.rs"), text)])).len()
    }

    #[test]
    fn each_of_the_words_is_found_in_a_pure_crate_alone() {
        for text in [
            "use std::fs::File;",
            "use std::{fmt, net};",
            "use std::time::{Duration, Instant};",
            "use std::time::*;",
            "fn a() { std::time::SystemTime::now(); }",
            "use std::time; fn a() { time::Instant::now(); }",
            "fn a() { std::thread::sleep(d) }",
            "fn a() { tokio::spawn(b) }",
            "async fn a() {}",
            "fn a() { async { b.await }; }",
            "fn a() { vec![std::env::var(b)]; }",
            "fn a() { println!() }",
            "fn a() { eprint!(b) }",
            "use std::process::Command;",
        ] {
            assert!(broken("strided", text) > 0, "{text}");
            assert_eq!(broken("kvferry", text), 0, "{text}");
        }
    }

    #[test]
    fn hashed_collections_are_refused_where_order_matters() {
        let text = "use std::collections::{BTreeMap, HashMap}; struct A(HashMap<u8, u8>);";
        assert_eq!(broken("kv-layout", text), 2);
        assert_eq!(broken("connector", "type A = std::collections::HashSet<u8>;"), 1);
        assert_eq!(broken("strided", text), 0);
    }

    #[test]
    fn tests_comments_and_innocent_paths_pass() {
        for text in [
            "#[cfg(test)] mod tests { use std::fs; }",
            "//! No `std::fs`, no async.\n// tokio",
            "use std::time::Duration; use std::collections::BTreeMap;",
            "struct Instant; fn a(now: Instant) -> bool { now != b }",
            "fn a(tokio_like: u8) {}",
        ] {
            assert_eq!(broken("connector", text), 0, "{text}");
        }
    }

    #[test]
    fn the_line_is_the_one_of_the_word() {
        let tree = tree(&[("crates/strided/src/a.rs", "fn a() {\n\n    std::fs::read(b);\n}")]);
        assert_eq!(places(&words(&tree)), [("crates/strided/src/a.rs", 3)]);
    }

    #[test]
    fn each_pure_crate_has_to_exist() {
        let files = PURE.map(|name| (format!("crates/{name}/src/lib.rs"), "fn a() {}"));
        let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        assert_eq!(check(&tree(&files)), []);
        for (index, name) in PURE.iter().enumerate() {
            let mut files = files.clone();
            files.remove(index);
            let findings = check(&tree(&files));
            assert_eq!(places(&findings), [(OURSELVES, 0)]);
            assert!(findings[0].rule.contains(&format!("`{name}`")), "{}", findings[0].rule);
        }
    }
}
