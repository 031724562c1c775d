//! Libraries read no environment variables: what changes a library is an argument or a `Config`.

use super::names::Name;
use super::{Finding, Tree};

/// Programs, which may ask their user.
const PROGRAMS: [&str; 4] = ["cli", "xtask", "benches", "fuzz"];

const READS: [&str; 4] = ["var", "var_os", "vars", "vars_os"];
const WRITES: [&str; 2] = ["set_var", "remove_var"];

pub fn check(tree: &Tree) -> Vec<Finding> {
    let libraries = tree.members.iter().filter(|m| !PROGRAMS.contains(&m.name.as_str()));
    let files = libraries.flat_map(|member| tree.rust_of(&member.name));
    // A build script talks to cargo through variables.
    files
        .filter(|file| !file.path.ends_with("/build.rs"))
        .flat_map(|file| {
            file.names_outside_tests().filter(|name| is_broken(name)).map(|name| {
                let rule = format!("`{}` in a library", name.path());
                let mend = "take it as an argument; `cli` may read variables";
                Finding::new(&file.path, name.line, rule, mend)
            })
        })
        .collect()
}

fn is_broken(name: &Name) -> bool {
    let calls = |words: &[&str]| words.iter().any(|word| name.has(&["env", word]));
    calls(&READS) || calls(&WRITES)
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{places, tree};
    use super::*;

    fn broken(path: &str, text: &str) -> usize {
        check(&tree(&[("crates/kvferry/src/lib.rs", ""), (path, text)])).len()
    }

    #[test]
    fn libraries_neither_read_nor_write_variables() {
        for text in [
            "fn a() { std::env::var(\"B\"); }",
            "use std::env; fn a() { env::var_os(\"B\"); }",
            "use std::env::{vars};",
            "fn a() { std::env::set_var(b, c) }",
        ] {
            assert_eq!(broken("crates/kvferry/src/a.rs", text), 1, "{text}");
        }
    }

    #[test]
    fn programs_tests_and_other_parts_of_the_environment_are_free() {
        let read = "fn a() { std::env::var(\"B\"); }";
        assert_eq!(broken("crates/cli/src/a.rs", read), 0);
        assert_eq!(broken("crates/kvferry/tests/a.rs", read), 0);
        assert_eq!(broken("crates/kvferry/build.rs", read), 0);
        assert_eq!(
            broken("crates/kvferry/src/a.rs", "fn a() { std::env::temp_dir(); env!(\"B\"); }"),
            0
        );
    }

    #[test]
    fn the_loader_of_libfabric_is_no_exception() {
        let path = "crates/transport/src/libfabric/load.rs";
        let tree = tree(&[(path, "\nuse std::env::set_var;")]);
        assert_eq!(places(&check(&tree)), [(path, 2)]);
    }
}
