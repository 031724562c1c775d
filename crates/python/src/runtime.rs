//! Threads, random numbers and the log.

use std::io::IsTerminal;
use std::sync::Arc;

use kvferry::Class;
use pyo3::prelude::*;
use tokio::runtime::{Builder, Runtime};
use tracing_subscriber::EnvFilter;

use crate::errors::error;

/// Two threads: one may copy bytes while the other answers.
const THREADS: usize = 2;

/// The threads of one agent. They sleep when there is nothing to do.
pub(crate) fn start() -> PyResult<Arc<Runtime>> {
    let mut builder = Builder::new_multi_thread();
    let runtime = builder.worker_threads(THREADS).thread_name("kvferry").enable_all().build();
    runtime.map(Arc::new).map_err(|why| error(Class::Exhausted, format!("no threads: {why}")))
}

/// 64 random bits: the epoch of an engine, the nonce of a lease.
#[pyfunction]
pub(crate) fn random_u64() -> PyResult<u64> {
    kvferry::random_u64().map_err(|why| error(Class::Exhausted, why))
}

/// Writes the log to standard error from now on, as much of it as `filter` says: `warn`,
/// `kvferry=debug` and so on. The first call in a process counts.
#[pyfunction]
#[pyo3(signature = (filter = "warn"))]
pub(crate) fn log_to_stderr(filter: &str) -> PyResult<()> {
    let filter = EnvFilter::try_new(filter)
        .map_err(|why| error(Class::Config, format!("log filter {filter:?}: {why}")))?;
    let colours = std::io::stderr().is_terminal();
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colours);
    // Another one may be there already, of another agent of this process.
    let _ = subscriber.with_writer(std::io::stderr).try_init();
    Ok(())
}
