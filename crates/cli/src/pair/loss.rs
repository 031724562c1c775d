//! What a run ends of before it is over.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

use crate::failure::{Code, Failure};

/// A process that is gone is seen to be gone within this time.
const POST_MORTEM: Duration = Duration::from_secs(1);

/// The first of all that were needed that ended before it was told to, and why.
#[derive(Clone)]
pub(crate) struct FirstLoss(Arc<watch::Sender<Option<Failure>>>);

impl FirstLoss {
    pub(crate) fn new() -> Self {
        Self(Arc::new(watch::Sender::new(None)))
    }

    pub(super) fn tell(&self, why: &Failure) {
        let tell =
            |first: &mut Option<Failure>| first.is_none() && first.replace(why.clone()).is_none();
        self.0.send_if_modified(tell);
    }

    /// Waits until something is lost.
    pub(crate) async fn known(&self) -> Failure {
        let mut loss = self.0.subscribe();
        let first = loss.wait_for(Option::is_some).await.ok().and_then(|first| first.clone());
        // This value is the sender, so that the other case is none.
        first.unwrap_or_else(|| Failure::new(Code::Failed, "nothing was lost"))
    }

    /// What is behind `failure`: to the others, an end may look like anything but wrong bytes and
    /// wrong input, which speak for themselves.
    pub(super) async fn behind(
        &self,
        failure: Failure,
        hangs: impl Future<Output = Option<Failure>>,
    ) -> Failure {
        if matches!(failure.code, Code::Bytes | Code::Input | Code::Unsupported) {
            return failure;
        }
        match timeout(POST_MORTEM, self.known()).await {
            Ok(first) => first,
            Err(_) => hangs.await.unwrap_or(failure),
        }
    }
}
