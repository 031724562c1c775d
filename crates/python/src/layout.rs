//! Layouts and block tables.

use kvferry::Class;
use kvferry::kv_layout::{self, BlockTable};
use pyo3::prelude::*;
use pythonize::{depythonize, pythonize};

use crate::errors::error;

/// Where one rank of an engine keeps its KV cache: regions, KV cache groups, and the place of
/// every layer in them. Made of plain dictionaries and lists, and comes out as such.
#[pyclass(frozen, eq, from_py_object, module = "kvferry")]
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct CacheLayout(pub(crate) kv_layout::CacheLayout);

/// Position of the first token of the first block, and the block ids.
pub(crate) type Table = (u64, Vec<u32>);

#[pymethods]
impl CacheLayout {
    #[new]
    fn new(layout: &Bound<'_, PyAny>) -> PyResult<Self> {
        let layout = depythonize(layout);
        layout.map(Self).map_err(|why| error(Class::Config, format!("no cache layout: {why}")))
    }

    /// As it is given to the constructor.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(pythonize(py, &self.0)?)
    }

    fn __repr__(&self) -> String {
        let kv_layout::CacheLayout { regions, groups, layers } = &self.0;
        let (regions, groups, layers) = (regions.len(), groups.len(), layers.len());
        format!("CacheLayout({regions} regions, {groups} groups, {layers} layers)")
    }
}

/// Block tables of one request, one for each KV cache group.
pub(crate) fn tables(given: Vec<Table>) -> Vec<BlockTable> {
    let table = |(first_token, ids): Table| BlockTable { first_token, ids: ids.into() };
    given.into_iter().map(table).collect()
}
