//! A Rust file as the checks see it.

use std::path::Path;

use proc_macro2::TokenStream;
use syn::{Expr, ExprLit, Item, ItemMod, Lit, Meta};

use super::names::{self, Name};

/// A parsed file.
pub struct RustFile {
    pub path: String,
    pub syntax: syn::File,
    pub names: Vec<Name>,
}

impl RustFile {
    pub fn parse(path: &str, text: &str) -> syn::Result<Self> {
        let syntax = syn::parse_file(text)?;
        let names = names::names(text.parse::<TokenStream>()?);
        Ok(Self { path: path.to_owned(), syntax, names })
    }

    /// What the file names outside tests.
    pub fn names_outside_tests(&self) -> impl Iterator<Item = &Name> {
        self.names.iter().filter(|name| !name.in_test)
    }
}

/// Marks the names of files that are compiled for tests alone: those of the folders `tests`,
/// `benches` and `examples`, and those that `#[cfg(test)] mod name;` brings in.
pub fn mark_test_files(files: &mut [RustFile]) {
    let modules: Vec<String> = files.iter().flat_map(test_modules).collect();
    for file in files {
        let stem = file.path.trim_end_matches(".rs").trim_end_matches("/mod");
        let under_module = modules.iter().any(|module| {
            stem.strip_prefix(module).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        });
        if under_module || in_test_folder(&file.path) {
            file.names.iter_mut().for_each(|name| name.in_test = true);
        }
    }
}

/// A package's own folder of tests, not a module that happens to be called so.
fn in_test_folder(path: &str) -> bool {
    let package = ["/tests/", "/benches/", "/examples/"];
    !path.contains("/src/") && package.iter().any(|folder| path.contains(folder))
}

/// The paths, without `.rs`, of the modules that this file declares for tests alone.
fn test_modules(file: &RustFile) -> Vec<String> {
    let modules = file.syntax.items.iter().filter_map(|item| match item {
        Item::Mod(module) if module.content.is_none() && is_for_tests(module) => Some(module),
        _ => None,
    });
    modules.map(|module| module_path(&file.path, module)).collect()
}

fn is_for_tests(module: &ItemMod) -> bool {
    module.attrs.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) => {
            list.path.is_ident("cfg") && names::is_test_only(&list.tokens.to_string())
        }
        _ => false,
    })
}

fn module_path(declared_in: &str, module: &ItemMod) -> String {
    let parent =
        Path::new(declared_in).parent().map_or_else(String::new, |p| p.display().to_string());
    if let Some(path) = path_attribute(module) {
        return format!("{parent}/{}", path.trim_end_matches(".rs"));
    }
    let is_root = ["lib.rs", "main.rs", "mod.rs"].iter().any(|name| declared_in.ends_with(name));
    let folder = if is_root { &parent } else { declared_in.trim_end_matches(".rs") };
    format!("{folder}/{}", module.ident)
}

/// The file of `#[path = "file"]`.
fn path_attribute(module: &ItemMod) -> Option<String> {
    module.attrs.iter().find_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
            Expr::Lit(ExprLit { lit: Lit::Str(file), .. }) => Some(file.value()),
            _ => None,
        },
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether each file's names count as test code.
    fn marked(files: &[(&str, &str)]) -> Vec<bool> {
        let parse = |(path, text): &(&str, &str)| RustFile::parse(path, text).unwrap();
        let mut files: Vec<_> = files.iter().map(parse).collect();
        mark_test_files(&mut files);
        files.iter().map(|file| file.names_outside_tests().next().is_none()).collect()
    }

    #[test]
    fn modules_declared_for_tests_are_test_code_and_so_is_what_lies_below() {
        let files = [
            ("c/src/lib.rs", "#[cfg(test)] mod oracle; mod plan;"),
            ("c/src/oracle.rs", "mod deep;"),
            ("c/src/oracle/deep.rs", "fn a() {}"),
            ("c/src/oracles.rs", "fn a() {}"),
            ("c/src/plan.rs", "#[cfg(test)] mod tests; #[cfg(test)] #[path = \"odd.rs\"] mod o;"),
            ("c/src/plan/tests.rs", "fn a() {}"),
            ("c/src/odd.rs", "fn a() {}"),
            ("c/src/tests.rs", "fn a() {}"),
        ];
        // `plan.rs` itself names only what its two test modules need.
        assert_eq!(marked(&files), [false, true, true, false, true, true, true, false]);
    }

    #[test]
    fn the_test_folders_of_a_package_are_test_code() {
        let files = [
            ("c/tests/a.rs", "fn a() {}"),
            ("benches/benches/a.rs", "fn a() {}"),
            ("c/src/tests/a.rs", "fn a() {}"),
        ];
        assert_eq!(marked(&files), [true, true, false]);
    }
}
