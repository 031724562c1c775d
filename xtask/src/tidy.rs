//! The rules of the house that no compiler knows. One module each; every finding names the file,
//! the rule and what to do.

mod dag;
mod dependencies;
mod env_vars;
mod limits;
mod manifests;
mod names;
mod pure;
mod rust_file;
mod sim_truth;
mod sources;
mod unsafe_code;
mod words;

use std::fmt;

use crate::error::Error;
use crate::workspace::{Member, TextFile, Workspace};
use rust_file::RustFile;

/// All that the checks look at.
#[derive(Default)]
struct Tree {
    files: Vec<TextFile>,
    rust: Vec<RustFile>,
    members: Vec<Member>,
    foreign: Vec<String>,
}

/// One place that breaks a rule.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    path: String,
    /// Counted from one; zero where the whole file is meant.
    line: usize,
    /// The rule that is broken, and how.
    rule: String,
    /// What to do about it.
    mend: String,
}

type Check = fn(&Tree) -> Vec<Finding>;

const CHECKS: [Check; 10] = [
    dag::check,
    unsafe_code::check,
    limits::check,
    pure::check,
    env_vars::check,
    sim_truth::check,
    words::check,
    manifests::check,
    dependencies::check,
    sources::check,
];

/// Runs every check and prints what each found.
pub fn run(workspace: &Workspace) -> Result<(), Error> {
    let (tree, mut findings) = Tree::load(workspace)?;
    findings.extend(CHECKS.iter().flat_map(|check| check(&tree)));
    for finding in &findings {
        anstream::println!("{finding}");
    }
    anstream::println!("{} files, {} checks", tree.files.len(), CHECKS.len());
    match findings.len() {
        0 => Ok(()),
        count => Err(Error::Tidy(count)),
    }
}

impl Tree {
    /// Reads the tree; a Rust file that does not parse is the first finding.
    fn load(workspace: &Workspace) -> Result<(Self, Vec<Finding>), Error> {
        let files = workspace.text_files()?;
        let (members, foreign) = (workspace.members.clone(), workspace.foreign.clone());
        Ok(Self::new(files, members, foreign))
    }

    fn new(
        files: Vec<TextFile>,
        members: Vec<Member>,
        foreign: Vec<String>,
    ) -> (Self, Vec<Finding>) {
        let (mut rust, mut findings) = (Vec::new(), Vec::new());
        for file in files.iter().filter(|file| file.path.ends_with(".rs")) {
            match RustFile::parse(&file.path, &file.text) {
                Ok(parsed) => rust.push(parsed),
                Err(error) => findings.push(Finding {
                    path: file.path.clone(),
                    line: error.span().start().line,
                    rule: format!("does not parse: {error}"),
                    mend: "make it compile first".to_owned(),
                }),
            }
        }
        rust_file::mark_test_files(&mut rust);
        (Self { files, rust, members, foreign }, findings)
    }

    fn text(&self, path: &str) -> Option<&str> {
        self.files.iter().find(|file| file.path == path).map(|file| file.text.as_str())
    }

    /// The Rust files of the package of this name.
    fn rust_of<'a>(&'a self, package: &str) -> impl Iterator<Item = &'a RustFile> {
        let member = self.members.iter().find(|member| member.name == package);
        self.rust.iter().filter(move |file| member.is_some_and(|member| member.owns(&file.path)))
    }
}

impl Finding {
    fn new(path: &str, line: usize, rule: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, rule: rule.into(), mend: mend.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        write!(f, ": {} — {}", self.rule, self.mend)
    }
}

/// The line of a manifest that sets this key, or a key below it; zero if none does.
fn line_of_key(manifest: &str, key: &str) -> usize {
    let sets = |line: &str| {
        line.trim_start()
            .strip_prefix(key)
            .is_some_and(|rest| rest.trim_start().starts_with(['=', '.']))
    };
    manifest.lines().position(sets).map_or(0, |at| at + 1)
}

/// Small trees for the tests of the checks.
#[cfg(test)]
mod fixture {
    use super::*;
    use crate::workspace::Dependency;

    /// A package whose manifest names `uses`, all of them members of the workspace.
    pub fn member(folder: &str, uses: &[&str]) -> Member {
        let name = folder.rsplit('/').next().unwrap();
        Member {
            name: name.to_owned(),
            folder: folder.to_owned(),
            dependencies: uses.iter().map(|name| dependency(name, true)).collect(),
            roots: vec![format!("{folder}/src/lib.rs")],
            doc_tests: true,
        }
    }

    pub fn dependency(name: &str, ours: bool) -> Dependency {
        Dependency { name: name.to_owned(), ident: name.replace('-', "_"), dev: false, ours }
    }

    /// A tree of these files, each of which parses, and one member for every crate folder.
    pub fn tree(files: &[(&str, &str)]) -> Tree {
        let mut members: Vec<Member> = Vec::new();
        for (path, _) in files {
            let folder = path.split("/src/").next().unwrap();
            if path.contains("/src/") && !members.iter().any(|member| member.folder == folder) {
                members.push(member(folder, &[]));
            }
        }
        let files = files
            .iter()
            .map(|(path, text)| TextFile { path: path.to_string(), text: text.to_string() });
        let (tree, broken) = Tree::new(files.collect(), members, Vec::new());
        assert_eq!(broken, []);
        tree
    }

    /// Path and line of each finding.
    pub fn places(findings: &[Finding]) -> Vec<(&str, usize)> {
        findings.iter().map(|finding| (finding.path.as_str(), finding.line)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_reads_as_file_line_rule_and_mend() {
        let finding = Finding::new("a.rs", 12, "too long", "cut it");
        assert_eq!(finding.to_string(), "a.rs:12: too long — cut it");
        let whole = Finding { line: 0, ..finding };
        assert_eq!(whole.to_string(), "a.rs: too long — cut it");
    }

    #[test]
    fn a_key_is_found_by_its_whole_name() {
        let manifest =
            "name = \"rand\"\ngetrandom.workspace = true\nrand_chacha = \"1\"\nrand = \"1\"\n";
        assert_eq!(line_of_key(manifest, "rand"), 4);
        assert_eq!(line_of_key(manifest, "getrandom"), 2);
        assert_eq!(line_of_key(manifest, "chacha"), 0);
    }

    #[test]
    fn a_file_that_does_not_parse_is_a_finding() {
        let file = TextFile { path: "a.rs".to_owned(), text: "fn a() {}\nfn (".to_owned() };
        let (tree, findings) = Tree::new(vec![file], Vec::new(), Vec::new());
        assert!(tree.rust.is_empty());
        assert_eq!(fixture::places(&findings), [("a.rs", 2)]);
    }
}
