//! The other one of two processes: this test program, started once more.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use crate::common::*;
use rustix::process::{
    DumpableBehavior, Pid, Signal, WaitOptions, kill_process, set_dumpable_behavior, waitpid,
};
use strided::{BlockCopy, Region};
use transport::shm::{ShmConfig, ShmEndpoint, probe};
use transport::{Card, Endpoint, Transfer, TransferId};

/// What the other process is to be.
const PART: &str = "KVFERRY_TEST_SHM";

pub const BLOCK: u64 = 2 << 20;
pub const BLOCKS: u32 = 8;

/// A process that is killed when it is dropped.
pub struct Other {
    child: Child,
    /// It goes when it hears the end of this.
    _stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Other {
    pub fn start(part: &str) -> Self {
        Self::start_as(part, None)
    }

    pub fn start_as(part: &str, user: Option<u32>) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["shm_other::other_process", "--exact", "--nocapture"]);
        command.env(PART, part).stdin(Stdio::piped()).stdout(Stdio::piped());
        if let Some(user) = user {
            command.uid(user);
        }
        let mut child = command.spawn().unwrap();
        let (_stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { child, _stdin, stdout: BufReader::new(stdout) }
    }

    /// A source with [`BLOCKS`] granted blocks, and its card.
    pub fn source(memory: &str) -> (Self, Card) {
        Self::source_as(memory, None)
    }

    pub fn source_as(memory: &str, user: Option<u32>) -> (Self, Card) {
        Self::serving(&format!("source {memory}"), user)
    }

    /// One whose memory no other process may read, unless it is privileged.
    pub fn hidden_as(memory: &str, user: Option<u32>) -> (Self, Card) {
        Self::serving(&format!("hidden {memory}"), user)
    }

    fn serving(part: &str, user: Option<u32>) -> (Self, Card) {
        let mut other = Self::start_as(part, user);
        let address = other.hear("card ");
        (other, Card { provider: "shm", agent: SOURCE, address })
    }

    /// What it says behind `word`, the runner's own lines aside.
    pub fn hear(&mut self, word: &str) -> String {
        loop {
            let mut line = String::new();
            assert!(self.stdout.read_line(&mut line).unwrap() > 0, "it ended before `{word}`");
            // The runner writes the name of the test in front of the first line.
            if let Some((_, said)) = line.split_once(&format!("@{word}")) {
                return said.trim_end().to_owned();
            }
        }
    }

    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
        if signal == Signal::STOP {
            // Its threads run on until each has seen it.
            let stopped = waitpid(Some(pid), WaitOptions::UNTRACED).unwrap();
            assert!(stopped.is_some_and(|(_, status)| status.stopped()));
        }
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A read of so many blocks that it goes on for long: the same ones again and again.
pub fn endless() -> Vec<BlockCopy> {
    let ids: Vec<u32> = (0..BLOCKS).cycle().take(100_000).collect();
    vec![copy(page(&ids, BLOCK), page(&ids, BLOCK))]
}

pub fn pool(memory: &str) -> Pool {
    let region = Region { block_stride: BLOCK, block_count: BLOCKS };
    let pool = match memory {
        "mapped" => Pool::shared(region),
        _ => Pool::new(BLOCK, BLOCKS),
    };
    pool.fill(9);
    pool
}

/// Does nothing in a process that nobody has started for it.
#[test]
fn other_process() {
    let Ok(part) = std::env::var(PART) else { return };
    match part.split_once(' ').unwrap() {
        ("source", memory) => serve(&pool(memory)),
        ("hidden", memory) => {
            set_dumpable_behavior(DumpableBehavior::NotDumpable).unwrap();
            serve(&pool(memory));
        }
        ("reader", address) => read(address),
        ("probe", address) => {
            let card = Card { provider: "shm", agent: SOURCE, address: address.to_owned() };
            match probe(&card, &ShmConfig::new(READER, 1)) {
                Ok(offer) => say(&format!("offer {offer:?}")),
                Err(why) => say(&format!("unusable {why}")),
            }
        }
        other => panic!("{other:?}"),
    }
}

fn say(words: &str) {
    std::io::stdout().write_all(format!("@{words}\n").as_bytes()).unwrap();
}

fn serve(pool: &Pool) {
    let mut source = ShmEndpoint::bind(ShmConfig::new(SOURCE, 1)).unwrap();
    pool.register(&mut source, 0);
    let all: Vec<u32> = (0..BLOCKS).collect();
    source.grant(READER, TOKEN, vec![page(&all, BLOCK)]).unwrap();
    say(&format!("card {}", source.card().address));
    // Until the other side is no more.
    let _ = std::io::stdin().lines().count();
}

fn read(address: &str) {
    let mut reader = ShmEndpoint::bind(ShmConfig::new(READER, 1)).unwrap();
    let pool = Pool::new(BLOCK, BLOCKS);
    pool.register(&mut reader, 0);
    let card = Card { provider: "shm", agent: SOURCE, address: address.to_owned() };
    let peer = reader.connect(&card).unwrap();
    let transfer =
        |id, copies, timeout| Transfer { id: TransferId(id), peer, token: TOKEN, copies, timeout };
    reader.submit(transfer(1, vec![], PATIENCE)).unwrap();
    outcome(&mut reader, 1);
    reader.submit(transfer(2, endless(), Duration::from_secs(600))).unwrap();
    say("reading ");
    let events = wait(&mut reader, |events| !events.is_empty());
    say(&format!("ended {events:?}"));
}
