//! One worker of an engine, as kvferry must know it.

use kvferry::Class;
use kvferry::connector::{EngineEpoch, Rank};
use kvferry::kv_layout::DType;
use kvferry::strided::RegionId;
use kvferry::transport::BoundRegion;
use pyo3::prelude::*;
use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::{Error, StrDeserializer};

use crate::borrow::Memory;
use crate::errors::error;
use crate::layout::CacheLayout;

/// One worker of an engine: who it is, where its KV cache lies, and where that of the engine's
/// other ranks does.
#[pyclass(frozen, module = "kvferry")]
pub(crate) struct Engine(pub(crate) kvferry::Engine);

#[pymethods]
impl Engine {
    /// `layouts` has one layout for each rank of the engine; `offsets` says where the regions of
    /// this rank's begin in `memory`, in bytes.
    #[new]
    #[pyo3(signature = (name, *, model, revision = "", dtype, epoch = None, rank = 0, layouts,
        memory, offsets))]
    #[expect(clippy::too_many_arguments, reason = "named in Python")]
    fn new(
        name: String,
        model: String,
        revision: &str,
        dtype: &str,
        epoch: Option<u64>,
        rank: u32,
        layouts: Vec<CacheLayout>,
        memory: &Memory,
        offsets: Vec<u64>,
    ) -> PyResult<Self> {
        let none = || error(Class::Bug, format!("rank {rank} of {} layouts", layouts.len()));
        let own = layouts.get(rank as usize).ok_or_else(none)?;
        let regions = &own.0.regions;
        if regions.len() != offsets.len() {
            let why = format!("{} offsets of {} regions", offsets.len(), regions.len());
            return Err(error(Class::Bug, why));
        }
        let bound = (0..).map(RegionId).zip(offsets).zip(regions);
        let bound = bound.map(|((id, offset), region)| BoundRegion { id, offset, region: *region });
        Ok(Self(kvferry::Engine {
            name,
            model,
            revision: revision.to_owned(),
            dtype: element(dtype)?,
            epoch: epoch.map(EngineEpoch),
            rank: Rank(rank),
            regions: bound.collect(),
            memory: memory.share(),
            layouts: layouts.into_iter().map(|layout| layout.0).collect(),
        }))
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.0)
    }
}

fn element(dtype: &str) -> PyResult<DType> {
    let name: StrDeserializer<'_, Error> = dtype.into_deserializer();
    DType::deserialize(name)
        .map_err(|_| error(Class::Config, format!("dtype {dtype:?}: one of bf16, f16, f32, fp8")))
}
