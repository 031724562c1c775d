//! TCP: buffers, and whether a block gets through.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kvferry::transport::memory::HostMemory;
use kvferry::transport::session::Trust;
use kvferry::transport::{
    BoundRegion, Endpoint, Event, GrantToken, Memory, Outcome, Transfer, TransferId,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use strided::{BlockCopy, Blocks, Pattern, Region, RegionId};

use super::finding::Finding;
use crate::bench::providers::{Opening, Provider, find};
use crate::output;

/// The largest buffer that a socket should be able to grow to: what a fast network holds in
/// flight.
const BUFFER: u64 = 4 << 20;

const BLOCK: u64 = 4 << 10;

/// What the block holds.
const WORD: u64 = 0x6b76_6665_7272_7921;

const PATIENCE: Duration = Duration::from_secs(10);

pub(super) fn look() -> Vec<Finding> {
    let file = |name: &str| {
        let text = std::fs::read_to_string(format!("/proc/sys/net/ipv4/{name}"));
        buffers(name, text.as_deref().unwrap_or_default())
    };
    let mend = "bring the interface lo up (ip link set lo up), and let no firewall cut it off";
    vec![moved("tcp", "over this host's own network", mend), file("tcp_rmem"), file("tcp_wmem")]
}

/// From a file of three numbers: least, first and largest size of a socket's buffer.
pub(super) fn buffers(name: &str, text: &str) -> Finding {
    let numbers: Vec<u64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let &[least, first, largest] = numbers.as_slice() else {
        let what = format!("net.ipv4.{name} cannot be read");
        return Finding::warn(what, "see that /proc/sys is mounted; the defaults will do");
    };
    let what = format!("socket buffers grow to {} (net.ipv4.{name})", output::bytes(largest));
    if largest >= BUFFER {
        return Finding::ok(what);
    }
    let mend = format!("sysctl -w net.ipv4.{name}=\"{least} {first} {BUFFER}\"");
    Finding::warn(format!("{what}: less than a fast network holds in flight"), mend)
}

/// Whether a block moves between two endpoints of this process.
pub(super) fn moved(name: &str, way: &str, mend: &'static str) -> Finding {
    let Some(provider) = find(name) else { return Finding::not_in_this_build(name) };
    match try_to_move(provider) {
        Ok(()) => Finding::ok(format!("a block was read {way}, every byte right")),
        Err(why) => Finding::missing(format!("a block cannot be read {way}: {why}"), mend),
    }
}

fn try_to_move(provider: &Provider) -> Result<(), String> {
    let open = || {
        let opening = Opening::here(Trust::default(), None);
        Ok::<_, String>((opening.agent, provider.open(&opening).map_err(|why| why.message)?))
    };
    let ((_, mut source), (agent, mut reader)) = (open()?, open()?);
    let from = host_memory()?;
    for word in from.words() {
        word.store(WORD, Ordering::Relaxed);
    }
    let to = host_memory()?;
    let said = |why: &dyn std::fmt::Display| why.to_string();
    let region = Region { block_stride: BLOCK, block_count: 1 };
    let bound = [BoundRegion { id: RegionId(0), offset: 0, region }];
    source.register(from as Arc<dyn Memory>, &bound).map_err(|why| said(&why))?;
    reader.register(Arc::clone(&to) as Arc<dyn Memory>, &bound).map_err(|why| said(&why))?;
    let copy = copy().map_err(|why| said(&why))?;
    let token = GrantToken(1);
    source.grant(agent, token, vec![copy.source().clone()]).map_err(|why| said(&why))?;
    read(&mut *reader, &*source, copy, token)?;
    let right = to.words().iter().all(|word| word.load(Ordering::Relaxed) == WORD);
    if right { Ok(()) } else { Err("its bytes are wrong".to_owned()) }
}

fn host_memory() -> Result<Arc<HostMemory>, String> {
    let len = usize::try_from(BLOCK).map_err(|why| why.to_string())?;
    HostMemory::new(len).map(Arc::new).map_err(|why| why.to_string())
}

fn copy() -> Result<BlockCopy, strided::Error> {
    let block = Blocks::new(RegionId(0), [0], Pattern::contiguous(0, BLOCK)?)?;
    BlockCopy::new(block.clone(), block)
}

fn read(
    reader: &mut dyn Endpoint,
    source: &dyn Endpoint,
    copy: BlockCopy,
    token: GrantToken,
) -> Result<(), String> {
    let peer = reader.connect(&source.card()).map_err(|why| why.to_string())?;
    let (id, copies) = (TransferId(1), vec![copy]);
    let transfer = Transfer { id, peer, token, copies, timeout: PATIENCE };
    reader.submit(transfer).map_err(|error| error.why.to_string())?;
    let mut events = Vec::new();
    while events.is_empty() {
        let mut ready = [PollFd::from_borrowed_fd(reader.ready_fd(), PollFlags::IN)];
        let patience = Timespec::try_from(2 * PATIENCE).ok();
        let told = poll(&mut ready, patience.as_ref()).map_err(|why| why.to_string())?;
        if told == 0 {
            return Err("nothing came".to_owned());
        }
        reader.poll(&mut events);
    }
    match events.as_slice() {
        [Event::Completion { outcome: Outcome::Done, .. }] => Ok(()),
        [Event::Completion { outcome: Outcome::Failed(why), .. }, ..] => Err(why.to_string()),
        other => Err(format!("{other:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Status;
    use super::*;

    #[test]
    fn buffers_that_are_large_enough_and_too_small() {
        for (text, status, mend) in [
            ("4096\t131072\t6291456\n", Status::Ok, None),
            ("4096 131072 4194304", Status::Ok, None),
            (
                "4096 16384 65536\n",
                Status::Warn,
                Some("sysctl -w net.ipv4.tcp_wmem=\"4096 16384 4194304\""),
            ),
        ] {
            let finding = buffers("tcp_wmem", text);
            assert_eq!((finding.status, finding.mend.as_deref()), (status, mend), "{text}");
        }
        for text in ["", "many", "1 2"] {
            assert!(buffers("tcp_rmem", text).what.ends_with("cannot be read"), "{text}");
        }
    }

    #[test]
    fn a_block_moves_over_loopback() {
        assert_eq!(moved("tcp", "here", "").status, Status::Ok);
        assert_eq!(moved("pigeon", "here", "").status, Status::Missing);
    }
}
