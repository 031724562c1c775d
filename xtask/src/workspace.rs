//! What the checks know of the workspace: its members, their edges and every text file.

use std::path::{Path, PathBuf};
use std::process::Command;

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package, Target};

use crate::error::Error;
use crate::exec;

/// The workspace, as `cargo metadata` tells it.
pub struct Workspace {
    pub root: PathBuf,
    pub members: Vec<Member>,
    /// Packages that are no members and do not come from the default registry.
    pub foreign: Vec<String>,
}

/// One package of the workspace.
#[derive(Clone, Debug)]
pub struct Member {
    pub name: String,
    /// Its folder, relative to the root.
    pub folder: String,
    pub dependencies: Vec<Dependency>,
    /// The root file of its library and of each of its programs, relative to the root.
    pub roots: Vec<String>,
    pub doc_tests: bool,
}

/// What a member's manifest names.
#[derive(Clone, Debug)]
pub struct Dependency {
    pub name: String,
    /// The name that the source code uses.
    pub ident: String,
    /// Only tests, examples and benches may use it.
    pub dev: bool,
    /// It is a folder of this repository.
    pub ours: bool,
}

/// A text file of the repository.
pub struct TextFile {
    /// Relative to the root, with `/`.
    pub path: String,
    pub text: String,
}

impl Workspace {
    /// Asks cargo about the workspace of the current folder.
    pub fn load() -> Result<Self, Error> {
        let metadata = MetadataCommand::new().exec()?;
        let root = metadata.workspace_root.clone().into_std_path_buf();
        let members = metadata.workspace_packages();
        Ok(Self {
            members: members.into_iter().map(|package| Member::new(package, &root)).collect(),
            foreign: foreign(&metadata),
            root,
        })
    }

    /// Every text file that git tracks or would track, `Cargo.lock` aside.
    pub fn text_files(&self) -> Result<Vec<TextFile>, Error> {
        let mut files = Vec::new();
        for path in self.git_files()?.split('\0').filter(|path| !path.is_empty()) {
            let full = self.root.join(path);
            // Deleted or a link to a folder: git still lists it.
            if path == "Cargo.lock" || !full.is_file() {
                continue;
            }
            let bytes =
                std::fs::read(&full).map_err(|source| Error::Read { path: full, source })?;
            if let Some(text) = String::from_utf8(bytes).ok().filter(|text| !text.contains('\0')) {
                files.push(TextFile { path: path.to_owned(), text });
            }
        }
        Ok(files)
    }

    /// Whether git tracks a lock file.
    pub fn has_lock_file(&self) -> bool {
        let mut command = Command::new("git");
        command.args(["ls-files", "--error-unmatch", "Cargo.lock"]).current_dir(&self.root);
        exec::succeeds(command)
    }

    fn git_files(&self) -> Result<String, Error> {
        let words = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
        let output = Command::new("git").args(words).current_dir(&self.root).output();
        let output = output.map_err(|source| Error::Spawn { program: "git".to_owned(), source })?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => Err(Error::Exit {
                command: "git ls-files".to_owned(),
                status: output.status.to_string(),
            }),
        }
    }
}

impl Member {
    fn new(package: &Package, root: &Path) -> Self {
        let dependencies = package.dependencies.iter().map(|dependency| Dependency {
            name: dependency.name.clone(),
            ident: dependency.rename.as_ref().unwrap_or(&dependency.name).replace('-', "_"),
            dev: dependency.kind == DependencyKind::Development,
            ours: dependency.path.is_some(),
        });
        let compiled =
            || package.targets.iter().filter(|target| is_library(target) || target.is_bin());
        Self {
            name: package.name.to_string(),
            folder: relative(
                package.manifest_path.parent().unwrap_or(&package.manifest_path),
                root,
            ),
            dependencies: dependencies.collect(),
            roots: compiled().map(|target| relative(&target.src_path, root)).collect(),
            doc_tests: package.targets.iter().any(|target| is_library(target) && target.doctest),
        }
    }

    /// True if this file of the repository belongs to the package.
    pub fn owns(&self, path: &str) -> bool {
        path.strip_prefix(&self.folder).is_some_and(|rest| rest.starts_with('/'))
    }
}

fn is_library(target: &Target) -> bool {
    target.is_lib() || target.is_rlib() || target.is_cdylib() || target.is_proc_macro()
}

fn relative(path: impl AsRef<Path>, root: &Path) -> String {
    let path = path.as_ref();
    path.strip_prefix(root).unwrap_or(path).to_string_lossy().replace('\\', "/")
}

fn foreign(metadata: &Metadata) -> Vec<String> {
    let is_ours = |package: &Package| metadata.workspace_members.contains(&package.id);
    let from_registry =
        |package: &Package| package.source.as_ref().is_some_and(|source| source.is_crates_io());
    let foreign = metadata.packages.iter().filter(|p| !is_ours(p) && !from_registry(p));
    foreign.map(|package| package.name.to_string()).collect()
}
