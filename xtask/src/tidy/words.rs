//! Words that must not stand in any file of the repository.

use super::{Finding, Tree};
use crate::workspace::TextFile;

const UNFINISHED: &str = "finish it, or leave it out and say so in the docs";
const HIDDEN: &str = "mend what the compiler says, or remove the code";
const OF_ONE_MACHINE: &str = "write a path that exists on every machine";

/// How a word has to stand to be the word.
#[derive(Clone, Copy)]
enum As {
    /// Anywhere.
    Text,
    /// Not as a part of a longer word.
    Word,
    /// At the start of a path, not inside one.
    Root,
}

/// Each word is cut in two, so that the table does not find itself.
const WORDS: [(&str, As, &str); 11] = [
    (concat!("/ro", "ot/"), As::Root, OF_ONE_MACHINE),
    (concat!("/wo", "rk/"), As::Root, OF_ONE_MACHINE),
    (concat!("TO", "DO"), As::Word, UNFINISHED),
    (concat!("FIX", "ME"), As::Word, UNFINISHED),
    (concat!("XX", "X"), As::Word, UNFINISHED),
    (concat!("to", "do!("), As::Text, UNFINISHED),
    (concat!("unimple", "mented!("), As::Text, UNFINISHED),
    (concat!("#[ig", "nore"), As::Text, "make it pass, or remove the test"),
    (concat!("allow(dead", "_code"), As::Text, HIDDEN),
    (concat!("expect(dead", "_code"), As::Text, HIDDEN),
    (concat!("allow(unu", "sed"), As::Text, HIDDEN),
];

/// Followed by a user's name and a slash.
const HOMES: [&str; 2] = [concat!("/ho", "me/"), concat!("/Us", "ers/")];

pub fn check(tree: &Tree) -> Vec<Finding> {
    tree.files.iter().flat_map(file).collect()
}

fn file(file: &TextFile) -> impl Iterator<Item = Finding> {
    file.text.lines().zip(1..).flat_map(move |(text, line)| {
        let words = WORDS.iter().filter(|(word, stands, _)| contains(text, word, *stands));
        let words = words.map(|(word, _, mend)| (*word, *mend));
        let homes = HOMES.iter().filter(|home| names_a_home(text, home));
        let homes = homes.map(|home| (*home, OF_ONE_MACHINE));
        words.chain(homes).map(move |(word, mend)| {
            Finding::new(&file.path, line, format!("`{word}` stands here"), mend)
        })
    })
}

fn contains(text: &str, word: &str, stands: As) -> bool {
    text.match_indices(word).any(|(at, _)| {
        let (before, after) = (&text[..at], &text[at + word.len()..]);
        match stands {
            As::Text => true,
            As::Word => !before.ends_with(is_word) && !after.starts_with(is_word),
            As::Root => starts_a_path(before),
        }
    })
}

fn names_a_home(text: &str, home: &str) -> bool {
    text.match_indices(home).any(|(at, _)| {
        let after = &text[at + home.len()..];
        let user = after.trim_start_matches(|c| is_word(c) || "-.<>".contains(c));
        starts_a_path(&text[..at]) && user.len() < after.len() && user.starts_with('/')
    })
}

/// True if a slash behind this text begins an absolute path, and does not go on in a relative one,
/// a URL, or behind a variable, a placeholder or a wildcard.
fn starts_a_path(before: &str) -> bool {
    !before.ends_with(|c| is_word(c) || "-.~}>)*".contains(c))
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{places, tree};
    use super::*;

    fn broken(text: &str) -> usize {
        check(&tree(&[("docs/a.md", text)])).len()
    }

    #[test]
    fn every_word_is_found_in_every_kind_of_file() {
        for (word, _, _) in WORDS {
            let text = format!("a\nb {word} c");
            for path in ["README.md", ".ci/run", "models/a.json"] {
                assert_eq!(places(&check(&tree(&[(path, &text)]))), [(path, 2)], "{word}");
            }
        }
    }

    #[test]
    fn homes_are_found_with_any_user() {
        for home in HOMES {
            assert_eq!(broken(&format!("see \"{home}anna/b\"")), 1);
            assert_eq!(broken(&format!("{home}<name>/b")), 1);
            assert_eq!(broken(&format!("a system with {home} on a disk of its own")), 0);
            assert_eq!(broken(&format!("example.org{home}anna/b")), 0);
        }
    }

    #[test]
    fn a_word_inside_another_is_another_word() {
        for text in [
            concat!("mktemp a.XX", "XXXX"),
            concat!("a_TO", "DO_b"),
            concat!("expect(clippy::dead", "_code)"),
            concat!("crates/wo", "rk/a"),
            concat!("$HOME/wo", "rk/a and ${A}/wo", "rk/"),
            concat!("https://example.org/ro", "ot/a"),
        ] {
            assert_eq!(broken(text), 0, "{text}");
        }
    }
}
