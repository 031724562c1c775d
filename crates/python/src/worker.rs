//! One rank of an engine, led by its scheduler.

use std::sync::Arc;

use kvferry::connector::{Ended, Why, Word};
use kvferry::{Part, WorkerDriver};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use tokio::runtime::Runtime;

use crate::config::Config;
use crate::engine::Engine;
use crate::errors::{Raised, kind};
use crate::scheduler::{orders, words};

/// One rank: follows the orders of its engine's `Scheduler` on threads of its own, and reports
/// how they ended. Only `withdraw` waits.
#[pyclass(frozen, module = "kvferry")]
pub(crate) struct Worker {
    driver: WorkerDriver,
    runtime: Arc<Runtime>,
}

/// How something ended at this rank: `what` is `freed`, `received`, `failed`, `released` or
/// `nothing`.
#[pyclass(frozen, get_all, module = "kvferry")]
pub(crate) struct Report {
    what: &'static str,
    /// This engine's name for the request.
    request: String,
    /// Of a freed lease, how it ended: `satisfied`, `released` or `over`.
    why: Option<&'static str>,
    /// Why it failed.
    message: Option<String>,
    /// What to do about it: `retry`, `peer_lost`, `protocol`, `config`, `exhausted` or `bug`.
    kind: Option<&'static str>,
    /// Bytes that this rank read.
    bytes: u64,
    /// Seconds until P had answered the claim.
    claiming: f64,
    /// Seconds from the order to read until the bytes counted.
    reading: f64,
}

/// How one rank of a prefill engine is read.
#[pyclass(frozen, get_all, module = "kvferry")]
pub(crate) struct Path {
    /// Where that rank was reached.
    peer: String,
    /// `shm` or `tcp`.
    provider: &'static str,
    /// What was measured before it was chosen, where that was possible.
    bytes_per_second: Option<u64>,
    /// Why it is not another one.
    why: String,
    /// A faster one should work, and does not.
    falls_short: bool,
}

#[pymethods]
impl Worker {
    /// `part` is `prefill`, `decode` or `both`.
    #[new]
    #[pyo3(signature = (config, engine, part = "both"))]
    fn new(py: Python<'_>, config: &Config, engine: &Engine, part: &str) -> PyResult<Self> {
        let part = match part {
            "prefill" => Part::Prefill,
            "decode" => Part::Decode,
            "both" => Part::Both,
            _ => {
                let why = format!("part {part:?}: one of prefill, decode, both");
                return Err(PyValueError::new_err(why));
            }
        };
        let runtime = crate::runtime::start()?;
        let started =
            py.detach(|| runtime.block_on(WorkerDriver::start(&config.0, &engine.0, part)));
        Ok(Self { driver: started.map_err(Raised::raised)?, runtime })
    }

    /// Host and port at which decode agents reach this rank; `None` if it hands nothing off.
    #[getter]
    fn address(&self) -> Option<(String, u16)> {
        self.driver.advertised().map(|at| (at.host.clone(), at.port))
    }

    /// Takes what `Scheduler.orders` gave.
    fn follow(&self, bytes: &[u8]) -> PyResult<()> {
        orders(bytes)?.into_iter().for_each(|order| self.driver.follow(order));
        Ok(())
    }

    /// What has ended since the last call, and the same as bytes for `Scheduler.hear`; the bytes
    /// are `None` where nothing has.
    fn reports<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(Vec<Report>, Option<Bound<'py, PyBytes>>)> {
        let reports = self.driver.reports();
        if reports.is_empty() {
            return Ok((Vec::new(), None));
        }
        let said: Vec<Word> = reports.iter().map(|report| report.word.clone()).collect();
        let said = PyBytes::new(py, &words(&said)?);
        Ok((reports.into_iter().map(Report::from).collect(), Some(said)))
    }

    /// How each rank of prefill engines is read; `None` where that has not changed since the last
    /// call.
    fn paths(&self) -> Option<Vec<Path>> {
        let paths = self.driver.new_paths()?;
        Some(paths.into_iter().map(Path::from).collect())
    }

    /// Ends everything that touches the memory, and returns when nothing does.
    fn withdraw(&self, py: Python<'_>) {
        py.detach(|| self.runtime.block_on(self.driver.withdraw()));
    }

    /// The memory is there again, at the same place.
    fn restore(&self) {
        self.driver.restore();
    }

    /// What the agents hold now.
    fn counts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let [kept, fetched] = py.detach(|| self.runtime.block_on(self.driver.counts()));
        let counts = PyDict::new(py);
        counts.set_item("leases", kept.leases)?;
        counts.set_item("claims", kept.claims)?;
        counts.set_item("refused", kept.refused)?;
        counts.set_item("receives", fetched.receives)?;
        counts.set_item("quarantined", fetched.quarantined)?;
        counts.set_item("engines", fetched.engines)?;
        counts.set_item("misdirected", kept.misdirected + fetched.misdirected)?;
        Ok(counts)
    }
}

impl From<kvferry::Path> for Path {
    fn from(path: kvferry::Path) -> Self {
        Self {
            peer: path.at.to_string(),
            provider: path.provider,
            bytes_per_second: path.rate,
            why: path.why,
            falls_short: path.falls_short,
        }
    }
}

impl From<kvferry::Report> for Report {
    fn from(report: kvferry::Report) -> Self {
        let (what, request, why) = match &report.word {
            Word::Freed { lease, why } => ("freed", &lease.request, Some(ending(*why))),
            Word::Ended { claim, how } => (name(how), &claim.request, None),
        };
        let request = request.as_str().to_owned();
        let mut told = Self {
            what,
            request,
            why,
            message: None,
            kind: None,
            bytes: 0,
            claiming: 0.0,
            reading: 0.0,
        };
        if let Word::Ended { how: Ended::Failed(failure), .. } = &report.word {
            told.message = Some(failure.to_string());
            told.kind = Some(kind(failure.class()));
        }
        if let Some(load) = report.load {
            told.claiming = load.claiming.as_secs_f64();
            told.reading = load.reading.as_secs_f64();
            match load.outcome {
                Ok(bytes) => told.bytes = bytes,
                Err(why) if what == "failed" => {
                    told.message = Some(why.to_string());
                    told.kind = Some(kind(why.class()));
                }
                Err(_) => {}
            }
        }
        told
    }
}

fn name(how: &Ended) -> &'static str {
    match how {
        Ended::Received => "received",
        Ended::Failed(_) => "failed",
        Ended::Released => "released",
        Ended::Nothing => "nothing",
    }
}

/// How a lease ended, as Python sees it.
pub(crate) fn ending(why: Why) -> &'static str {
    match why {
        Why::Satisfied => "satisfied",
        Why::Released => "released",
        Why::Over => "over",
    }
}
