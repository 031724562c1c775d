//! One request that a rank fetches.

use std::sync::Arc;
use std::time::{Duration, Instant};

use connector::Allocation;
use tokio::sync::oneshot;

use super::Load;
use crate::decode::Asked;
use crate::{FetchError, Offered};

/// The hold that orders have on a request; dropped, it is given up.
pub(super) struct Request {
    blocks: Option<oneshot::Sender<Arc<Allocation>>>,
    wanted: oneshot::Sender<()>,
}

impl Request {
    /// Of a claim that was made. What comes with it ends when nothing can touch the request's
    /// blocks any more.
    pub(super) fn new(asked: Asked) -> (Self, impl Future<Output = Load> + Send + 'static) {
        let (blocks, given) = oneshot::channel();
        let (wanted, unwanted) = oneshot::channel();
        (Self { blocks: Some(blocks), wanted }, serve(asked, given, unwanted))
    }

    /// There are blocks for it.
    pub(super) fn read(&mut self, allocation: Arc<Allocation>) {
        if let Some(blocks) = self.blocks.take() {
            // One that has ended needs none.
            let _ = blocks.send(allocation);
        }
    }

    /// Whether it has not ended.
    pub(super) fn is_open(&self) -> bool {
        !self.wanted.is_closed()
    }
}

async fn serve(
    asked: Asked,
    given: oneshot::Receiver<Arc<Allocation>>,
    mut unwanted: oneshot::Receiver<()>,
) -> Load {
    let begun = Instant::now();
    let offered = tokio::select! {
        biased;
        _ = &mut unwanted => Err(FetchError::Released),
        offered = asked.offered() => offered,
    };
    let claiming = begun.elapsed();
    match offered {
        Ok(offered) => receive(offered, given, unwanted, claiming).await,
        Err(why) => Load { claiming, reading: Duration::ZERO, outcome: Err(why) },
    }
}

async fn receive(
    offered: Offered,
    given: oneshot::Receiver<Arc<Allocation>>,
    mut unwanted: oneshot::Receiver<()>,
    claiming: Duration,
) -> Load {
    let (settled, lapsed) = (offered.settled(), offered.lapsed());
    let mut begun = Instant::now();
    let received = async {
        let blocks = tokio::select! {
            given = given => given.map_err(|_| FetchError::Released)?,
            why = lapsed => return Err(why),
        };
        begun = Instant::now();
        let hits: Vec<u64> = blocks.groups.iter().map(|(_, hit)| *hit).collect();
        offered.after(&hits).receive(&blocks.tables, blocks.resume_at).await
    };
    let outcome = tokio::select! {
        biased;
        _ = &mut unwanted => Err(FetchError::Released),
        received = received => received,
    };
    if outcome.is_err() {
        settled.await;
    }
    Load { claiming, reading: begun.elapsed(), outcome }
}
