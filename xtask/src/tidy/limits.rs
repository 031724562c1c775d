//! How long a file and a function may be, and how many fields a struct may have.

use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, Block, Ident, ImplItemFn, ItemFn, ItemStruct, Signature, TraitItemFn};

use super::{Finding, Tree};
use crate::workspace::TextFile;

const FILE_LINES: usize = 400;
const FUNCTION_LINES: usize = 60;
const STRUCT_FIELDS: usize = 12;

pub fn check(tree: &Tree) -> Vec<Finding> {
    let code = tree.files.iter().filter(|f| f.path.ends_with(".rs") || f.path.ends_with(".py"));
    let mut findings: Vec<Finding> = code.filter_map(file).collect();
    for file in &tree.rust {
        let mut items = Items { path: &file.path, findings: &mut findings };
        items.visit_file(&file.syntax);
    }
    findings
}

fn file(file: &TextFile) -> Option<Finding> {
    let lines = file.text.lines().count();
    let rule = format!("a file of {lines} lines, where {FILE_LINES} is the limit");
    let mend = "split it by concern; tests go into a file of their own";
    (lines > FILE_LINES).then(|| Finding::new(&file.path, 0, rule, mend))
}

struct Items<'a> {
    path: &'a str,
    findings: &'a mut Vec<Finding>,
}

impl Items<'_> {
    fn function(&mut self, signature: &Signature, block: &Block) {
        let first = signature.span().start().line;
        let lines = block.brace_token.span.close().end().line - first + 1;
        if lines > FUNCTION_LINES {
            let rule = format!(
                "function `{}` has {lines} lines, where {FUNCTION_LINES} is the limit",
                signature.ident
            );
            self.push(first, rule, "name its steps and make them functions");
        }
    }

    fn structure(&mut self, name: &Ident, span: Span, fields: usize) {
        if fields > STRUCT_FIELDS {
            let rule =
                format!("struct `{name}` has {fields} fields, where {STRUCT_FIELDS} is the limit");
            self.push(span.start().line, rule, "group the fields that change together");
        }
    }

    fn push(&mut self, line: usize, rule: String, mend: &str) {
        self.findings.push(Finding::new(self.path, line, rule, mend));
    }
}

impl<'ast> Visit<'ast> for Items<'_> {
    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        self.function(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        self.function(&item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast TraitItemFn) {
        if let Some(block) = &item.default {
            self.function(&item.sig, block);
        }
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_item_struct(&mut self, item: &'ast ItemStruct) {
        // The shape of a C struct is not ours to choose.
        if !item.attrs.iter().any(is_repr_c) {
            self.structure(&item.ident, item.struct_token.span, item.fields.len());
        }
        visit::visit_item_struct(self, item);
    }
}

fn is_repr_c(attribute: &Attribute) -> bool {
    attribute.path().is_ident("repr")
        && attribute
            .meta
            .require_list()
            .is_ok_and(|list| list.tokens.to_string().split([',', ' ']).any(|word| word == "C"))
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{places, tree};
    use super::*;

    const PATH: &str = "crates/sim/src/a.rs";

    fn rules(text: &str) -> Vec<(usize, String)> {
        let findings = check(&tree(&[(PATH, text)]));
        findings.into_iter().map(|finding| (finding.line, finding.rule)).collect()
    }

    #[test]
    fn a_file_may_have_as_many_lines_as_the_limit() {
        assert_eq!(rules(&"//\n".repeat(FILE_LINES)), []);
        assert_eq!(rules(&"//\n".repeat(FILE_LINES + 1)).len(), 1);
        let python = tree(&[("crates/python/a.py", &"#\n".repeat(FILE_LINES + 1))]);
        assert_eq!(places(&check(&python)), [("crates/python/a.py", 0)]);
        let page = tree(&[("docs/a.md", &"\n".repeat(FILE_LINES + 1))]);
        assert_eq!(check(&page), []);
    }

    #[test]
    fn a_function_counts_from_its_signature_to_its_brace() {
        // The two lines of the signature and the brace belong to it, its docs do not.
        let function = |body: usize| format!("/// Docs.\nfn a()\n{{\n{}}}", "b();\n".repeat(body));
        assert_eq!(rules(&function(FUNCTION_LINES - 3)), []);
        let long = rules(&function(FUNCTION_LINES - 2));
        assert_eq!(long.len(), 1);
        assert_eq!(long[0].0, 2);
        assert!(long[0].1.contains("`a` has 61 lines"), "{}", long[0].1);
    }

    #[test]
    fn methods_defaults_of_traits_and_nested_functions_count_too() {
        let long = format!("fn a() {{\n{}}}", "b();\n".repeat(FUNCTION_LINES));
        for text in [
            format!("impl T {{ {long} }}"),
            format!("trait T {{ {long} }}"),
            format!("mod m {{ {long} }}"),
        ] {
            assert_eq!(rules(&text).len(), 1, "{text}");
        }
    }

    #[test]
    fn a_struct_may_have_as_many_fields_as_the_limit() {
        let named = |count: usize| -> String { (0..count).map(|i| format!("f{i}: u8,")).collect() };
        assert_eq!(rules(&format!("struct A {{ {} }}", named(STRUCT_FIELDS))), []);
        assert_eq!(rules(&format!("struct A {{ {} }}", named(STRUCT_FIELDS + 1))).len(), 1);
        assert_eq!(rules(&format!("struct A({});", "u8,".repeat(STRUCT_FIELDS + 1))).len(), 1);
        assert_eq!(rules(&format!("#[repr(C)] struct A {{ {} }}", named(STRUCT_FIELDS + 1))), []);
    }
}
