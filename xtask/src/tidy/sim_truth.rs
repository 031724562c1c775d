//! The ground truth of `sim` judges the planner, so it may share the planner's vocabulary and none
//! of its code.

use super::names::Name;
use super::{Finding, Tree};

const TRUTH: [&str; 2] = ["crates/sim/src/truth.rs", "crates/sim/src/truth/"];

/// Words that say what a model is; all else in `kv_layout` decides something.
const MAY: [&str; 5] = ["Layer", "Kind", "Model", "DType", "Recurrence"];

pub fn check(tree: &Tree) -> Vec<Finding> {
    let truth =
        tree.rust.iter().filter(|file| TRUTH.iter().any(|path| file.path.starts_with(path)));
    truth
        .flat_map(|file| {
            file.names.iter().filter(|name| is_broken(name)).map(|name| {
                let rule = format!("the ground truth names `{}`", name.path());
                let mend = format!(
                    "work it out from scratch; it may name only {} of `kv_layout`, by these \
                     paths, and nothing of `strided`",
                    MAY.join(", ")
                );
                Finding::new(&file.path, name.line, rule, mend)
            })
        })
        .collect()
}

fn is_broken(name: &Name) -> bool {
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
        check(&tree(&[(path, text)])).len()
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
    fn its_tests_are_bound_too() {
        let text = "#[cfg(test)]\nmod tests {\n    use strided::Pattern;\n}";
        let tree = tree(&[("crates/sim/src/truth.rs", text)]);
        assert_eq!(places(&check(&tree)), [("crates/sim/src/truth.rs", 3)]);
    }
}
