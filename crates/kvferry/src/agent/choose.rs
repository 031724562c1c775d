//! Which provider reads from a peer.

use std::net::SocketAddr;
use std::sync::Arc;

use connector::handshake::Handshake;
use connector::{Class, Peer};
use transport::shm::{self, ShmConfig, Unusable};
use transport::{AgentId, Card, ConnectError, Endpoint, PeerId};

use crate::providers::{self, Provider, SHM, TCP};
use crate::reach::Reach;
use crate::{Config, FetchError};

/// Why a provider is not used.
#[derive(Debug, thiserror::Error)]
enum Shunned {
    /// The peer does not have it.
    #[error("the prefill engine has no other")]
    Absent,
    #[error("shm: {0}")]
    Unusable(#[from] Unusable),
}

impl Shunned {
    fn class(&self) -> Class {
        use transport::Class as Seen;
        let Self::Unusable(why) = self else { return Class::Config };
        match why.class() {
            Seen::Retry => Class::Retry,
            Seen::PeerLost => Class::PeerLost,
            Seen::Protocol => Class::Protocol,
            Seen::Exhausted => Class::Exhausted,
            Seen::Bug => Class::Bug,
            _ => Class::Config,
        }
    }

    /// Without the name of the provider.
    fn reason(&self) -> String {
        match self {
            Self::Absent => self.to_string(),
            Self::Unusable(why) => why.to_string(),
        }
    }

    /// Whether it should work, and does not.
    fn is_a_fault(&self) -> bool {
        matches!(self, Self::Unusable(why) if !matches!(why, Unusable::OtherHost { .. }))
    }
}

/// Chooses for one decode agent.
pub(super) struct Chooser {
    wanted: Provider,
    tls: bool,
    shm: ShmConfig,
    reach: Arc<Reach>,
}

/// The provider of a peer.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    /// Where its blocks are.
    card: Card,
    /// Where it was reached.
    at: SocketAddr,
    /// Bytes a second that were measured before it was chosen.
    rate: Option<u64>,
    /// Why it is not another one.
    why: String,
    /// A faster one should work, and does not.
    falls_short: bool,
}

/// How the blocks of one rank of a prefill engine are read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Path {
    /// The agent epoch of that rank.
    pub agent: u64,
    /// Where its control channel was reached.
    pub at: SocketAddr,
    /// `shm` or `tcp`.
    pub provider: &'static str,
    /// Bytes a second that were measured before it was chosen, where that was possible.
    pub rate: Option<u64>,
    /// Why it is not another one.
    pub why: String,
    /// A faster one should work, and does not.
    pub falls_short: bool,
}

impl Choice {
    /// Connects, and says how and why so.
    pub(super) fn connect(&self, endpoint: &mut dyn Endpoint) -> Result<PeerId, ConnectError> {
        let Path { agent, at, provider, rate, why, falls_short } = self.path();
        let mb_per_second = rate.map(|rate| rate / 1_000_000);
        if falls_short {
            tracing::warn!(agent, %at, provider, why, "a faster way to this peer does not work");
        } else {
            tracing::info!(agent, %at, provider, mb_per_second, why, "a peer is read from");
        }
        endpoint.connect(&self.card)
    }

    pub(super) fn path(&self) -> Path {
        let Self { card, at, rate, why, falls_short } = self.clone();
        Path { agent: card.agent.0, at, provider: card.provider, rate, why, falls_short }
    }
}

impl Chooser {
    pub(super) fn new(config: &Config, me: Peer, reach: Arc<Reach>) -> Self {
        let (wanted, tls) = (config.provider, config.tls.is_some());
        Self { wanted, tls, shm: providers::shm(config, me), reach }
    }

    /// The fastest provider that works between this side and a peer that was reached at `at`.
    pub(super) async fn choose(
        &self,
        theirs: &Handshake,
        at: SocketAddr,
    ) -> Result<Choice, FetchError> {
        let (why, falls_short) = match self.wanted {
            Provider::Tcp => ("it is the one that is wanted".to_owned(), false),
            Provider::Auto if self.tls => ("no other encrypts".to_owned(), false),
            Provider::Auto | Provider::Shm => match self.shared(theirs, at).await {
                Ok(choice) => return Ok(choice),
                Err(shunned) if self.wanted == Provider::Shm => {
                    let (why, class) = (shunned.reason(), shunned.class());
                    return Err(FetchError::Provider { wanted: self.wanted, why, class });
                }
                Err(shunned) => (shunned.to_string(), shunned.is_a_fault()),
            },
        };
        let card = self.tcp(theirs, at)?;
        Ok(Choice { card, at, rate: None, why, falls_short })
    }

    /// Shared memory, tried and measured.
    async fn shared(&self, theirs: &Handshake, at: SocketAddr) -> Result<Choice, Shunned> {
        let card = theirs.cards.iter().find(|card| card.provider == SHM);
        let card = card.ok_or(Shunned::Absent)?;
        let agent = AgentId(card.agent.0);
        let card = Card { provider: SHM, agent, address: card.address.clone() };
        let (config, probed) = (self.shm.clone(), card.clone());
        let offer = tokio::task::spawn_blocking(move || shm::probe(&probed, &config)).await;
        // A probe that panics has found nothing.
        let offer = offer.map_err(|_| Shunned::Absent)?.map_err(Shunned::Unusable)?;
        let (rate, why) = (Some(offer.rate()), "none is faster".to_owned());
        Ok(Choice { card, at, rate, why, falls_short: false })
    }

    /// TCP, if this side may go there.
    fn tcp(&self, theirs: &Handshake, at: SocketAddr) -> Result<Card, FetchError> {
        let card = theirs.cards.iter().find(|card| card.provider == TCP);
        let card = card.ok_or(FetchError::NoProvider)?;
        let address = match card.address.parse() {
            Ok(address) => self.reach.data(address, at)?.to_string(),
            // The provider says what is wrong with it.
            Err(_) => card.address.clone(),
        };
        Ok(Card { provider: TCP, agent: AgentId(card.agent.0), address })
    }
}

#[cfg(test)]
#[path = "choose_tests.rs"]
mod tests;
