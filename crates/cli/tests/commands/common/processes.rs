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
    rank_of(parent, "prefill", 0)
}

/// The worker of a rank that this process has started.
pub fn rank_of(parent: u32, side: &str, rank: u32) -> u32 {
    wait("a worker", || {
        let is_rank = |arguments: &[String]| {
            let given = arguments.iter().skip_while(|argument| *argument != "--rank").nth(1);
            arguments.get(1).is_some_and(|role| *role == format!("{side}-worker"))
                && given.is_some_and(|given| *given == rank.to_string())
        };
        ids().find(|&id| parent_of(id) == Some(parent) && is_rank(&arguments(id)))
    })
}

/// The process that `parent` has started with this first word.
pub fn child_of(parent: u32, word: &str) -> Option<u32> {
    let is_it = |id: u32| arguments(id).get(1).is_some_and(|first| first == word);
    ids().find(|&id| parent_of(id) == Some(parent) && is_it(id))
}

/// Of all processes.
fn ids() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").unwrap();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// The fourth field of its `stat`, of which the second may contain anything but ends with the
/// last bracket.
fn parent_of(id: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// Whether it is a worker that runs; one that has ended has no arguments any more.
pub fn is_worker(id: u32) -> bool {
    arguments(id).get(1).is_some_and(|role| role.ends_with("-worker"))
}

fn arguments(id: u32) -> Vec<String> {
    let text = fs::read_to_string(format!("/proc/{id}/cmdline")).unwrap_or_default();
    text.split('\0').map(str::to_owned).collect()
}

pub fn kill(id: u32) {
    signal(id, Signal::KILL);
}

/// Lets a process do nothing any more.
pub fn stop(id: u32) {
    signal(id, Signal::STOP);
}

fn signal(id: u32, signal: Signal) {
    let id = Pid::from_raw(i32::try_from(id).unwrap()).unwrap();
    kill_process(id, signal).unwrap();
}
