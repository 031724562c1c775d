use std::net::SocketAddr;
use std::time::Duration;

use super::{MAX_OPEN_REQUESTS, MAX_STREAMS};
use crate::session::Trust;
use crate::{AgentId, BindError};

/// What any time here may be, so that a clock can always be added to it.
const MAX_TIME: Duration = Duration::from_secs(24 * 60 * 60);

/// How a [`TcpEndpoint`](super::TcpEndpoint) works; checked once, when it is opened.
#[derive(Clone, Debug)]
pub struct TcpConfig {
    /// This agent, drawn at random when it starts.
    pub agent: AgentId,
    /// The engine that it belongs to.
    pub engine: u64,
    /// Where readers connect; port 0 lets the system choose. Loopback only, unless there is a
    /// secret.
    pub listen: SocketAddr,
    /// What both ends of every socket must show; without a secret they stay on this host.
    pub trust: Trust,
    /// Sockets to each source, from 1 to 16.
    pub streams: u16,
    /// Transfers that may be in flight, from 1 to 4096.
    pub max_in_flight: usize,
    /// Connections that are served at a time.
    pub max_readers: usize,
    /// Sockets that have not said who they are at a time, with all streams of their
    /// connection; for one more the oldest of them is hung up on. With a secret or TLS, a
    /// socket that has shown it is counted among `max_readers`.
    pub max_strangers: usize,
    /// Time that a new connection has to introduce all its streams.
    pub hello_timeout: Duration,
    /// How often a reader shows that it lives, which the source answers unless it is busy sending.
    /// Under TLS both sides do it on their own.
    pub heartbeat: Duration,
    /// So many heartbeats without a sign of life, and the peer is down.
    pub missed_heartbeats: u32,
    /// A portion may go on for so long after its grant was revoked; then its connection is cut.
    pub cut_after: Duration,
}

impl TcpConfig {
    /// The defaults, for an agent that listens at `listen`.
    #[must_use]
    pub fn new(agent: AgentId, engine: u64, listen: SocketAddr) -> Self {
        Self {
            agent,
            engine,
            listen,
            trust: Trust::default(),
            streams: default_streams(),
            max_in_flight: 1024,
            max_readers: 256,
            max_strangers: 64,
            hello_timeout: Duration::from_secs(5),
            heartbeat: Duration::from_secs(1),
            missed_heartbeats: 4,
            cut_after: Duration::from_millis(500),
        }
    }

    pub(super) fn check(&self) -> Result<(), BindError> {
        let times = [self.hello_timeout, self.heartbeat, self.cut_after];
        let counts = [self.max_readers, self.max_strangers];
        let rule = |holds: bool, setting, rule| {
            if holds { Ok(()) } else { Err(BindError::Config { setting, rule }) }
        };
        rule((1..=MAX_STREAMS).contains(&self.streams), "streams", "from 1 to 16")?;
        rule(
            (1..=MAX_OPEN_REQUESTS).contains(&self.max_in_flight),
            "max_in_flight",
            "from 1 to 4096",
        )?;
        rule(counts.iter().all(|&count| count > 0), "max_readers and max_strangers", "at least 1")?;
        rule(self.missed_heartbeats > 0, "missed_heartbeats", "at least 1")?;
        rule(
            times.iter().all(|time| !time.is_zero()),
            "hello_timeout, heartbeat and cut_after",
            "more than 0",
        )?;
        rule(
            times.iter().all(|&time| time <= MAX_TIME),
            "hello_timeout, heartbeat and cut_after",
            "a day at most",
        )?;
        if self.trust.secret.is_none() && !self.listen.ip().is_loopback() {
            return Err(BindError::NotLoopback { address: self.listen.to_string() });
        }
        Ok(())
    }
}

/// Two streams fill a small machine; more help where cores are plenty.
fn default_streams() -> u16 {
    match std::thread::available_parallelism() {
        Ok(cores) if cores.get() >= 8 => 4,
        _ => 2,
    }
}
