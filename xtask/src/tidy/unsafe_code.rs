//! Where `unsafe` may stand, and that every other crate forbids it.
//!
//! That each block is argued for is clippy's work; that clippy's lints are inherited is the work
//! of the manifest check.

use syn::Attribute;

use super::{Finding, Tree};

/// Folders, or modules with and without a folder.
const MAY: [&str; 7] = [
    "crates/libfabric-sys",
    "crates/cuda-mem",
    "crates/transport/src/memory",
    "crates/transport/src/tcp",
    "crates/transport/src/shm",
    "crates/transport/src/libfabric",
    "crates/python/src/borrow",
];

/// Crates that deny it and allow it on the modules above.
const DENY: [&str; 2] = ["transport", "python"];

/// Crates that are made of it.
const FREE: [&str; 2] = ["libfabric-sys", "cuda-mem"];

pub fn check(tree: &Tree) -> Vec<Finding> {
    keywords(tree).chain(lints(tree)).collect()
}

fn keywords(tree: &Tree) -> impl Iterator<Item = Finding> {
    let outside = tree.rust.iter().filter(|file| !may_use(&file.path));
    outside.flat_map(|file| {
        file.names.iter().filter(|name| name.path() == "unsafe").map(|name| {
            let rule = "unsafe outside the listed modules";
            let mend = "move it into one of them, or argue for a new entry in xtask/src/tidy/unsafe_code.rs";
            Finding::new(&file.path, name.line, rule, mend)
        })
    })
}

fn may_use(path: &str) -> bool {
    MAY.iter()
        .filter_map(|allowed| path.strip_prefix(allowed))
        .any(|rest| rest == ".rs" || rest.starts_with('/'))
}

fn lints(tree: &Tree) -> impl Iterator<Item = Finding> {
    let bound = tree.members.iter().filter(|member| !FREE.contains(&member.name.as_str()));
    bound.flat_map(|member| {
        let level = if DENY.contains(&member.name.as_str()) { "deny" } else { "forbid" };
        let roots = tree.rust.iter().filter(|file| member.roots.contains(&file.path));
        roots.filter(move |file| !has_lint(&file.syntax.attrs, level)).map(move |file| {
            let rule = format!("crate `{}` does not {level} unsafe code", member.name);
            let mend = format!("add `#![{level}(unsafe_code)]` under the crate's docs");
            Finding::new(&file.path, 1, rule, mend)
        })
    })
}

fn has_lint(attributes: &[Attribute], level: &str) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident(level)
            && attribute.meta.require_list().is_ok_and(|list| {
                list.tokens.to_string().split([',', ' ']).any(|lint| lint == "unsafe_code")
            })
    })
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{places, tree};
    use super::*;

    #[test]
    fn the_keyword_is_found_outside_the_listed_modules_in_every_form() {
        let text = "fn a() {\n    unsafe { b() }\n}\nunsafe fn b() {}\nunsafe impl Send for C {}\n\
                    #[unsafe(no_mangle)]\nfn d() {}\nmacro_rules! e { () => { unsafe {} } }";
        let tree = tree(&[("crates/transport/src/endpoint.rs", text)]);
        let expected = [2, 4, 5, 6, 8].map(|line| ("crates/transport/src/endpoint.rs", line));
        assert_eq!(places(&keywords(&tree).collect::<Vec<_>>()), expected);
    }

    #[test]
    fn it_may_stand_in_the_listed_modules_and_their_folders() {
        let text = "unsafe fn a() {}";
        let tree = tree(&[
            ("crates/transport/src/memory.rs", text),
            ("crates/transport/src/tcp.rs", text),
            ("crates/transport/src/libfabric/mod.rs", text),
            ("crates/libfabric-sys/build.rs", text),
            ("crates/transport/src/shm/ring.rs", text),
            ("crates/cuda-mem/src/lib.rs", text),
            ("crates/python/src/borrow.rs", text),
        ]);
        assert_eq!(keywords(&tree).collect::<Vec<_>>(), []);
    }

    #[test]
    fn a_similar_name_is_not_a_listed_module() {
        let tree = tree(&[("crates/transport/src/tcp_frames.rs", "unsafe fn a() {}")]);
        assert_eq!(keywords(&tree).count(), 1);
    }

    #[test]
    fn comments_strings_and_lint_names_are_not_the_keyword() {
        let text = "// unsafe\n/// unsafe\npub const A: &str = \"unsafe\";\n#[allow(unsafe_code)] mod b {}";
        assert_eq!(keywords(&tree(&[("crates/sim/src/a.rs", text)])).count(), 0);
    }

    #[test]
    fn each_crate_says_how_far_it_goes() {
        let forbids = "#![forbid(unsafe_code)]";
        let denies = "#![deny(unsafe_code)]";
        let right = tree(&[
            ("crates/strided/src/lib.rs", forbids),
            ("crates/transport/src/lib.rs", denies),
            ("crates/cuda-mem/src/lib.rs", ""),
        ]);
        assert_eq!(lints(&right).collect::<Vec<_>>(), []);
        let wrong = tree(&[
            ("crates/strided/src/lib.rs", denies),
            ("crates/sim/src/lib.rs", "#![forbid(missing_docs)]"),
            ("crates/transport/src/lib.rs", ""),
        ]);
        assert_eq!(lints(&wrong).count(), 3);
    }
}
