//! Where and when it was measured.

use std::fs;
use std::process::Command;

use super::cases::Peer;
use crate::error::Error;
use crate::workspace::Workspace;

/// The machine, what ran on it, and the day.
pub struct Host {
    pub machine: String,
    pub versions: String,
    pub date: String,
}

impl Host {
    /// `load` was that of the machine before and after.
    pub fn look(
        workspace: &Workspace,
        versions: &[(Peer, String)],
        load: [String; 2],
    ) -> Result<Self, Error> {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let processor = processor(&read("/proc/cpuinfo"));
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        let memory = gibibytes(&read("/proc/meminfo"));
        let kernel = kernel(&read("/proc/sys/kernel/osrelease"));
        let [before, after] = load;
        let machine = format!(
            "{cores} cores of {processor}, {memory} GiB, Linux {kernel}; load average {before} \
             before, {after} after"
        );
        let ours = workspace.root.join("target/release/kvferry");
        let ours = output(Command::new(ours).arg("--version"))?;
        let commit = ["describe", "--always", "--dirty", "--exclude=*"];
        let commit = output(Command::new("git").args(commit).current_dir(&workspace.root))?;
        let peers = versions.iter().map(|(peer, version)| format!(", {peer} {version}"));
        let versions = format!("{ours} (release build of {commit}){}", peers.collect::<String>());
        let date = output(Command::new("date").arg("+%-d %B %Y").env("LC_ALL", "C"))?;
        Ok(Self { machine, versions, date })
    }
}

/// Processes that wanted to run, on an average of the last minute.
pub fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or_default().to_owned()
}

/// What the processor calls itself, or its architecture.
fn processor(cpuinfo: &str) -> String {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"));
    let name = line.and_then(|line| line.split_once(':')).map(|(_, name)| name.trim());
    name.unwrap_or(std::env::consts::ARCH).to_owned()
}

fn gibibytes(meminfo: &str) -> u64 {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kibibytes = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse().ok());
    kibibytes.unwrap_or(0_u64) >> 20
}

/// Without what its distributor adds.
fn kernel(release: &str) -> String {
    let numbers: Vec<&str> = release.trim().split(['.', '-']).take(2).collect();
    numbers.join(".")
}

fn output(command: &mut Command) -> Result<String, Error> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output();
    let output = output.map_err(|source| Error::Spawn { program: program.clone(), source })?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        false => Err(Error::Exit { command: program, status: output.status.to_string() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_is_read_off_its_files() {
        let cpuinfo = "processor\t: 0\nmodel name\t: Some Chip 3000\nmodel name\t: Other\n";
        assert_eq!(processor(cpuinfo), "Some Chip 3000");
        assert_eq!(processor(""), std::env::consts::ARCH);
        assert_eq!(gibibytes("MemTotal:       24117248 kB\nMemFree: 1 kB\n"), 23);
        assert_eq!(gibibytes(""), 0);
        assert_eq!(kernel("6.18.44-some-v6\n"), "6.18");
    }
}
