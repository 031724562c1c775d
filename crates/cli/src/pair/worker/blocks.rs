//! The blocks of a rank's pool, given out in the order in which requests come.

use std::sync::Arc;
use std::time::Duration;

use sim::Engine;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use super::super::resume_at;
use crate::failure::{Code, Failure};

/// After the parent's last word, everything must be read and given back within this time.
const FINISH: Duration = Duration::from_secs(60);

/// The right to have so many blocks.
pub(super) type Permit = OwnedSemaphorePermit;

/// A turn in the queue for blocks.
pub(super) type Turn = oneshot::Receiver<Permit>;

#[derive(Clone)]
pub(super) struct Blocks {
    engine: Arc<Engine>,
    /// One permit a block.
    permits: Arc<Semaphore>,
    queue: mpsc::UnboundedSender<(u32, oneshot::Sender<Permit>)>,
}

impl Blocks {
    /// Must be called in a tokio runtime.
    pub(super) fn new(engine: Arc<Engine>) -> Self {
        let permits = Arc::new(Semaphore::new(engine.capacity()));
        let (queue, queued) = mpsc::unbounded_channel();
        tokio::spawn(give(Arc::clone(&permits), queued));
        Self { engine, permits, queue }
    }

    pub(super) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Queues for the blocks of a prompt of `tokens`.
    pub(super) fn queue(&self, request: u64, tokens: u64) -> Result<Turn, Failure> {
        let needed = self.engine.blocks_needed(tokens, resume_at(tokens));
        if needed > self.engine.capacity() as u64 {
            // Waiting for them would never end.
            let why = format!("request {request}: {tokens} tokens are larger than the pool");
            return Err(Failure::new(Code::Failed, why));
        }
        let (permit, turn) = oneshot::channel();
        let _ = self.queue.send((u32::try_from(needed).unwrap_or(u32::MAX), permit));
        Ok(turn)
    }

    /// Waits until every block is back, and checks that the whole pool is as untouched as at the
    /// start. Blocks that do not come back are for the account to tell.
    pub(super) async fn settle(&self) -> Result<(), Failure> {
        let all = u32::try_from(self.engine.capacity()).unwrap_or(u32::MAX);
        match tokio::time::timeout(FINISH, self.permits.acquire_many(all)).await {
            Ok(_) => self.engine.inspect_pool().map_err(|fault| Failure::new(Code::Bytes, fault)),
            Err(_) => {
                tracing::error!("blocks are still kept");
                Ok(())
            }
        }
    }
}

async fn give(
    permits: Arc<Semaphore>,
    mut queue: mpsc::UnboundedReceiver<(u32, oneshot::Sender<Permit>)>,
) {
    while let Some((needed, turn)) = queue.recv().await {
        let Ok(permit) = Arc::clone(&permits).acquire_many_owned(needed).await else { return };
        // Whoever has given up needs none.
        let _ = turn.send(permit);
    }
}

/// Waits for a turn.
pub(super) async fn granted(request: u64, turn: Turn) -> Result<Permit, Failure> {
    turn.await.map_err(|_| Failure::new(Code::Failed, format!("request {request}: no blocks")))
}

/// Does work on the blocks of a request that holds the permits for them: the permits are the
/// blocks, so that no answer, like a panic, is a bug that the parent must hear of.
pub(super) async fn filled<T: Send + 'static>(
    request: u64,
    work: impl FnOnce() -> Option<T> + Send + 'static,
) -> Result<T, Failure> {
    let bug = |why: &dyn std::fmt::Display| {
        Failure::new(Code::Failed, format!("request {request}: {why}"))
    };
    let filled = tokio::task::spawn_blocking(work).await.map_err(|why| bug(&why))?;
    filled.ok_or_else(|| bug(&"out of blocks"))
}
