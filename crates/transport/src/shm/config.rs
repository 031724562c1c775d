use std::sync::Arc;
use std::time::Duration;

use crate::session::Secret;
use crate::tcp::MAX_OPEN_REQUESTS;
use crate::{AgentId, BindError};

/// What any time here may be, so that a clock can always be added to it.
const MAX_TIME: Duration = Duration::from_secs(24 * 60 * 60);

/// The most threads that copy from one source.
const MAX_COPIERS: u16 = 16;

/// How a [`ShmEndpoint`](super::ShmEndpoint) works; checked once, when it is opened.
#[derive(Clone, Debug)]
pub struct ShmConfig {
    /// This agent, drawn at random when it starts.
    pub agent: AgentId,
    /// The engine that it belongs to.
    pub engine: u64,
    /// What both ends of a connection must prove to have. Without one, being a process of the
    /// same user is enough.
    pub secret: Option<Arc<Secret>>,
    /// Threads that copy from one source where there is enough to copy, from 1 to 16. All but
    /// the first are started when they are needed.
    pub copiers: u16,
    /// Transfers that may be in flight, from 1 to 4096.
    pub max_in_flight: usize,
    /// Connections that are served at a time.
    pub max_readers: usize,
    /// Sockets that have not said who they are at a time; for one more the oldest of them is
    /// hung up on.
    pub max_strangers: usize,
    /// Time that a new connection has to introduce itself.
    pub hello_timeout: Duration,
    /// Time that a reader has to let go of what was revoked or withdrawn; then its connection
    /// is cut.
    pub cut_after: Duration,
}

impl ShmConfig {
    /// The defaults.
    #[must_use]
    pub fn new(agent: AgentId, engine: u64) -> Self {
        Self {
            agent,
            engine,
            secret: None,
            copiers: default_copiers(),
            max_in_flight: 1024,
            max_readers: 256,
            max_strangers: 64,
            hello_timeout: Duration::from_secs(5),
            cut_after: Duration::from_millis(500),
        }
    }

    pub(super) fn check(&self) -> Result<(), BindError> {
        let rule = |holds: bool, setting, rule| {
            if holds { Ok(()) } else { Err(BindError::Config { setting, rule }) }
        };
        let in_flight = (1..=MAX_OPEN_REQUESTS).contains(&self.max_in_flight);
        let counts = [self.max_readers, self.max_strangers];
        let times = [self.hello_timeout, self.cut_after];
        rule((1..=MAX_COPIERS).contains(&self.copiers), "copiers", "from 1 to 16")?;
        rule(in_flight, "max_in_flight", "from 1 to 4096")?;
        rule(counts.iter().all(|&count| count > 0), "max_readers and max_strangers", "at least 1")?;
        rule(
            times.iter().all(|&time| !time.is_zero() && time <= MAX_TIME),
            "hello_timeout and cut_after",
            "more than 0, and a day at most",
        )
    }
}

/// One thread does not fill the memory of a machine; two nearly do on a small one.
fn default_copiers() -> u16 {
    match std::thread::available_parallelism() {
        Ok(cores) if cores.get() >= 8 => 4,
        Ok(cores) if cores.get() >= 2 => 2,
        _ => 1,
    }
}
