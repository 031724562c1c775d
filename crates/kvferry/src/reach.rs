//! Where a decode agent may connect: parameters and cards come from outside, and what they name
//! must not lead it to whom its operator does not mean.

use std::net::{IpAddr, SocketAddr};

use crate::{AllowList, Config, FetchError};

/// The hosts that an agent may connect to.
pub(crate) struct Reach {
    /// Whoever answers must prove the same secret.
    proven: bool,
    allow: Option<AllowList>,
}

impl Reach {
    pub(crate) fn new(config: &Config) -> Self {
        Self { proven: config.secret.is_some(), allow: config.allow.clone() }
    }

    /// Refuses an address that `name` leads to.
    pub(crate) fn check(&self, name: &str, found: IpAddr) -> Result<(), FetchError> {
        let found = found.to_canonical();
        let address = || name.to_owned();
        if !self.proven && !found.is_loopback() {
            return Err(FetchError::NotLoopback { address: address() });
        }
        if found.is_unspecified() {
            return Err(FetchError::Nowhere { address: address() });
        }
        match &self.allow {
            Some(allow) if !allow.contains(found) => {
                Err(FetchError::NotAllowed { address: address(), found })
            }
            _ => Ok(()),
        }
    }

    /// Where the blocks of a peer are that is reached at `peer` and says that they are at
    /// `card`: on the same host, or at an address that the list allows. A card that names no
    /// host means the one that was reached.
    pub(crate) fn data(
        &self,
        card: SocketAddr,
        peer: SocketAddr,
    ) -> Result<SocketAddr, FetchError> {
        let (named, reached) = (card.ip().to_canonical(), peer.ip().to_canonical());
        if named.is_unspecified() {
            let mut there = peer;
            there.set_port(card.port());
            return Ok(there);
        }
        let same_host = named == reached || (named.is_loopback() && reached.is_loopback());
        if self.allow.is_none() && !same_host {
            return Err(FetchError::Elsewhere { peer, card });
        }
        if named != reached {
            self.check(&card.to_string(), named)?;
        }
        Ok(card)
    }
}

#[cfg(test)]
#[path = "reach_tests.rs"]
mod tests;
