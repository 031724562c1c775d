//! The Python environment of the other engines, outside the tree.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::cases::Peer;
use crate::error::Error;
use crate::exec;
use crate::workspace::Workspace;

/// Where the program for an engine is.
const PROGRAM: &str = "benches/peers";

/// Below the user's cache.
const FOLDER: &str = "kvferry/peers";

/// Lies in an environment that was made here. Into any other nothing is installed.
const MARK: &str = "made-by-kvferry";

/// Mooncake's wheel wants it from the system, NIXL's brings its own.
const IBVERBS: &str = " (on Debian: libibverbs1)";

/// How the engines' settings begin. Those of whoever measures are not those of the page.
const SETTINGS: [&str; 3] = ["NIXL_", "UCX_", "MC_"];

/// A virtual environment.
pub struct Venv {
    folder: PathBuf,
}

impl Venv {
    /// The chosen one, or that of the user's cache; made when it is missing.
    pub fn prepare(chosen: Option<&Path>) -> Result<Self, Error> {
        let folder = match chosen {
            Some(folder) => std::path::absolute(folder)
                .map_err(|source| Error::Read { path: folder.to_owned(), source })?,
            None => cache().join(FOLDER),
        };
        let venv = Self { folder };
        anstream::println!("the engines' environment: {}", venv.folder.display());
        if !venv.python().is_file() {
            let mut make = Command::new("python3");
            make.args(["-m", "venv"]).arg(&venv.folder);
            exec::run(make)?;
            let mark = venv.folder.join(MARK);
            fs::write(&mark, "").map_err(|source| Error::Write { path: mark, source })?;
        }
        Ok(venv)
    }

    /// The program that measures an engine, before it is told what.
    pub fn peer(&self, workspace: &Workspace, peer: Peer) -> Command {
        let mut command = Command::new(self.python());
        command.arg(workspace.root.join(PROGRAM)).arg(peer.word());
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        let is_setting = |name: &str| SETTINGS.iter().any(|prefix| name.starts_with(prefix));
        for (name, _) in env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_setting)) {
            command.env_remove(name);
        }
        for log in ["NIXL_LOG_LEVEL", "MC_LOG_LEVEL"] {
            command.env(log, "ERROR");
        }
        command
    }

    /// The version that will be measured, installed where it may be; or why there is none.
    pub fn version(
        &self,
        workspace: &Workspace,
        peer: Peer,
    ) -> Result<Result<String, String>, Error> {
        let first = self.ask(workspace, peer)?;
        if first.is_ok() || !self.folder.join(MARK).is_file() {
            return Ok(first);
        }
        let mut pip = Command::new(self.python());
        pip.args(["-m", "pip", "install", "--no-input", "--quiet", "--disable-pip-version-check"]);
        pip.arg("--no-deps").args(peer.packages());
        match exec::run(pip) {
            Ok(()) => self.ask(workspace, peer),
            Err(why) => Ok(Err(format!("it cannot be installed: {why}"))),
        }
    }

    /// Loads the engine in a process of its own.
    fn ask(&self, workspace: &Workspace, peer: Peer) -> Result<Result<String, String>, Error> {
        let mut command = self.peer(workspace, peer);
        command.arg("--version");
        let spawn = |source| Error::Spawn { program: "python".to_owned(), source };
        let output = command.output().map_err(spawn)?;
        let said = String::from_utf8_lossy(&output.stdout);
        let version = said.lines().find_map(version);
        Ok(version.ok_or_else(|| reason(&String::from_utf8_lossy(&output.stderr))))
    }

    fn python(&self) -> PathBuf {
        self.folder.join("bin/python")
    }
}

/// Where a user's programs keep what can be made again.
fn cache() -> PathBuf {
    let home = || env::home_dir().map(|home| home.join(".cache"));
    let set = env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    set.or_else(home).unwrap_or_else(env::temp_dir)
}

fn version(line: &str) -> Option<String> {
    let line: serde_json::Value = serde_json::from_str(line).ok()?;
    Some(line.get("version")?.as_str()?.to_owned())
}

/// What Python says last is what it stopped for.
fn reason(errors: &str) -> String {
    let mut lines = errors.lines().map(str::trim).filter(|line| !line.is_empty());
    let last = lines.next_back().unwrap_or("it cannot be loaded").trim_end_matches('.');
    let hint = if last.contains("libibverbs") { IBVERBS } else { "" };
    format!("{last}{hint}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_said_in_json() {
        assert_eq!(version(r#"{"version": "1.5.1"}"#), Some("1.5.1".to_owned()));
        assert_eq!(version("version 1.5.1"), None);
    }

    #[test]
    fn the_reason_is_the_last_line() {
        let errors = "Traceback:\n  File \"a\"\nModuleNotFoundError: No module named 'a'\n\n";
        assert_eq!(reason(errors), "ModuleNotFoundError: No module named 'a'");
        assert_eq!(reason(""), "it cannot be loaded");
        assert!(reason("libibverbs.so.1: cannot open").ends_with("(on Debian: libibverbs1)"));
    }
}
