//! The providers of an agent, and which of them its operator wants.

use std::fmt;
use std::str::FromStr;

use connector::Peer;
use transport::shm::{ShmConfig, ShmEndpoint};
use transport::tcp::{TcpConfig, TcpEndpoint};
use transport::{AgentId, Endpoint, Several};

use crate::{Config, StartError};

pub(crate) const TCP: &str = "tcp";
pub(crate) const SHM: &str = "shm";

/// What moves blocks between two agents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Provider {
    /// The fastest that both sides have, peer by peer; a slower one is taken, and said, where the
    /// fastest cannot be used. With TLS that is TCP, which alone encrypts.
    #[default]
    Auto,
    /// TCP and nothing else.
    Tcp,
    /// The memory of processes of the same user on the same host, and nothing else.
    Shm,
}

/// A text that names no provider.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no provider: choose `auto`, `tcp` or `shm`")]
pub struct ProviderError {
    text: String,
}

impl Provider {
    const ALL: [Self; 3] = [Self::Auto, Self::Tcp, Self::Shm];

    fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Tcp => TCP,
            Self::Shm => SHM,
        }
    }
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Provider {
    type Err = ProviderError;

    fn from_str(text: &str) -> Result<Self, ProviderError> {
        let named = Self::ALL.into_iter().find(|provider| provider.name() == text);
        named.ok_or_else(|| ProviderError { text: text.to_owned() })
    }
}

/// Opens all that may be used, the fastest first.
pub(crate) fn open(config: &Config, me: Peer) -> Result<Several, StartError> {
    let mut endpoints: Vec<Box<dyn Endpoint>> = Vec::new();
    let wanted = config.provider;
    if wanted == Provider::Shm || (wanted == Provider::Auto && config.tls.is_none()) {
        match ShmEndpoint::bind(shm(config, me)) {
            Ok(endpoint) => endpoints.push(Box::new(endpoint)),
            Err(why) if wanted == Provider::Shm => return Err(why.into()),
            Err(why) => tracing::warn!(%why, "no memory is shared with other processes"),
        }
    }
    if wanted != Provider::Shm {
        endpoints.push(Box::new(TcpEndpoint::bind(tcp(config, me))?));
    }
    Ok(Several::new(endpoints)?)
}

/// How an agent shares memory.
pub(crate) fn shm(config: &Config, me: Peer) -> ShmConfig {
    let mut shm = ShmConfig::new(AgentId(me.agent.0), me.engine.0);
    shm.secret = config.secret.clone();
    shm
}

fn tcp(config: &Config, me: Peer) -> TcpConfig {
    let data = (config.listen.ip(), 0).into();
    let mut tcp = TcpConfig::new(AgentId(me.agent.0), me.engine.0, data);
    tcp.trust = config.trust();
    tcp.streams = config.streams.unwrap_or(tcp.streams);
    tcp
}
