use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use connector::Bounds;
use connector::limits::MAX_BOUND;

use crate::StartError;

/// How an agent works; checked once, when it starts.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where a prefill agent's control channel listens; port 0 lets the system choose. Its
    /// data channels listen on another port of the same address.
    pub listen: SocketAddr,
    /// How long each state of a hand-off may last.
    pub bounds: Bounds,
    /// A read that takes longer than this is given up and its peer cut off; more than 0, a day
    /// at most.
    pub read_timeout: Duration,
    /// Sockets to each source; `None` lets the transport choose.
    pub streams: Option<u16>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            bounds: Bounds::default(),
            read_timeout: Duration::from_secs(30),
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
        Ok(())
    }
}
