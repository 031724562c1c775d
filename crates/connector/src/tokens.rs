use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use sha2::{Digest, Sha256};

use crate::ids::{LeaseId, ReadToken};

/// Draws read tokens and remembers under which lease each was given.
#[derive(Debug)]
pub(crate) struct Tokens {
    seed: [u8; 32],
    drawn: u64,
    live: BTreeMap<ReadToken, LeaseId>,
}

impl Tokens {
    pub(crate) fn new(seed: [u8; 32]) -> Self {
        Self { seed, drawn: 0, live: BTreeMap::new() }
    }

    /// A token that is not in use: the head of SHA-256(seed, counter), which nobody without
    /// the seed can guess and which a test can replay.
    pub(crate) fn draw(&mut self, lease: &LeaseId) -> ReadToken {
        loop {
            let token = self.next();
            if let Entry::Vacant(free) = self.live.entry(token) {
                free.insert(lease.clone());
                return token;
            }
        }
    }

    fn next(&mut self) -> ReadToken {
        let hash = Sha256::new().chain_update(self.seed).chain_update(self.drawn.to_le_bytes());
        self.drawn = self.drawn.wrapping_add(1);
        let [a, b, c, d, e, f, g, h, ..] = <[u8; 32]>::from(hash.finalize());
        ReadToken(u64::from_le_bytes([a, b, c, d, e, f, g, h]))
    }

    /// Forgets a token that can no longer be used and says whose it was.
    pub(crate) fn end(&mut self, token: ReadToken) -> Option<LeaseId> {
        self.live.remove(&token)
    }

    pub(crate) fn len(&self) -> usize {
        self.live.len()
    }
}
