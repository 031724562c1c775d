//! Every library is judged in `docs/DEPENDENCIES.md`, every judged library is used, and every
//! crate names in its code what its manifest names.

use std::collections::{BTreeMap, BTreeSet};

use super::{Finding, Tree, line_of_key, manifests};
use crate::workspace::Member;

const PAGE: &str = "docs/DEPENDENCIES.md";
const ROOT: &str = "Cargo.toml";

pub fn check(tree: &Tree) -> Vec<Finding> {
    let root = tree.text(ROOT).unwrap_or_default();
    let judged = judged(tree.text(PAGE).unwrap_or_default());
    let used: BTreeSet<&str> = tree.members.iter().flat_map(libraries).collect();
    let mut findings = Vec::new();
    for name in stated(root).union(&used).filter(|name| !judged.contains_key(*name)) {
        let rule = format!("library `{name}` is not judged");
        let mend = format!("give it a row in {PAGE}");
        findings.push(Finding::new(ROOT, line_of_key(root, name), rule, mend));
    }
    for (name, line) in judged.iter().filter(|(name, _)| !used.contains(*name)) {
        let rule = format!("`{name}` is judged here and no crate uses it");
        let mend = "remove the row, and its line in the root Cargo.toml";
        findings.push(Finding::new(PAGE, *line, rule, mend));
    }
    findings.extend(tree.members.iter().flat_map(|member| unnamed(tree, member)));
    findings
}

/// The names in the first column of the page's tables, and their lines.
fn judged(page: &str) -> BTreeMap<&str, usize> {
    let cells = page
        .lines()
        .zip(1..)
        .filter_map(|(text, line)| Some((text.trim().strip_prefix('|')?.split('|').next()?, line)));
    // Every second part of a split at backticks stands between two of them.
    cells
        .flat_map(|(cell, line)| cell.split('`').skip(1).step_by(2).map(move |name| (name, line)))
        .collect()
}

/// The libraries that the root manifest lists.
fn stated(root: &str) -> BTreeSet<&str> {
    let listed = manifests::entries(root).filter(|e| e.section == "workspace.dependencies");
    listed.filter(|entry| !entry.value.contains("path =")).map(|entry| entry.key).collect()
}

fn libraries(member: &Member) -> impl Iterator<Item = &str> {
    member.dependencies.iter().filter(|used| !used.ours).map(|used| used.name.as_str())
}

/// What a manifest names and no file of the crate does.
fn unnamed(tree: &Tree, member: &Member) -> Vec<Finding> {
    let files: Vec<_> = tree.rust_of(&member.name).collect();
    let named: BTreeSet<&str> =
        files.iter().flat_map(|file| &file.names).map(|name| name.segments[0].as_str()).collect();
    let path = format!("{}/Cargo.toml", member.folder);
    let unnamed = member.dependencies.iter().filter(|used| !named.contains(used.ident.as_str()));
    unnamed
        .map(|used| {
            let line = line_of_key(tree.text(&path).unwrap_or_default(), &used.name);
            let rule = format!("`{}` names `{}` in its manifest alone", member.name, used.name);
            Finding::new(&path, line, rule, "use it or remove the line")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{dependency, places, tree};
    use super::*;

    const MANIFEST: &str = "[workspace.dependencies]\nstrided = { path = \"crates/strided\" }\n\
        serde = { version = \"1\" }\n\n[workspace.lints.rust]\nmissing_docs = \"deny\"\n";

    /// A workspace whose one crate names these libraries in manifest and code.
    fn workspace(page: &str, used: &[&str], code: &str) -> Tree {
        let mut tree = tree(&[(ROOT, MANIFEST), (PAGE, page), ("crates/sim/src/lib.rs", code)]);
        tree.members[0].dependencies = used.iter().map(|name| dependency(name, false)).collect();
        tree
    }

    #[test]
    fn a_library_that_is_listed_judged_and_named_passes() {
        let page = "| library | what |\n| --- | --- |\n| `serde` | records |\n";
        assert_eq!(check(&workspace(page, &["serde"], "use serde::Serialize;")), []);
    }

    #[test]
    fn a_library_without_a_row_is_found() {
        let tree = workspace("| `other` in `serde` |", &["serde", "other"], "serde::a!(other::b);");
        let page = "no table, but `serde`";
        assert_eq!(check(&tree).iter().filter(|f| f.path == ROOT).count(), 0);
        let tree = workspace(page, &["serde"], "use serde::Serialize;");
        assert_eq!(places(&check(&tree)), [(ROOT, 3)]);
    }

    #[test]
    fn a_version_of_a_crates_own_is_judged_as_well() {
        let tree = workspace("| `serde` |", &["serde", "extra"], "serde::a!(extra::b);");
        assert_eq!(places(&check(&tree)), [(ROOT, 0)]);
    }

    #[test]
    fn a_row_that_no_crate_uses_is_found() {
        let tree = workspace("\n| `serde` |", &[], "");
        assert_eq!(places(&check(&tree)), [(PAGE, 2)]);
    }

    #[test]
    fn a_manifest_line_that_no_code_names_is_found() {
        let tree = workspace("| `serde` |", &["serde"], "// serde::Serialize");
        let findings = check(&tree);
        assert_eq!(places(&findings), [("crates/sim/Cargo.toml", 0)]);
    }

    #[test]
    fn dashes_of_a_library_are_underscores_in_code() {
        let mut tree = workspace(
            "| `serde` `expect-test` |",
            &["serde", "expect-test"],
            "serde::a!(expect_test::b);",
        );
        assert_eq!(check(&tree), []);
        tree.rust.clear();
        assert_eq!(check(&tree).len(), 2);
    }
}
