//! What the driver waits for beside its commands.

use std::os::fd::OwnedFd;
use std::time::Instant;

use tokio::io::unix::AsyncFd;

/// Returns when the endpoint has events. The readiness is cleared before they are taken, so
/// that what comes in between shows again.
pub(super) async fn readable(ready: &AsyncFd<OwnedFd>) {
    match ready.readable().await {
        Ok(mut guard) => guard.clear_ready(),
        // The runtime is going away, and this task with it.
        Err(_) => std::future::pending().await,
    }
}

pub(super) async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}
