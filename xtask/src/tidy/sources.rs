//! Where libraries come from: the default registry or a folder of this repository. A branch in
//! somebody's repository can move under us, and a folder elsewhere is on one machine alone.

use super::{Finding, Tree, line_of_key};

/// Packages that may come from elsewhere, each with its reason on the line above.
const MAY: [&str; 0] = [];

pub fn check(tree: &Tree) -> Vec<Finding> {
    let root = tree.text("Cargo.toml").unwrap_or_default();
    let foreign = tree.foreign.iter().filter(|name| !MAY.contains(&name.as_str()));
    foreign
        .map(|name| {
            let rule = format!("`{name}` comes neither from the default registry nor from here");
            let mend =
                "take a released version, or argue for an entry in xtask/src/tidy/sources.rs";
            Finding::new("Cargo.toml", line_of_key(root, name), rule, mend)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{places, tree};
    use super::*;

    #[test]
    fn a_package_from_elsewhere_is_found_where_the_root_names_it() {
        let mut tree = tree(&[("Cargo.toml", "[workspace.dependencies]\na = { git = \"b\" }\n")]);
        assert_eq!(check(&tree), []);
        tree.foreign.push("a".to_owned());
        assert_eq!(places(&check(&tree)), [("Cargo.toml", 2)]);
    }
}
