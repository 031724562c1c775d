//! The hand-off at an engine's scheduler.

use kvferry::Class;
use kvferry::connector::params::{Address, RankAddress};
use kvferry::connector::{
    self, Allocation, EngineEpoch, Finished, Nonce, Order, Rank, RequestId, Word,
};
use kvferry::kv_layout::Kind;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use pythonize::{depythonize, pythonize};

use crate::errors::{Raised, error, kind};
use crate::layout::{Table, tables};
use crate::prompt::PromptDigest;

/// As prefill engine it grants leases and gathers their end over the ranks; as decode engine it
/// has requests fetched and gathers how that ended. No call waits.
#[pyclass(module = "kvferry")]
pub(crate) struct Scheduler(connector::Scheduler);

/// What the engine must know of a request: `what` is `freed`, `received`, `failed` or
/// `released`.
#[pyclass(frozen, get_all, module = "kvferry")]
pub(crate) struct Outcome {
    what: &'static str,
    request: String,
    /// Why it failed.
    message: Option<String>,
    /// What to do about it: `retry`, `peer_lost`, `protocol`, `config`, `exhausted` or `bug`.
    kind: Option<&'static str>,
    /// The last token from which a failed request can be computed with what was there before.
    recompute_from: Option<u64>,
}

#[pymethods]
impl Scheduler {
    /// `addresses` is where the engine's ranks answer, in their order: `Worker.address`, `None` of
    /// each where the engine hands nothing off.
    #[new]
    #[pyo3(signature = (epoch, *, engine_id, tp_size, addresses))]
    fn new(
        epoch: u64,
        engine_id: String,
        tp_size: u32,
        addresses: Vec<Option<(String, u16)>>,
    ) -> PyResult<Self> {
        let epoch = EngineEpoch(epoch);
        let ranks = u32::try_from(addresses.len()).unwrap_or(u32::MAX);
        let address = |(host, port)| RankAddress { host, port };
        let known: Option<Vec<_>> = addresses.into_iter().map(|at| at.map(address)).collect();
        let Some(known) = known else {
            return Ok(Self(connector::Scheduler::of_decode(epoch, ranks)));
        };
        let mut ranks = known.into_iter();
        let first = ranks.next().ok_or_else(|| error(Class::Bug, "an engine without a rank"))?;
        let address = Address { engine_id, tp_size, first, others: ranks.collect() };
        let scheduler = connector::Scheduler::new(epoch, address);
        Ok(Self(scheduler.map_err(Raised::raised)?))
    }

