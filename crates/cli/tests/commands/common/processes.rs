//! Other processes, found and ended by their ids.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::PATIENCE;

/// Asks again until there is an answer.
pub fn wait<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// The prefill worker that this process has started.
pub fn worker_of(parent: u32) -> u32 {
    wait("a prefill worker", || {
        let ids = fs::read_dir("/proc")
            .unwrap()
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
        ids.into_iter().find(|&id| parent_of(id) == Some(parent) && is_worker(id))
    })
}

/// The fourth field of its `stat`, of which the second may contain anything but ends with the
/// last bracket.
fn parent_of(id: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// Whether it is a prefill worker that runs; one that has ended has no arguments any more.
pub fn is_worker(id: u32) -> bool {
    let arguments = fs::read_to_string(format!("/proc/{id}/cmdline")).unwrap_or_default();
    arguments.split('\0').nth(1) == Some("prefill-worker")
}

pub fn kill(id: u32) {
    let id = Pid::from_raw(i32::try_from(id).unwrap()).unwrap();
    kill_process(id, Signal::KILL).unwrap();
}
