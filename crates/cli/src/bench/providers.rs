//! The providers that can be measured: one line each.

use std::net::{Ipv4Addr, SocketAddr};

use kvferry::transport::session::Trust;
use kvferry::transport::shm::{ShmConfig, ShmEndpoint};
use kvferry::transport::tcp::{TcpConfig, TcpEndpoint};
use kvferry::transport::{AgentId, Endpoint};

use super::case::Kind;
use crate::failure::{Code, Failure};

/// How two processes can share blocks.
pub(crate) struct Provider {
    /// As the table and both sides call it.
    pub(crate) name: &'static str,
    /// As cards call it.
    pub(super) card: &'static str,
    /// Which plain limits it is measured against.
    pub(super) kind: Kind,
    /// Whether the source's pool is memory that other processes can map.
    pub(super) shared: bool,
    open: fn(&Opening) -> Result<Box<dyn Endpoint>, Failure>,
}

/// All of them, in the order of the table.
pub(crate) static PROVIDERS: [Provider; 3] = [
    Provider { name: "tcp", card: "tcp", kind: Kind::Tcp, shared: false, open: open_tcp },
    Provider { name: "shm", card: "shm", kind: Kind::Process, shared: false, open: open_shm },
    Provider { name: "shm mapped", card: "shm", kind: Kind::Memory, shared: true, open: open_shm },
];

/// What an endpoint is opened with.
#[derive(Clone)]
pub(crate) struct Opening {
    pub(crate) agent: AgentId,
    /// Where peers come from outside, port 0.
    pub(crate) listen: SocketAddr,
    pub(crate) trust: Trust,
    /// Sockets to each source, where not what the library chooses.
    pub(crate) streams: Option<u16>,
}

impl Opening {
    /// For one that reads alone, or that is read on this host.
    pub(crate) fn here(trust: Trust, streams: Option<u16>) -> Self {
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        Self { agent: AgentId(rand::random()), listen, trust, streams }
    }
}

impl Provider {
    pub(crate) fn open(&self, opening: &Opening) -> Result<Box<dyn Endpoint>, Failure> {
        (self.open)(opening)
    }
}

/// The provider of this name, if this build has it.
pub(crate) fn find(name: &str) -> Option<&'static Provider> {
    PROVIDERS.iter().find(|provider| provider.name == name)
}

fn open_tcp(opening: &Opening) -> Result<Box<dyn Endpoint>, Failure> {
    let Opening { agent, listen, trust, streams } = opening;
    let mut config = TcpConfig::new(*agent, 0, *listen);
    config.trust = trust.clone();
    config.streams = streams.unwrap_or(config.streams);
    let endpoint = TcpEndpoint::bind(config).map_err(|why| Failure::new(Code::Peer, why))?;
    Ok(Box::new(endpoint))
}

fn open_shm(opening: &Opening) -> Result<Box<dyn Endpoint>, Failure> {
    let mut config = ShmConfig::new(opening.agent, 0);
    config.secret = opening.trust.secret.clone();
    let endpoint = ShmEndpoint::bind(config).map_err(|why| Failure::new(Code::Peer, why))?;
    Ok(Box::new(endpoint))
}
