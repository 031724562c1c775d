//! The ground truth of `sim` judges the planner, so it may share the planner's vocabulary and none
//! of its code.

use super::names::Name;
use super::rust_file::RustFile;
use super::{Finding, Tree};

const TRUTH: [&str; 2] = ["crates/sim/src/truth.rs", "crates/sim/src/truth/"];

/// Words that say what a model is; all else in `kv_layout` decides something.
const MAY: [&str; 5] = ["Layer", "Kind", "Model", "DType", "Recurrence"];

/// What the planner and its engines work out with. As methods of a type that may be named, they
/// need no path; so they are refused by name, whatever they stand for.
const MAY_NOT: [&str; 5] =
    ["visible_before", "tokens_a_block", "prefill_tokens", "kept", "must_stop_early"];

const OURSELVES: &str = "xtask/src/tidy/sim_truth.rs";

pub fn check(tree: &Tree) -> Vec<Finding> {
    if truth(tree).next().is_none() {
        let rule = format!("the ground truth {} does not exist", TRUTH[0]);
        return vec![Finding::new(OURSELVES, 0, rule, "name the file that has taken its place")];
    }
    names(tree)
}

fn truth(tree: &Tree) -> impl Iterator<Item = &RustFile> {
    tree.rust.iter().filter(|file| TRUTH.iter().any(|path| file.path.starts_with(path)))
}

fn names(tree: &Tree) -> Vec<Finding> {
    truth(tree)
        .flat_map(|file| {
            file.names.iter().filter(|name| is_broken(name)).map(|name| {
                let rule = format!("the ground truth names `{}`", name.path());
                let mend = format!(
                    "work it out from scratch; it may name only {} of `kv_layout`, by these \
                     paths, none of their methods that decide, and nothing of `strided` or of \
                     the rest of this crate",
                    MAY.join(", ")
                );
                Finding::new(&file.path, name.line, rule, mend)
            })
        })
        .collect()
}

fn is_broken(name: &Name) -> bool {
    let names = |words: &[&str]| name.segments.iter().any(|word| words.contains(&word.as_str()));
    // `pub(crate)` names nothing of the crate.
    let elsewhere = name.segments.len() > 1 && names(&["crate", "super"]);
    if elsewhere || names(&MAY_NOT) {
        return true;
    }
    match name.segments[0].as_str() {
        "strided" => true,
        "kv_layout" => !name.segments.get(1).is_some_and(|word| MAY.contains(&word.as_str())),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{places, tree};
    use super::*;

    fn broken(path: &str, text: &str) -> usize {
        names(&tree(&[(path, text)])).len()
    }

    #[test]
    fn the_vocabulary_is_shared() {
        let text =
            "use kv_layout::{DType, Kind, Layer}; fn a(m: &kv_layout::Model) { Kind::Full; }";
        assert_eq!(broken("crates/sim/src/truth.rs", text), 0);
    }

    #[test]
    fn nothing_that_decides_is() {
        for text in [
            "use kv_layout::plan;",
            "use kv_layout::{Kind, Layout};",
            "use kv_layout::*;",
            "use kv_layout as k;",
            "fn a() { kv_layout::groups(b) }",
            "use strided::Pattern;",
        ] {
            assert_eq!(broken("crates/sim/src/truth/mask.rs", text), 1, "{text}");
            assert_eq!(broken("crates/sim/src/engine.rs", text), 0, "{text}");
        }
    }

    #[test]
    fn methods_that_decide_and_the_rest_of_the_crate_are_refused() {
        for word in MAY_NOT {
            for text in [
                format!("fn a(k: kv_layout::Kind) {{ k.{word}(1); }}"),
                format!("fn a() {{ kv_layout::Kind::{word}(b, 1); }}"),
                format!("fn {word}() {{}}"),
            ] {
                assert!(broken("crates/sim/src/truth.rs", &text) > 0, "{text}");
            }
        }
        for text in [
            "use crate::engine::Engine;",
            "use super::{engine, pool};",
            "fn a() { crate::pool::b() }",
            "fn a() { self::super::b() }",
        ] {
            assert!(broken("crates/sim/src/truth.rs", text) > 0, "{text}");
        }
        for text in ["pub(crate) fn a() {}", "pub(super) fn a(k: u8) { k.keeps(1) }", "// kept"] {
            assert_eq!(broken("crates/sim/src/truth.rs", text), 0, "{text}");
        }
    }

    #[test]
    fn the_ground_truth_has_to_exist() {
        let findings = check(&tree(&[("crates/sim/src/engine.rs", "")]));
        assert_eq!(places(&findings), [(OURSELVES, 0)]);
        assert_eq!(check(&tree(&[("crates/sim/src/truth.rs", "")])), []);
        assert_eq!(check(&tree(&[("crates/sim/src/truth/mask.rs", "")])), []);
    }

    #[test]
    fn its_tests_are_bound_too() {
        let text = "#[cfg(test)]\nmod tests {\n    use strided::Pattern;\n}";
        let tree = tree(&[("crates/sim/src/truth.rs", text)]);
        assert_eq!(places(&check(&tree)), [("crates/sim/src/truth.rs", 3)]);
    }
}
