//! The hand-off of engines of one rank, scheduler and worker in one.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kvferry::{Class, Freed};
use pyo3::prelude::*;
use pythonize::pythonize;
use tokio::runtime::Runtime;

use crate::config::Config;
use crate::engine::Engine;
use crate::errors::{Raised, error};
use crate::layout::{Table, tables};
use crate::prompt::PromptDigest;
use crate::scheduler::handoff_params;
use crate::worker::ending;

/// A prefill engine of one rank: keeps the blocks of finished prefills until they are read.
#[pyclass(frozen, module = "kvferry")]
pub(crate) struct Prefill {
    prefill: kvferry::Prefill,
    freed: Mutex<Freed>,
    runtime: Arc<Runtime>,
}

/// A decode engine of one rank: claims and reads what prefill engines offer.
#[pyclass(frozen, module = "kvferry")]
pub(crate) struct Decode {
    decode: kvferry::Decode,
    runtime: Arc<Runtime>,
}

/// A claimed prompt, kept alive until it is received or collected.
#[pyclass(module = "kvferry")]
pub(crate) struct Offered {
    offered: Option<kvferry::Offered>,
    runtime: Arc<Runtime>,
}

#[pymethods]
impl Prefill {
    #[new]
    fn new(py: Python<'_>, config: &Config, engine: &Engine) -> PyResult<Self> {
        let runtime = crate::runtime::start()?;
        let started = py.detach(|| runtime.block_on(kvferry::Prefill::start(&config.0, &engine.0)));
        let (prefill, freed) = started.map_err(Raised::raised)?;
        Ok(Self { prefill, freed: Mutex::new(freed), runtime })
    }

    /// Promises to keep the blocks of a finished prefill, which must not change before `freed`
    /// names the request. Gives `kv_transfer_params`, plain dictionaries for any router.
    fn offer<'py>(
        &self,
        py: Python<'py>,
        request: &str,
        prompt: PromptDigest,
        tables_of: Vec<Table>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let tables = tables(tables_of);
        let offer = self.prefill.offer(request, prompt.0, &tables);
        let params = py.detach(|| self.runtime.block_on(offer)).map_err(Raised::raised)?;
        Ok(pythonize(py, &params.to_json())?)
    }

    /// Waits for the next request whose blocks may be reused, `timeout` seconds at most. Gives
    /// its name and how it ended (`satisfied`, `released` or `over`), or `None`.
    fn freed(&self, py: Python<'_>, timeout: f64) -> PyResult<Option<(String, &'static str)>> {
        let timeout = Duration::try_from_secs_f64(timeout)
            .map_err(|why| error(Class::Bug, format!("a timeout of {timeout}: {why}")))?;
        let freed = py.detach(|| {
            let mut freed = self.freed.lock().unwrap_or_else(PoisonError::into_inner);
            self.runtime.block_on(async {
                let next = tokio::time::timeout(timeout, freed.next());
                next.await.ok().flatten()
            })
        });
        Ok(freed.map(|freed| (freed.request.as_str().to_owned(), ending(freed.why))))
    }
}

#[pymethods]
impl Decode {
    #[new]
    fn new(config: &Config, engine: &Engine) -> PyResult<Self> {
        let runtime = crate::runtime::start()?;
        let started = {
            let _inside = runtime.enter();
            kvferry::Decode::start(&config.0, &engine.0)
        };
        Ok(Self { decode: started.map_err(Raised::raised)?, runtime })
    }

    /// Claims the blocks that `params` lead to, for a request that this engine calls `request`.
    /// The request may still be queued: the claim is renewed for as long as the result lives.
    fn claim(
        &self,
        py: Python<'_>,
        request: &str,
        params: &Bound<'_, PyAny>,
        prompt: PromptDigest,
    ) -> PyResult<Offered> {
        let params = handoff_params(params)?;
        let claim = self.decode.claim(request, &params, prompt.0);
        let offered = py.detach(|| self.runtime.block_on(claim)).map_err(Raised::raised)?;
        Ok(Offered { offered: Some(offered), runtime: Arc::clone(&self.runtime) })
    }
}

#[pymethods]
impl Offered {
    /// Reads into the blocks of `tables` what a computation from `resume_at` on needs, and
    /// commits. `hits` has the tokens that the prefix cache had, one number for each KV cache
    /// group. Gives the bytes that moved. Can be called once.
    #[pyo3(signature = (tables_of, resume_at, hits = Vec::new()))]
    fn receive(
        &mut self,
        py: Python<'_>,
        tables_of: Vec<Table>,
        resume_at: u64,
        hits: Vec<u64>,
    ) -> PyResult<u64> {
        let offered = self.offered.take();
        let offered = offered.ok_or_else(|| error(Class::Bug, "received already"))?;
        let tables = tables(tables_of);
        let received = offered.after(&hits);
        py.detach(|| self.runtime.block_on(received.receive(&tables, resume_at)))
            .map_err(Raised::raised)
    }
}
