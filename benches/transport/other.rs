use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use transport::memory::{HostMemory, SharedMemory};
use transport::shm::{ShmConfig, ShmEndpoint};
use transport::{AgentId, Card, Endpoint, Memory};

use crate::ours::{READER, TOKEN, copies, regions};
use crate::workload::{Workload, word};
use crate::{Fallible, W1, W3};

/// The argument by which this program becomes the source of a workload.
const PART: &str = "--source-of";

/// A process that has a filled pool, and serves it.
pub struct Other {
    child: Child,
    pub card: Card,
    /// Where its pool begins, in its own memory.
    pub base: u64,
}

impl Other {
    pub fn start(workload: &str, memory: &str) -> Fallible<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args([PART, workload, memory]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let mut line = String::new();
        let stdout = child.stdout.take().ok_or("no output")?;
        BufReader::new(stdout).read_line(&mut line)?;
        let (address, base) = line.trim().split_once(' ').ok_or("no address")?;
        let card = Card { provider: "shm", agent: AgentId(1), address: address.to_owned() };
        let base = base.parse()?;
        Ok(Self { child, card, base })
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // It is gone already, perhaps.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Serves, if this process was started for that, until the one that started it is no more.
pub fn serve() -> Fallible<bool> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, part, workload, memory] = arguments.as_slice() else { return Ok(false) };
    if part != PART {
        return Ok(false);
    }
    let workload = if workload == "W1" { &W1 } else { &W3 };
    let pool = pool(workload, memory)?;
    let base = pool.base().as_ptr().addr();
    let mut source = ShmEndpoint::bind(ShmConfig::new(AgentId(1), 0))?;
    source.register(pool, &regions(workload))?;
    let granted = copies(workload)?.iter().map(|copy| copy.source().clone()).collect();
    source.grant(READER, TOKEN, granted)?;
    println!("{} {base}", source.card().address);
    let _ = std::io::stdin().lines().count();
    Ok(true)
}

fn pool(workload: &Workload, memory: &str) -> Fallible<Arc<dyn Memory>> {
    let len = workload.pool_bytes();
    if memory == "mapped" {
        return Ok(filled_shared(len)?);
    }
    let pool = HostMemory::new(len)?;
    fill(pool.words());
    Ok(Arc::new(pool))
}

pub fn filled_shared(len: usize) -> Fallible<Arc<SharedMemory>> {
    let pool = SharedMemory::new(len)?;
    fill(pool.words());
    Ok(Arc::new(pool))
}

pub fn fill(words: &[AtomicU64]) {
    for (index, place) in words.iter().enumerate() {
        place.store(word(index), Ordering::Relaxed);
    }
}
