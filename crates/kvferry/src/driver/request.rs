//! One request that a rank fetches.

use std::sync::Arc;
use std::time::{Duration, Instant};

use connector::{Allocation, Fetch};
use tokio::sync::oneshot;

use super::Load;
use crate::{Decode, FetchError, Offered};

/// The hold that orders have on a request; dropped, it is given up.
pub(super) struct Request {
    blocks: Option<oneshot::Sender<Arc<Allocation>>>,
    wanted: oneshot::Sender<()>,
}

impl Request {
    /// Claims. What comes with it ends when nothing can touch the request's blocks any more.
    pub(super) fn start(
        decode: Arc<Decode>,
        fetch: Fetch,
    ) -> (Self, impl Future<Output = Load> + Send + 'static) {
        let (blocks, given) = oneshot::channel();
        let (wanted, unwanted) = oneshot::channel();
        let ends = serve(decode, fetch, given, unwanted);
        (Self { blocks: Some(blocks), wanted }, ends)
    }

    /// There are blocks for it.
    pub(super) fn read(&mut self, allocation: Arc<Allocation>) {
        let blocks = self.blocks.take();
        blocks.into_iter().for_each(|blocks| drop(blocks.send(Arc::clone(&allocation))));
    }

    /// Whether it has not ended.
    pub(super) fn is_open(&self) -> bool {
        !self.wanted.is_closed()
    }
}

async fn serve(
    decode: Arc<Decode>,
    fetch: Fetch,
    given: oneshot::Receiver<Arc<Allocation>>,
    mut unwanted: oneshot::Receiver<()>,
) -> Load {
    let begun = Instant::now();
    let offered = tokio::select! {
        // The claim goes out first: P must hear also of a request that nobody wants.
        biased;
        offered = decode.fetch(fetch) => offered,
        _ = &mut unwanted => Err(FetchError::Released),
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
    let settled = offered.settled();
    let mut begun = Instant::now();
    let received = async {
        let blocks = given.await.map_err(|_| FetchError::Released)?;
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
