//! Which crate may use which: the drawing of the architecture page, as a table.

use super::{Finding, Tree, line_of_key};
use crate::workspace::Member;

/// The arrows, written at the crate that depends. A crate may also name directly what it reaches
/// along them.
const ARROWS: [(&str, &[&str]); 11] = [
    ("strided", &[]),
    ("libfabric-sys", &[]),
    ("kv-layout", &["strided"]),
    ("transport", &["strided", "libfabric-sys"]),
    ("cuda-mem", &["strided", "transport"]),
    ("connector", &["kv-layout"]),
    ("kvferry", &["connector", "cuda-mem", "transport"]),
    ("sim", &["strided", "kv-layout", "connector", "transport"]),
    ("cli", &["kvferry", "sim"]),
    ("python", &["kvferry"]),
    ("xtask", &["sim"]),
];

/// Its unsafe bindings stay behind the one crate that wraps them.
const NEVER_INHERITED: &str = "libfabric-sys";

/// They measure and fuzz every crate, so they may use every crate.
const FREE: [&str; 2] = ["benches", "fuzz"];

/// Dev-dependencies are free: a test may look at anything.
pub fn check(tree: &Tree) -> Vec<Finding> {
    tree.members
        .iter()
        .filter(|member| !FREE.contains(&member.name.as_str()))
        .flat_map(|member| edges(tree, member))
        .collect()
}

fn edges(tree: &Tree, member: &Member) -> Vec<Finding> {
    let manifest = format!("{}/Cargo.toml", member.folder);
    if arrows_of(&member.name).is_none() {
        let rule = format!("crate `{}` is not in the table of arrows", member.name);
        return vec![Finding::new(
            &manifest,
            0,
            rule,
            "draw it in ARCHITECTURE.md and add it to xtask/src/tidy/dag.rs",
        )];
    }
    let ours = member.dependencies.iter().filter(|used| used.ours && !used.dev);
    ours.filter(|used| !may_use(&member.name, &used.name))
        .map(|used| {
            let line = line_of_key(tree.text(&manifest).unwrap_or_default(), &used.name);
            let rule = format!("`{}` may not use `{}`", member.name, used.name);
            let mend = "move the code to where it is allowed, or argue in ARCHITECTURE.md for a \
                        new arrow and add it to xtask/src/tidy/dag.rs";
            Finding::new(&manifest, line, rule, mend)
        })
        .collect()
}

fn arrows_of(name: &str) -> Option<&'static [&'static str]> {
    ARROWS.iter().find(|(from, _)| *from == name).map(|(_, to)| *to)
}

fn may_use(user: &str, used: &str) -> bool {
    let direct = arrows_of(user).unwrap_or_default();
    direct.contains(&used)
        || (used != NEVER_INHERITED && direct.iter().any(|step| may_use(step, used)))
}

#[cfg(test)]
mod tests {
    use super::super::fixture::member;
    use super::*;

    fn broken(members: Vec<Member>) -> Vec<String> {
        let tree = Tree { members, ..Tree::default() };
        check(&tree).into_iter().map(|finding| finding.rule).collect()
    }

    #[test]
    fn arrows_and_what_is_reached_along_them_are_allowed() {
        let members = vec![
            member("crates/strided", &[]),
            member(
                "crates/kvferry",
                &["connector", "kv-layout", "strided", "cuda-mem", "transport"],
            ),
            member("crates/cli", &["kvferry", "sim", "transport"]),
            member("crates/transport", &["libfabric-sys"]),
            member("benches", &["cuda-mem", "python"]),
            member("fuzz", &["transport", "connector"]),
        ];
        assert_eq!(broken(members), [] as [&str; 0]);
    }

    #[test]
    fn edges_against_or_beside_the_arrows_are_not() {
        for (user, used) in [
            ("crates/strided", "kv-layout"),
            ("crates/connector", "transport"),
            ("crates/transport", "kv-layout"),
            ("crates/kvferry", "sim"),
            ("crates/cuda-mem", "libfabric-sys"),
            ("crates/sim", "kvferry"),
        ] {
            let rules = broken(vec![member(user, &[used])]);
            assert_eq!(rules.len(), 1, "{user} uses {used}");
            assert!(rules[0].contains(used), "{}", rules[0]);
        }
    }

    #[test]
    fn a_test_may_use_anything() {
        let mut user = member("crates/strided", &["kvferry"]);
        user.dependencies[0].dev = true;
        assert_eq!(broken(vec![user]), [] as [&str; 0]);
    }

    #[test]
    fn a_crate_that_is_not_drawn_is_refused() {
        assert_eq!(broken(vec![member("crates/new", &[])]).len(), 1);
    }

    #[test]
    fn every_arrow_ends_at_a_crate_of_the_table() {
        for (from, to) in ARROWS {
            assert!(to.iter().all(|to| arrows_of(to).is_some()), "{from}");
        }
    }
}
