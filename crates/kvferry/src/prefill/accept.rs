//! Lets decode agents in.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use connector::Class;
use connector::handshake::Mismatch;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use transport::session::{Role, Trust};

use crate::agent::{self, Agent, Command, Fresh};
use crate::control::{self, ControlError, Opened};

/// Channels that may be shaking hands at a time; for one more the oldest is turned away, so
/// that whoever speaks at once gets in.
const MAX_STRANGERS: usize = 64;

/// Channels that are open and not used yet at a time; one more is closed.
const MAX_UNUSED: usize = 1024;

/// Accepts for as long as it is polled; all that it has begun ends with it.
pub(super) async fn accept(listener: TcpListener, agent: Arc<Agent>) {
    let mut strangers = Strangers::default();
    let mut known = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            Some(greeted) = strangers.greetings.join_next() => {
                if let Ok(Some(opened)) = greeted {
                    let fresh = Fresh::new(opened, agent.commands.clone());
                    if known.len() < MAX_UNUSED {
                        known.spawn(attach(fresh, Arc::clone(&agent)));
                    } else {
                        tracing::warn!("too many channels that nobody uses: one more is closed");
                    }
                }
            }
            accepted = listener.accept(), if strangers.are_few() => match accepted {
                Ok((stream, from)) => strangers.admit(greet(stream, from, Arc::clone(&agent))),
                Err(why) => {
                    // Out of descriptors, most likely: others must end before more can come.
                    tracing::warn!(%why, "cannot accept");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            },
        }
        while known.try_join_next().is_some() {}
    }
}

/// Hands a channel to the driver once the decode agent uses it. One that it gives up, since another
/// rank of this engine is not what it looked for, must take the place of none.
async fn attach(mut fresh: Fresh, agent: Arc<Agent>) {
    if fresh.is_used().await {
        let _ = agent.commands.send(Command::Attach(fresh)).await;
    }
}

/// Those who have not said yet who they are.
#[derive(Default)]
struct Strangers {
    /// Ends with the channel of whoever is a stranger no more.
    greetings: JoinSet<Option<Opened>>,
    /// The first came first.
    order: VecDeque<AbortHandle>,
}

impl Strangers {
    /// Whether one more may come. Those who were turned away count until they are gone.
    fn are_few(&self) -> bool {
        self.greetings.len() < 2 * MAX_STRANGERS
    }

    /// Lets one more introduce itself, in the place of the oldest if need be.
    fn admit(&mut self, greeting: impl Future<Output = Option<Opened>> + Send + 'static) {
        self.order.retain(|stranger| !stranger.is_finished());
        if self.order.len() >= MAX_STRANGERS
            && let Some(oldest) = self.order.pop_front()
        {
            tracing::debug!("a stranger made room for another");
            oldest.abort();
        }
        self.order.push_back(self.greetings.spawn(greeting));
    }
}

async fn greet(stream: TcpStream, from: SocketAddr, agent: Arc<Agent>) -> Option<Opened> {
    let Trust { secret, tls } = &agent.trust;
    let greeting = agent::greeting(Role::Prefill, &agent.handshake, secret.clone());
    let opened = match greeting {
        Ok(greeting) => control::accept(stream, tls.as_deref(), greeting, &agent.handshake).await,
        Err(why) => Err(why.into()),
    };
    match &opened {
        Ok(opened) => {
            tracing::info!(%from, agent = opened.theirs.agent.0, "decode agent connected");
        }
        Err(ControlError::Mismatch(Mismatch { field, ours, theirs })) => {
            tracing::warn!(%from, %field, %ours, %theirs, "a decode agent does not match");
        }
        Err(why) if why.class() == Class::Config => {
            tracing::warn!(%from, %why, "a decode agent was turned away");
        }
        Err(why) => tracing::info!(%from, %why, "a stranger was turned away"),
    }
    opened.ok()
}
