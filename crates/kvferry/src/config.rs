use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use connector::Bounds;
use connector::limits::MAX_BOUND;
use connector::params::RankAddress;
use transport::session::{Secret, Tls, Trust};

use crate::{AllowList, Provider, StartError};

/// How an agent works; checked once, when it starts.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where a prefill agent's control channel listens; port 0 lets the system choose. Its
    /// data channels listen on another port of the same address. Loopback only, unless there
    /// is a secret.
    pub listen: SocketAddr,
    /// The host name or IP address by which decode agents reach a prefill agent; `None` is the
    /// address of `listen`, which will not do where that is every address of the host.
    pub advertise: Option<String>,
    /// What all agents that talk to each other prove to have. Without one, an agent neither
    /// listens nor connects beyond loopback.
    pub secret: Option<Arc<Secret>>,
    /// What certifies this agent and its peers to each other, and encrypts what they say, blocks
    /// included. One that has it talks to none that has not. The certificate of a prefill agent
    /// must be for the name of `advertise` and the address of `listen`.
    pub tls: Option<Arc<Tls>>,
    /// The only addresses that a decode agent may connect to, loopback included; `None` leaves
    /// the choice to whoever makes the parameters of a hand-off.
    pub allow: Option<AllowList>,
    /// How long each state of a hand-off may last.
    pub bounds: Bounds,
    /// A read that takes longer than this is given up and its peer cut off; more than 0, a day
    /// at most.
    pub read_timeout: Duration,
    /// What moves blocks; a decode agent refuses a prefill engine that it can reach by another
    /// provider only.
    pub provider: Provider,
    /// Sockets to each source; `None` lets the transport choose.
    pub streams: Option<u16>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            advertise: None,
            secret: None,
            tls: None,
            allow: None,
            bounds: Bounds::default(),
            read_timeout: Duration::from_secs(30),
            provider: Provider::Auto,
            streams: None,
        }
    }
}

impl Config {
    /// Refuses what no agent could work with; the bounds and the sockets are checked where
    /// they are used.
    pub(crate) fn check(&self) -> Result<(), StartError> {
        let read_timeout = self.read_timeout;
        if read_timeout.is_zero() || read_timeout > MAX_BOUND {
            return Err(StartError::ReadTimeout { read_timeout });
        }
        let address = self.listen.ip();
        if self.secret.is_none() && !address.is_loopback() {
            return Err(StartError::NotLoopback { address });
        }
        Ok(())
    }

    /// What this agent and its peers show each other.
    pub(crate) fn trust(&self) -> Trust {
        Trust { secret: self.secret.clone(), tls: self.tls.clone() }
    }

    /// Refuses a certificate that no decode agent would take of a prefill agent, which is reached
    /// at `advertised` for control and at the address of `listening` for data.
    pub(crate) fn certified(
        &self,
        advertised: &RankAddress,
        listening: SocketAddr,
    ) -> Result<(), StartError> {
        let Some(tls) = &self.tls else { return Ok(()) };
        tls.covers(&advertised.host)?;
        match listening.ip().to_canonical() {
            // The address that a decode agent has reached it at.
            any if any.is_unspecified() => Ok(()),
            address => Ok(tls.covers(&address.to_string())?),
        }
    }

    /// Where decode agents reach a prefill agent that listens at `listening`.
    pub(crate) fn advertised(&self, listening: SocketAddr) -> Result<RankAddress, StartError> {
        let host = self.advertise.clone().unwrap_or_else(|| listening.ip().to_string());
        match host.parse::<IpAddr>() {
            Ok(address) if address.to_canonical().is_unspecified() => {
                Err(StartError::Unspecified { address })
            }
            Err(_) if !is_name(&host) => Err(StartError::Advertise { host }),
            _ => Ok(RankAddress { host, port: listening.port() }),
        }
    }
}

/// Whether a text may be the name of a host; that there is one, only a peer can find out.
fn is_name(host: &str) -> bool {
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    (1..=253).contains(&host.len()) && host.bytes().all(letter)
}
