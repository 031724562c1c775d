//! What every manifest says in the same words: version, edition, `rust-version`, licence and lints
//! come from the root, and a package is named as its folder.

use super::{Finding, Tree, line_of_key};
use crate::workspace::Member;

const INHERITED: [&str; 5] = ["version", "edition", "rust-version", "license", "publish"];

/// Files that would state the toolchain a second time.
const TOOLCHAINS: [&str; 2] = ["rust-toolchain", "rust-toolchain.toml"];

/// One `key = value` of a manifest.
pub struct Entry<'a> {
    pub section: &'a str,
    pub key: &'a str,
    pub value: &'a str,
}

/// Reads a manifest line by line. Enough for manifests that cargo itself has accepted: a value
/// over several lines is seen by its first.
pub fn entries(text: &str) -> impl Iterator<Item = Entry<'_>> {
    let mut section = "";
    text.lines().filter_map(move |text| {
        let text = text.trim();
        if let Some(name) = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = name;
        }
        let (key, value) = text.split_once('=').filter(|_| !text.starts_with('#'))?;
        Some(Entry { section, key: key.trim(), value: value.trim() })
    })
}

pub fn check(tree: &Tree) -> Vec<Finding> {
    let members = tree.members.iter().flat_map(|member| manifest(tree, member));
    let files = tree
        .files
        .iter()
        .filter(|file| file.path.rsplit('/').next().is_some_and(|name| TOOLCHAINS.contains(&name)));
    let toolchains = files.map(|file| {
        let rule = "a second place that states the toolchain";
        Finding::new(&file.path, 0, rule, "leave it to `rust-version` in the root Cargo.toml")
    });
    members.chain(toolchains).collect()
}

fn manifest(tree: &Tree, member: &Member) -> Vec<Finding> {
    let path = format!("{}/Cargo.toml", member.folder);
    let text = tree.text(&path).unwrap_or_default();
    let says = |section: &str, key: &str| {
        entries(text).any(|e| e.section == section && e.key == key && e.value == "true")
    };
    let package = INHERITED.iter().filter(|key| !says("package", &format!("{key}.workspace")));
    let mut findings: Vec<Finding> = package
        .map(|key| {
            let rule = format!("`{key}` does not come from the root");
            let mend = format!("write `{key}.workspace = true` under [package]");
            Finding::new(&path, line_of_key(text, key), rule, mend)
        })
        .collect();
    if !says("lints", "workspace") {
        let mend = "write `workspace = true` under [lints]";
        findings.push(Finding::new(&path, 0, "the lints of the house are not inherited", mend));
    }
    if !format!("/{}", member.folder).ends_with(&format!("/{}", member.name)) {
        let rule = format!("package `{}` is not named as its folder", member.name);
        findings.push(Finding::new(&path, line_of_key(text, "name"), rule, "rename one of them"));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{member, places, tree};
    use super::*;

    const RIGHT: &str = "[package]\nname = \"sim\"\nversion.workspace = true\n\
        edition.workspace = true\nrust-version.workspace = true\nlicense.workspace = true\n\
        publish.workspace = true\n\n[lints]\nworkspace = true\n";

    fn broken(manifest: &str) -> Vec<Finding> {
        check(&tree(&[("crates/sim/Cargo.toml", manifest), ("crates/sim/src/lib.rs", "")]))
    }

    #[test]
    fn a_manifest_that_inherits_everything_passes() {
        assert_eq!(broken(RIGHT), []);
    }

    #[test]
    fn each_missing_line_is_found() {
        for line in RIGHT.lines().filter(|line| line.ends_with("= true")) {
            assert_eq!(broken(&RIGHT.replace(&format!("\n{line}\n"), "\n")).len(), 1, "{line}");
        }
    }

    #[test]
    fn a_value_of_its_own_is_named_with_its_line() {
        let own = RIGHT.replace("rust-version.workspace = true", "rust-version = \"1.80\"");
        assert_eq!(places(&broken(&own)), [("crates/sim/Cargo.toml", 5)]);
    }

    #[test]
    fn lints_of_another_section_do_not_count() {
        let elsewhere = RIGHT.replace("[lints]", "[dependencies.a]");
        assert_eq!(broken(&elsewhere).len(), 1);
    }

    #[test]
    fn a_package_is_named_as_its_folder() {
        let mut tree = tree(&[("crates/sim/Cargo.toml", RIGHT)]);
        tree.members = vec![member("crates/sim", &[])];
        assert_eq!(check(&tree), []);
        tree.members[0].name = "im".to_owned();
        assert_eq!(places(&check(&tree)), [("crates/sim/Cargo.toml", 2)]);
    }

    #[test]
    fn no_file_states_the_toolchain_again() {
        let tree = tree(&[("rust-toolchain.toml", ""), ("docs/rust-toolchain.md", "")]);
        assert_eq!(places(&check(&tree)), [("rust-toolchain.toml", 0)]);
    }
}
