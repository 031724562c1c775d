//! The wheel: built into a virtual environment of its own under `target`, and tested there.

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;

use crate::error::Error;
use crate::exec::{self, Output};
use crate::tests_stage::Tally;
use crate::workspace::Workspace;

/// The crate that becomes the wheel.
const CRATE: &str = "crates/python";

/// Where a wheel goes.
#[derive(Args)]
pub struct WheelArgs {
    /// The folder
    #[arg(long, value_name = "DIR", default_value = "target/wheels")]
    out: PathBuf,
}

/// Builds the wheel as the tests need it, installs it where nothing else is and runs its tests.
pub fn test(workspace: &Workspace) -> Result<Tally, Error> {
    let venv = Venv::prepare(workspace)?;
    let out = workspace.root.join("target/python/wheels");
    venv.build(&out, &[])?;
    let mut install = venv.program("pip");
    install.args(["install", "--quiet", "--force-reinstall", "--no-deps", "--no-index"]);
    install.arg("--find-links").arg(&out).arg("kvferry");
    exec::run(install)?;
    let mut tally = Tally::default();
    let mut pytest = venv.program("pytest");
    pytest.args(["--quiet", "--color=no"]).current_dir(workspace.root.join(CRATE));
    let outcome = exec::watch(pytest, Output::Stdout, |line| tally.add_pytest(line));
    tally.judge(outcome)
}

/// Builds the wheel that is given to others.
pub fn wheel(args: &WheelArgs, workspace: &Workspace) -> Result<(), Error> {
    let venv = Venv::prepare(workspace)?;
    venv.build(&workspace.root.join(&args.out), &["--release"])
}

/// A virtual environment with the tools that the wheel is built and tested with.
struct Venv {
    bin: PathBuf,
    root: PathBuf,
}

impl Venv {
    fn prepare(workspace: &Workspace) -> Result<Self, Error> {
        let folder = workspace.root.join("target/python/venv");
        let venv = Self { bin: folder.join("bin"), root: workspace.root.clone() };
        if !venv.bin.join("pip").is_file() {
            let mut make = Command::new("python3");
            make.args(["-m", "venv"]).arg(&folder);
            exec::run(make)?;
        }
        let mut install = venv.program("pip");
        install.args(["install", "--quiet", "--disable-pip-version-check", "--requirement"]);
        install.arg(Path::new(CRATE).join("requirements-dev.txt"));
        exec::run(install)?;
        Ok(venv)
    }

    fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.bin.join(name));
        command.current_dir(&self.root);
        command
    }

    fn build(&self, out: &Path, more: &[&str]) -> Result<(), Error> {
        let mut build = self.program("maturin");
        build.args(["build", "--quiet", "--locked", "--manifest-path"]);
        build.arg(Path::new(CRATE).join("Cargo.toml"));
        build.arg("--out").arg(out).args(more);
        exec::run(build)
    }
}
