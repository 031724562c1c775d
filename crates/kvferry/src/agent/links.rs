//! Control channels that are open, as the driver sees them.

use std::sync::atomic::{AtomicU64, Ordering};

use connector::Peer;
use connector::message::Message;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::{AbortOnDrop, Command};
use crate::control::{BEAT, Inbound, Opened, Outbound};

/// Messages that may wait for a slow peer; one more, and it counts as lost.
const QUEUE: usize = 4096;

/// The sending end of one channel and the tasks that serve it.
pub(crate) struct Link {
    /// As of [`Fresh`].
    pub(super) id: u64,
    pub(super) messages: mpsc::Sender<Message>,
    _tasks: [AbortOnDrop; 2],
}

/// A channel that the driver does not know yet; nothing is heard on it before it does.
pub(crate) struct Fresh {
    pub(super) peer: Peer,
    /// Counts up with each that is opened.
    pub(super) id: u64,
    inbound: Inbound,
    outbound: Outbound,
    commands: mpsc::Sender<Command>,
}

impl Fresh {
    /// One whose messages will go to `commands`.
    pub(crate) fn new(opened: Opened, commands: mpsc::Sender<Command>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let Opened { theirs, inbound, outbound, .. } = opened;
        let peer = Peer { engine: theirs.engine, agent: theirs.agent };
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        Self { peer, id, inbound, outbound, commands }
    }

    /// Waits until the peer, which has dialled, uses the channel; false if it never does.
    pub(crate) async fn is_used(&mut self) -> bool {
        self.inbound.begins().await
    }

    /// Begins to listen. What is heard becomes commands, so the driver, which calls this itself,
    /// knows the channel before it gets the first.
    pub(super) fn start(self) -> Link {
        let id = self.id;
        let (messages, outgoing) = mpsc::channel(QUEUE);
        let hear = hear(self.inbound, self.peer, id, self.commands);
        let say = say(self.outbound, outgoing);
        let tasks = [AbortOnDrop(tokio::spawn(hear)), AbortOnDrop(tokio::spawn(say))];
        Link { id, messages, _tasks: tasks }
    }
}

async fn hear(mut inbound: Inbound, from: Peer, link: u64, commands: mpsc::Sender<Command>) {
    loop {
        match inbound.next().await {
            Ok(Some(message)) => {
                if commands.send(Command::Heard { from, link, message }).await.is_err() {
                    return;
                }
            }
            Ok(None) => break,
            Err(why) => {
                tracing::warn!(agent = from.agent.0, %why, "control channel lost");
                break;
            }
        }
    }
    let _ = commands.send(Command::Closed { agent: from.agent, link }).await;
}

async fn say(mut outbound: Outbound, mut outgoing: mpsc::Receiver<Message>) {
    // The first beat comes at once: P takes a channel into use when D has.
    let mut said = outbound.beat().await;
    loop {
        // The receiving task sees the same socket end, and tells the driver.
        if let Err(why) = said {
            tracing::warn!(%why, "nothing more can be said on a control channel");
            return;
        }
        said = match timeout(BEAT, outgoing.recv()).await {
            Ok(Some(message)) => outbound.send(&message).await,
            Ok(None) => return,
            Err(_) => outbound.beat().await,
        };
    }
}
