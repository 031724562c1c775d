//! A child as its test sees it.

use std::collections::BTreeSet;
use std::fs::DirEntry;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::Sender;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::spec::{CHILD, Spec};

/// What a child says, or `None` when it is no more.
pub struct Event {
    pub life: u64,
    pub said: Option<Value>,
}

/// A child, killed when it is dropped. Must be started by a thread that outlives it: the system
/// kills a child with the thread that made it.
pub struct Process {
    pub life: u64,
    child: Child,
    stdin: ChildStdin,
}

impl Process {
    pub fn start(spec: &Spec, life: u64, events: &Sender<Event>) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["child::child", "--exact", "--nocapture", "--test-threads=1"]);
        command.env(CHILD, spec.to_json().to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let events = events.clone();
        std::thread::spawn(move || {
            let lines = BufReader::new(stdout).lines().map_while(Result::ok);
            // The runner of tests says things as well.
            for line in lines.filter(|line| line.starts_with('{')) {
                // The last line of a child that was killed may be a part of one.
                let Ok(said) = serde_json::from_str(&line) else { continue };
                let _ = events.send(Event { life, said: Some(said) });
            }
            let _ = events.send(Event { life, said: None });
        });
        Self { life, child, stdin }
    }

    /// A child that is gone hears nothing; its end is told by an event.
    pub fn tell(&mut self, order: &Value) {
        let _ = writeln!(self.stdin, "{order}");
    }

    pub fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.child.id()).unwrap();
        kill_process(Pid::from_raw(id).unwrap(), signal).unwrap();
    }

    pub fn kill(mut self) {
        self.end();
    }

    /// `kill -9`, also of one that is stopped.
    fn end(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Open file descriptors.
    pub fn descriptors(&self) -> usize {
        std::fs::read_dir(self.proc("fd")).unwrap().count()
    }

    /// Memory in KiB, as the system counts it.
    pub fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(self.proc("status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// The ports at which it listens.
    pub fn ports(&self) -> BTreeSet<u16> {
        let open = std::fs::read_dir(self.proc("fd")).unwrap();
        let open = open.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
        let open: Vec<String> = open.map(|link| link.to_string_lossy().into_owned()).collect();
        // The first thread need not live in the namespace of those that listen.
        let threads = std::fs::read_dir(self.proc("task")).unwrap();
        let table = |thread: std::io::Result<DirEntry>| {
            std::fs::read_to_string(thread.ok()?.path().join("net/tcp")).ok()
        };
        let tables: Vec<String> = threads.filter_map(table).collect();
        let lines = tables.iter().flat_map(|table| table.lines());
        lines.filter_map(|line| listening(line, &open)).collect()
    }

    fn proc(&self, entry: &str) -> String {
        format!("/proc/{}/{entry}", self.child.id())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The port of a line of the system's table of sockets, where it listens and is one of these.
fn listening(line: &str, open: &[String]) -> Option<u16> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    // 0A is the state that listens, the tenth field the inode.
    let is_open = open.contains(&format!("socket:[{}]", fields.get(9)?));
    let (_, port) = fields.get(1)?.split_once(':')?;
    (*fields.get(3)? == "0A" && is_open).then(|| u16::from_str_radix(port, 16).unwrap())
}
