//! A fabric without a library, whose one peer is itself. It does all that a card may do: it is
//! full until it is polled, ends operations in any order and any time later, tells of them twice,
//! refuses, fails, and breaks.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use libfabric_sys::Version;

use super::plan::Exposure;
use super::seam::{Action, Fabric, Found, OperationFault, Post, PostFault, Registering};
use super::{FabricFacts, FabricPeer, FenceError, MemoryError, PeerError, RegistrationModes};
use crate::Memory;
use crate::bell::Bell;
use crate::memory::Slice;

/// Numbers that follow from a seed.
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From 0 up to `limit`, without it.
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    pub(super) fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

/// How unkind it is.
pub(super) struct Manners {
    /// Operations in flight, for its own reasons.
    pub(super) room: usize,
    /// One in so many fails.
    pub(super) fails: u64,
    /// One poll in so many breaks it.
    pub(super) breaks: u64,
    /// One operation in so many is refused.
    pub(super) refuses: u64,
    /// How the next fence fails.
    pub(super) fence_fails: Option<FenceError>,
    /// It ends no registration any more.
    pub(super) keeps: bool,
}

pub(super) struct Fake {
    pub(super) dice: Dice,
    pub(super) manners: Manners,
    facts: FabricFacts,
    memories: HashMap<u64, Arc<dyn Memory>>,
    peers: Vec<FabricPeer>,
    flying: Vec<Post>,
    /// What it will say again, although it is long over.
    echoes: Vec<Found>,
    words: Vec<u32>,
    /// Polls until it takes operations at all.
    deaf: u64,
    broken: bool,
    /// Operations that began in the place of another.
    pub(super) early: usize,
    pub(super) landed: HashMap<u32, u64>,
}

impl Fake {
    pub(super) fn new(mut dice: Dice, manners: Manners, operations: usize, limit: u64) -> Self {
        let facts = FabricFacts {
            library: PathBuf::new(),
            version: Version::new(2, 0),
            provider: "fake".to_owned(),
            fabric: String::new(),
            domain: String::new(),
            modes: RegistrationModes {
                flags: 0,
                virtual_addresses: false,
                local: true,
                allocated: true,
                card_keys: true,
            },
            max_message: limit,
            operations,
            remote_pieces: 1,
            word_bytes: 4,
            wakes: false,
            manual_progress: true,
        };
        Self {
            deaf: dice.below(6),
            dice,
            manners,
            facts,
            memories: HashMap::new(),
            peers: Vec::new(),
            flying: Vec::new(),
            echoes: Vec::new(),
            words: Vec::new(),
            broken: false,
            early: 0,
            landed: HashMap::new(),
        }
    }

    pub(super) fn flying(&self) -> usize {
        self.flying.len()
    }

    /// The two ends of an operation: registered memory here and, by its key, at the peer.
    fn ends(&self, post: &Post) -> (Slice<'_>, Slice<'_>) {
        let segment = &post.segment;
        let slice = |id: &u64, at| Slice::of(&*self.memories[id], at, segment.len).unwrap();
        (slice(&segment.memory, segment.offset), slice(&segment.key, segment.address))
    }

    fn land(&mut self, post: &Post) -> Found {
        let failed = self.dice.one_in(self.manners.fails);
        if failed {
            return Found::Ended(
                post.token,
                Err(OperationFault { code: 5, why: "fails".to_owned() }),
            );
        }
        let (local, remote) = self.ends(post);
        match post.action {
            Action::Read => remote.copy_to(local),
            Action::Write | Action::Count(_) => local.copy_to(remote),
        }
        if let Action::Count(word) = post.action {
            self.words.push(word);
            *self.landed.entry(word >> 16).or_default() += 1;
        }
        Found::Ended(post.token, Ok(()))
    }

    fn say_again(&mut self, found: &Found) {
        if self.dice.one_in(4) {
            self.echoes.push(found.clone());
        }
    }

    fn random<T>(dice: &mut Dice, list: &mut Vec<T>) -> Option<T> {
        let at = usize::try_from(dice.below(list.len().max(1) as u64)).ok()?;
        (!list.is_empty()).then(|| list.swap_remove(at))
    }
}

impl Fabric for Fake {
    fn facts(&self) -> &FabricFacts {
        &self.facts
    }

    fn address(&self) -> &[u8] {
        b"self"
    }

    fn insert(&mut self, peer: FabricPeer, address: &[u8]) -> Result<(), PeerError> {
        assert_eq!(address, b"self");
        self.peers.push(peer);
        Ok(())
    }

    fn remove(&mut self, peer: FabricPeer) {
        assert!(self.flying.iter().all(|post| post.peer != peer), "it is still asked");
        self.peers.retain(|known| *known != peer);
    }

    fn register(&mut self, memory: Registering) -> Result<Vec<Exposure>, MemoryError> {
        self.memories.insert(memory.id, memory.memory);
        Ok(vec![Exposure { key: memory.id, base: 0 }])
    }

    fn deregister(&mut self, id: u64) -> Result<(), MemoryError> {
        if self.manners.keeps {
            return Err(MemoryError::StillOpen { why: "kept".to_owned() });
        }
        self.memories.remove(&id);
        Ok(())
    }

    fn post(&mut self, post: &Post) -> Result<(), PostFault> {
        if self.deaf > 0 || self.flying.len() >= self.manners.room || self.dice.one_in(5) {
            self.deaf = self.deaf.max(1);
            return Err(PostFault::Full);
        }
        assert!(self.peers.contains(&post.peer) && !self.broken, "it must not be asked");
        if self.dice.one_in(self.manners.refuses) {
            return Err(PostFault::Refused(OperationFault { code: 22, why: "refused".to_owned() }));
        }
        let same = |other: &Post| other.token.slot == post.token.slot;
        self.early += usize::from(self.flying.iter().any(same));
        self.flying.push(*post);
        Ok(())
    }

    fn poll(&mut self, found: &mut Vec<Found>) -> Result<(), String> {
        self.deaf = self.deaf.saturating_sub(1);
        for _ in 0..self.dice.below(4) {
            if let Some(post) = Self::random(&mut self.dice, &mut self.flying) {
                let over = self.land(&post);
                self.say_again(&over);
                found.push(over);
            }
        }
        for _ in 0..self.dice.below(4) {
            if let Some(word) = Self::random(&mut self.dice, &mut self.words) {
                self.say_again(&Found::Word(word));
                found.push(Found::Word(word));
            }
        }
        if self.dice.one_in(3) {
            found.extend(Self::random(&mut self.dice, &mut self.echoes));
        }
        self.broken = self.dice.one_in(self.manners.breaks);
        if self.broken { Err("breaks".to_owned()) } else { Ok(()) }
    }

    fn sleep(&mut self, _: &Bell, _: Duration) -> bool {
        // There is something, it says, at any time.
        true
    }

    fn reopen(&mut self) -> Result<(), FenceError> {
        let fails = self.manners.fence_fails.take();
        if let Some(FenceError::StillOpen { .. }) = fails {
            // It is left alone from now on.
            self.manners.fence_fails.clone_from(&fails);
            self.broken = true;
            return fails.map_or(Ok(()), Err);
        }
        // What was in flight is named again, although it is over.
        let cut = self.flying.drain(..).map(|post| Found::Ended(post.token, Ok(())));
        self.echoes.extend(cut);
        self.words.clear();
        self.peers.clear();
        self.broken = fails.is_some();
        fails.map_or(Ok(()), Err)
    }
}
