use super::*;

fn found(text: &str) -> Vec<Name> {
    names(text.parse().unwrap())
}

fn paths(text: &str) -> Vec<String> {
    found(text).iter().map(Name::path).filter(|path| path != "use" && path != "let").collect()
}

#[test]
fn use_trees_are_spelled_out() {
    assert_eq!(
        paths("use std::{self, fs::{File as F, read}, time::*}; use ::a::b as c;"),
        ["std", "std::fs::File", "std::fs::read", "std::time::*", "a::b", "as", "c"]
    );
}

#[test]
fn expressions_types_and_macro_arguments_name_paths() {
    let text =
        "let x: Vec<std::net::IpAddr> = f(std::fs::read(a::<b::C>::d)); m!(std::env::var(1));";
    assert_eq!(
        paths(text),
        [
            "x",
            "Vec",
            "std::net::IpAddr",
            "f",
            "std::fs::read",
            "a",
            "b::C",
            "d",
            "m",
            "std::env::var"
        ]
    );
}

#[test]
fn comments_docs_and_strings_name_nothing() {
    let text = "/// std::fs\n// unsafe\nlet a = \"std::net\";";
    assert_eq!(paths(text), ["doc", "a"]);
}

#[test]
fn a_macro_call_is_no_inequality() {
    let names = found("println!(1); x != y");
    let macros: Vec<_> = names.iter().filter(|n| n.is_macro).map(Name::path).collect();
    assert_eq!(macros, ["println"]);
}

#[test]
fn lines_count_from_one() {
    let lines: Vec<_> = found("a\n\nb::c").iter().map(|name| name.line).collect();
    assert_eq!(lines, [1, 3]);
}

#[test]
fn code_under_cfg_test_is_marked() {
    let text = "#[cfg(test)] use a::{b};  c; #[cfg(all(test, x))] #[d] mod e { f } g;
                #[cfg(not(test))] mod h { i }";
    let marked: Vec<_> = found(text).into_iter().filter(|n| n.in_test).map(|n| n.path()).collect();
    for inside in ["a::b", "d", "e", "f"] {
        assert!(marked.contains(&inside.to_owned()), "{inside} in {marked:?}");
    }
    for outside in ["c", "g", "h", "i"] {
        assert!(!marked.contains(&outside.to_owned()), "{outside} in {marked:?}");
    }
}

#[test]
fn an_inner_cfg_test_marks_all_that_follows() {
    assert!(found("#![cfg(test)] mod a {} b;").iter().all(|name| name.in_test));
}

#[test]
fn a_run_is_found_anywhere_in_a_path_and_through_a_glob() {
    let has = |text: &str, run: &[&str]| found(text)[0].has(run);
    assert!(has("std::time::Instant::now", &["time", "Instant"]));
    assert!(has("std::time::*", &["std", "time", "Instant"]));
    assert!(!has("std::time::Duration", &["time", "Instant"]));
    assert!(!has("std::*", &["HashMap"]));
}
