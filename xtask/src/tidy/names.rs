//! Every path that a Rust file names, wherever it stands: in code, in a `use` tree, in a macro's
//! arguments. Comments, docs and literals name nothing.

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};

/// A path, with `use a::{b, c}` spelled out as `a::b` and `a::c`.
#[derive(Debug, PartialEq, Eq)]
pub struct Name {
    pub segments: Vec<String>,
    pub line: usize,
    /// It is called as a macro.
    pub is_macro: bool,
    /// It stands in code that is compiled for tests alone.
    pub in_test: bool,
}

impl Name {
    /// True if these segments follow each other in this path; a glob over their parent counts.
    pub fn has(&self, run: &[&str]) -> bool {
        let globbed = run.split_last().map(|(_, parent)| [parent, &["*"]].concat());
        let found = |run: &[&str]| self.segments.windows(run.len()).any(|window| window == run);
        found(run) || (run.len() > 1 && globbed.is_some_and(|run| found(&run)))
    }

    /// The path as it would be written.
    pub fn path(&self) -> String {
        self.segments.join("::")
    }
}

/// Words behind which a path may begin with `::`.
const BEFORE_A_PATH: [&str; 9] = ["use", "as", "dyn", "impl", "for", "in", "mut", "return", "else"];

/// All names in these tokens, in their order.
pub fn names(tokens: TokenStream) -> Vec<Name> {
    let mut scan = Scan { found: Vec::new(), in_test: false };
    scan.walk(&trees(tokens));
    scan.found
}

struct Scan {
    found: Vec<Name>,
    in_test: bool,
}

impl Scan {
    fn walk(&mut self, trees: &[TokenTree]) {
        let mut at = 0;
        while at < trees.len() {
            if let Some(end) = test_item_end(trees, at) {
                let outer = std::mem::replace(&mut self.in_test, true);
                // Past the `#`, so that the attribute is not found again.
                self.walk(&trees[at + 1..end]);
                self.in_test = outer;
                at = end;
                continue;
            }
            at = match &trees[at] {
                TokenTree::Ident(_) => self.path(trees, at, &[]),
                TokenTree::Group(group) => {
                    self.walk(&self::trees(group.stream()));
                    at + 1
                }
                _ => at + 1,
            };
        }
    }

    /// Takes the path that starts at an identifier and returns where it ends.
    fn path(&mut self, trees: &[TokenTree], start: usize, prefix: &[String]) -> usize {
        let mut segments = prefix.to_vec();
        segments.push(trees[start].to_string());
        let mut at = start + 1;
        let is_keyword = BEFORE_A_PATH.contains(&segments[segments.len() - 1].as_str());
        while !is_keyword && is_path_separator(trees, at) {
            match trees.get(at + 2) {
                Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
                    self.use_tree(&self::trees(group.stream()), &segments);
                    return at + 3;
                }
                Some(TokenTree::Ident(segment)) => segments.push(segment.to_string()),
                Some(star) if is_punct(star, '*') => segments.push("*".to_owned()),
                _ => break,
            }
            at += 3;
        }
        self.push(segments, trees, start, at);
        at
    }

    /// The braces of a `use` tree: every branch continues the prefix.
    fn use_tree(&mut self, trees: &[TokenTree], prefix: &[String]) {
        let mut at = 0;
        while at < trees.len() {
            at = match &trees[at] {
                // The new name of an import names nothing.
                TokenTree::Ident(word) if word == "as" => at + 2,
                TokenTree::Ident(word) if word == "self" => {
                    self.push(prefix.to_vec(), trees, at, at + 1);
                    at + 1
                }
                TokenTree::Ident(_) => self.path(trees, at, prefix),
                star if is_punct(star, '*') => {
                    let segments = [prefix, &["*".to_owned()]].concat();
                    self.push(segments, trees, at, at + 1);
                    at + 1
                }
                _ => at + 1,
            };
        }
    }

    fn push(&mut self, segments: Vec<String>, trees: &[TokenTree], start: usize, end: usize) {
        let line = trees[start].span().start().line;
        // `a != b` is no macro.
        let is_macro = trees.get(end).is_some_and(|tree| {
            matches!(tree, TokenTree::Punct(p) if p.as_char() == '!' && p.spacing() == Spacing::Alone)
        });
        self.found.push(Name { segments, line, is_macro, in_test: self.in_test });
    }
}

/// If an attribute `#[cfg(test)]` starts here, where the item under it ends: behind its braces or
/// its semicolon. (A field or variant under it reaches further, which only excuses more.)
fn test_item_end(trees: &[TokenTree], at: usize) -> Option<usize> {
    if !is_punct(&trees[at], '#') {
        return None;
    }
    let inner = trees.get(at + 1).is_some_and(|tree| is_punct(tree, '!'));
    let TokenTree::Group(attribute) = trees.get(at + 1 + usize::from(inner))? else { return None };
    if !is_cfg_test(&attribute.stream()) {
        return None;
    }
    let ends = |i: usize| match &trees[i] {
        TokenTree::Group(group) => {
            group.delimiter() == Delimiter::Brace && !is_path_separator(trees, i - 2)
        }
        other => is_punct(other, ';'),
    };
    let end = (at + 2..trees.len()).find(|&i| !inner && ends(i));
    Some(end.map_or(trees.len(), |end| end + 1))
}

fn is_cfg_test(attribute: &TokenStream) -> bool {
    let text = attribute.to_string();
    let condition = text.strip_prefix("cfg").map(|rest| rest.trim_matches([' ', '(', ')']));
    condition.is_some_and(is_test_only)
}

/// True for the conditions `test` and `all(test, …)`.
pub fn is_test_only(condition: &str) -> bool {
    let condition: String = condition.split_whitespace().collect();
    condition == "test" || condition.starts_with("all(test,")
}

fn is_path_separator(trees: &[TokenTree], at: usize) -> bool {
    let colon = |at| trees.get(at).is_some_and(|tree| is_punct(tree, ':'));
    let joint = matches!(trees.get(at), Some(TokenTree::Punct(p)) if p.spacing() == Spacing::Joint);
    joint && colon(at) && colon(at + 1)
}

fn is_punct(tree: &TokenTree, wanted: char) -> bool {
    matches!(tree, TokenTree::Punct(punct) if punct.as_char() == wanted)
}

fn trees(tokens: TokenStream) -> Vec<TokenTree> {
    tokens.into_iter().collect()
}

#[cfg(test)]
mod tests;
