use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use super::engine::Engine;
use super::plan::Exposure;
use super::seam::{Fabric, Registering};
use super::{Backing, FabricPeer, FenceError, MemoryError, PeerError, Rights, Work, WorkId};
use crate::Memory;

/// Where an answer goes; that nobody waits for it any more is no harm.
pub(super) type Answer<T> = SyncSender<T>;

/// What the thread is told to do.
pub(super) enum Order {
    Submit(Box<Work>),
    Cancel(WorkId),
    Insert(Vec<u8>, Answer<Result<FabricPeer, PeerError>>),
    Remove(FabricPeer),
    Register(Box<ToRegister>, Answer<Result<(u64, Vec<Exposure>), MemoryError>>),
    Deregister(u64, Answer<Result<(), MemoryError>>),
    Fence(Answer<Result<Vec<u8>, FenceError>>),
    Stop,
}

/// Memory that has no name yet.
pub(super) struct ToRegister {
    pub(super) memory: Arc<dyn Memory>,
    pub(super) backing: Backing,
    pub(super) rights: Rights,
    pub(super) grain: u64,
}

impl ToRegister {
    fn named(self, id: u64) -> Registering {
        let Self { memory, backing, rights, grain } = self;
        Registering { id, memory, backing, rights, grain }
    }
}

impl Order {
    pub(super) fn is_last(&self) -> bool {
        matches!(self, Self::Stop)
    }

    pub(super) fn obeyed<F: Fabric>(self, engine: &mut Engine<F>) {
        match self {
            Self::Submit(work) => engine.submit(*work),
            Self::Cancel(id) => engine.cancel(id),
            Self::Remove(peer) => engine.remove(peer),
            Self::Insert(address, to) => answer(&to, engine.insert(&address)),
            Self::Register(memory, to) => {
                answer(&to, engine.register(|id| memory.named(id)));
            }
            Self::Deregister(id, to) => answer(&to, engine.deregister(id)),
            Self::Fence(to) => answer(&to, engine.fence()),
            // Nothing follows it.
            Self::Stop => {}
        }
    }
}

fn answer<T>(to: &Answer<T>, answer: T) {
    // Whoever has asked may be gone.
    let _ = to.send(answer);
}
