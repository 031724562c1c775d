use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::{Arc, Mutex};

use super::frame::ToReader;
use super::outbox::Outbox;
use super::show;
use crate::memory::{HostMemory, SharedMemory};
use crate::sync::lock;
use crate::{BindError, BoundRegion, Memory};

/// Bytes of what a probe measures with: more than caches near a core hold.
const PROBE_BYTES: usize = 8 << 20;

/// What a source shows its readers: the registrations, and a nonce that only its own memory has.
pub(super) struct Catalog {
    state: Mutex<State>,
    /// Counts the changes, so that a connection sees without the lock that there is none.
    version: AtomicU64,
    nonce: HostMemory,
    buffer: Mutex<Option<Arc<SharedMemory>>>,
}

#[derive(Default)]
struct State {
    exhibits: BTreeMap<u64, Arc<Exhibit>>,
    callers: HashMap<u64, Arc<Outbox>>,
}

/// A registration, as it is shown.
pub(super) struct Exhibit {
    pub(super) memory: Arc<dyn Memory>,
    pub(super) words: Vec<u8>,
    regions: usize,
}

impl Catalog {
    pub(super) fn new() -> Result<Self, BindError> {
        let nonce = HostMemory::new(1).map_err(BindError::system("map memory"))?;
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(BindError::system("draw a random number"))?;
        if let Some(word) = nonce.words().first() {
            word.store(u64::from_ne_bytes(random), Relaxed);
        }
        Ok(Self {
            state: Mutex::default(),
            version: AtomicU64::new(0),
            nonce,
            buffer: Mutex::default(),
        })
    }

    pub(super) fn add(&self, generation: u64, memory: Arc<dyn Memory>, regions: &[BoundRegion]) {
        let words = show::encode(&*memory, regions);
        let exhibit = Arc::new(Exhibit { memory, words, regions: regions.len() });
        lock(&self.state).exhibits.insert(generation, exhibit);
        self.changed();
    }

    pub(super) fn remove(&self, generation: u64) {
        lock(&self.state).exhibits.remove(&generation);
        self.changed();
    }

    /// How many regions are shown, with one more for each registration, as readers count.
    pub(super) fn regions(&self) -> usize {
        let state = lock(&self.state);
        state.exhibits.values().map(|exhibit| exhibit.regions + 1).sum::<usize>() + 1
    }

    fn changed(&self) {
        self.version.fetch_add(1, SeqCst);
        self.ring();
    }

    /// Wakes every connection: something is to be shown, withdrawn or stopped.
    pub(super) fn ring(&self) {
        for outbox in lock(&self.state).callers.values() {
            outbox.bell().ring();
        }
    }

    pub(super) fn enter(&self, number: u64, outbox: Arc<Outbox>) {
        lock(&self.state).callers.insert(number, outbox);
    }

    pub(super) fn leave(&self, number: u64) {
        lock(&self.state).callers.remove(&number);
    }

    pub(super) fn version(&self) -> u64 {
        self.version.load(SeqCst)
    }

    pub(super) fn exhibits(&self) -> BTreeMap<u64, Arc<Exhibit>> {
        lock(&self.state).exhibits.clone()
    }

    /// What proves to a reader whose memory it reads.
    pub(super) fn here(&self) -> ToReader {
        let address = self.nonce.base().as_ptr().addr() as u64;
        let nonce = self.nonce.words().first().map_or(0, |word| word.load(Relaxed));
        ToReader::Here { pid: std::process::id(), address, nonce }
    }

    /// What a probe measures with; made for the first one.
    pub(super) fn buffer(&self) -> io::Result<Arc<SharedMemory>> {
        let mut buffer = lock(&self.buffer);
        if let Some(there) = &*buffer {
            return Ok(Arc::clone(there));
        }
        let new = Arc::new(SharedMemory::new(PROBE_BYTES).map_err(io::Error::other)?);
        // Pages that nobody has written are not there yet.
        new.words().iter().step_by(64).for_each(|word| word.store(1, Relaxed));
        *buffer = Some(Arc::clone(&new));
        Ok(new)
    }
}
