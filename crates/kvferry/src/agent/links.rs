//! Control channels that are open, as the driver sees them.

use std::sync::atomic::{AtomicU64, Ordering};

use connector::Peer;
use connector::message::Message;
use tokio::sync::{mpsc, oneshot};
use transport::{Card, ConnectError};

use super::{AbortOnDrop, Command};
use crate::control::{Inbound, Opened, Outbound};

/// Messages that may wait for a slow peer; one more, and it counts as lost.
const QUEUE: usize = 4096;

/// The sending end of one channel and the tasks that serve it.
pub(crate) struct Link {
    /// Tells this channel from an earlier one of the same agent.
    pub(super) id: u64,
    pub(super) messages: mpsc::Sender<Message>,
    _tasks: [AbortOnDrop; 2],
}

/// Gives a fresh channel to the driver. Gives the peer, and a receiver that ends with the
/// channel.
pub(crate) async fn attach(
    commands: &mpsc::Sender<Command>,
    opened: Opened,
    card: Option<Card>,
) -> Option<(Result<(), ConnectError>, oneshot::Receiver<()>)> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let id = NEXT.fetch_add(1, Ordering::Relaxed);
    let peer = Peer { engine: opened.theirs.engine, agent: opened.theirs.agent };
    let (messages, outgoing) = mpsc::channel(QUEUE);
    let (open, closed) = oneshot::channel();
    let hear = hear(opened.inbound, peer, id, commands.clone(), open);
    let say = say(opened.outbound, outgoing);
    let tasks = [AbortOnDrop(tokio::spawn(hear)), AbortOnDrop(tokio::spawn(say))];
    let link = Link { id, messages, _tasks: tasks };
    let (reply, attached) = oneshot::channel();
    commands.send(Command::Attach { peer, card, link, reply }).await.ok()?;
    Some((attached.await.ok()?, closed))
}

async fn hear(
    mut inbound: Inbound,
    from: Peer,
    link: u64,
    commands: mpsc::Sender<Command>,
    _open: oneshot::Sender<()>,
) {
    loop {
        match inbound.next().await {
            Ok(Some(message)) => {
                if commands.send(Command::Heard { from, message }).await.is_err() {
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
    while let Some(message) = outgoing.recv().await {
        // The receiving task sees the same socket end, and tells the driver.
        if outbound.send(&message).await.is_err() {
            return;
        }
    }
}