    /// P: grants a lease for a finished prefill and gives its `kv_transfer_params`. `tables` has
    /// the first token and the block ids of each KV cache group.
    fn finish<'py>(
        &mut self,
        py: Python<'py>,
        request: &str,
        prompt: PromptDigest,
        tables_of: Vec<Table>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let finished = Finished {
            request: named(request)?,
            nonce: Nonce(crate::runtime::random_u64()?),
            prompt: prompt.0,
            tables: tables(tables_of).into(),
        };
        let params = self.0.finish(finished).map_err(Raised::raised)?;
        Ok(pythonize(py, &params.to_json())?)
    }

    /// D: reads `kv_transfer_params`. Gives the number of tokens that P says it holds.
    fn admit(&self, request: &str, params: &Bound<'_, PyAny>) -> PyResult<u64> {
        Ok(self.remote(request, params)?.tokens)
    }

    /// D: has a request claimed by every rank. `prompt` is what this engine knows the first
    /// tokens of it to be, as many as `admit` has said.
    fn fetch(
        &mut self,
        request: &str,
        params: &Bound<'_, PyAny>,
        prompt: PromptDigest,
    ) -> PyResult<()> {
        let remote = self.remote(request, params)?;
        self.0.fetch(remote, prompt.0).map_err(Raised::raised)
    }

    /// D: the engine has given blocks to a request. `groups` has the kind of each KV cache group,
    /// as a layout names it, and the tokens that the prefix cache had of it.
    fn allocate(
        &mut self,
        request: &str,
        tables_of: Vec<Table>,
        resume_at: u64,
        groups: Vec<(Bound<'_, PyAny>, u64)>,
    ) -> PyResult<()> {
        let group = |(kind, hit): (Bound<'_, PyAny>, u64)| Ok((depythonize::<Kind>(&kind)?, hit));
        let groups = groups.into_iter().map(group).collect::<PyResult<_>>()?;
        let tables = tables(tables_of).into();
        let blocks = Allocation { tables, resume_at, align: 1, groups };
        self.0.allocate(&named(request)?, blocks);
        Ok(())
    }

    /// D: the engine does not want a request any more.
    fn release(&mut self, request: &str) -> PyResult<()> {
        self.0.release(&named(request)?);
        Ok(())
    }

    /// Takes what a worker reported.
    fn hear(&mut self, rank: u32, words: &[u8]) -> PyResult<()> {
        let words: Vec<Word> = serde_json::from_slice(words)
            .map_err(|why| error(Class::Bug, format!("no words of a worker: {why}")))?;
        words.into_iter().for_each(|word| self.0.hear(Rank(rank), word));
        Ok(())
    }

    /// The engine is about to take its memory away: no request under way will be received.
    fn withdraw(&mut self) {
        self.0.withdraw();
    }

    /// What every worker must be told, for `Worker.follow`; `None` if nothing.
    fn orders<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let orders: Vec<Order> = std::iter::from_fn(|| self.0.poll_order()).collect();
        if orders.is_empty() {
            return Ok(None);
        }
        let orders = serde_json::to_vec(&orders).map_err(|why| error(Class::Bug, why))?;
        Ok(Some(PyBytes::new(py, &orders)))
    }

    /// What has ended since the last call.
    fn outcomes(&mut self) -> Vec<Outcome> {
        std::iter::from_fn(|| self.0.poll_outcome()).map(Outcome::from).collect()
    }

    /// P: leases whose blocks are kept.
    #[getter]
    fn leases(&self) -> usize {
        self.0.leases()
    }

    /// D: requests whose outcome is not known.
    #[getter]
    fn requests(&self) -> usize {
        self.0.requests()
    }

    /// Total: words of workers about requests that did not wait for them.
    #[getter]
    fn strays(&self) -> u64 {
        self.0.strays()
    }
}

impl Scheduler {
    fn remote(
        &self,
        request: &str,
        params: &Bound<'_, PyAny>,
    ) -> PyResult<connector::RemotePrefill> {
        let params = handoff_params(params)?;
        self.0.admit(named(request)?, &params).map_err(Raised::raised)
    }
}

impl From<connector::Outcome> for Outcome {
    fn from(outcome: connector::Outcome) -> Self {
        let plain = |what, request: RequestId| Self {
            what,
            request: request.as_str().to_owned(),
            message: None,
            kind: None,
            recompute_from: None,
        };
        match outcome {
            connector::Outcome::Freed(lease) => plain("freed", lease.request),
            connector::Outcome::Received(request) => plain("received", request),
            connector::Outcome::Released(request) => plain("released", request),
            connector::Outcome::Failed { request, failure, recompute_from } => Self {
                message: Some(failure.to_string()),
                kind: Some(kind(failure.class())),
                recompute_from,
                ..plain("failed", request)
            },
        }
    }
}

/// `kv_transfer_params` out of the dictionaries that a router has carried.
pub(crate) fn handoff_params(params: &Bound<'_, PyAny>) -> PyResult<serde_json::Value> {
    depythonize(params).map_err(|why| error(Class::Protocol, format!("kv_transfer_params: {why}")))
}

fn named(request: &str) -> PyResult<RequestId> {
    RequestId::new(request).map_err(Raised::raised)
}

/// The words of a worker as bytes.
pub(crate) fn words(words: &[Word]) -> PyResult<Vec<u8>> {
    serde_json::to_vec(words).map_err(|why| error(Class::Bug, why))
}

/// The orders of a scheduler out of bytes.
pub(crate) fn orders(bytes: &[u8]) -> PyResult<Vec<Order>> {
    serde_json::from_slice(bytes)
        .map_err(|why| error(Class::Bug, format!("no orders of a scheduler: {why}")))
}
