//! What decides the bytes of a KV cache.

use kvferry::PromptIdentity;
use pyo3::prelude::*;

/// A number of tokens and a digest of all that decided their KV.
#[pyclass(frozen, eq, from_py_object, module = "kvferry")]
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct PromptDigest(pub(crate) kvferry::PromptDigest);

#[pymethods]
impl PromptDigest {
    /// Tokens whose KV exists.
    #[getter]
    fn valid(&self) -> u64 {
        self.0.valid
    }

    /// SHA-256 of tokens, model, adapter, multimodal hashes and salt.
    #[getter]
    fn sha256(&self) -> [u8; 32] {
        self.0.sha256
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.0)
    }
}

/// The digest of a prompt's first tokens, which both engines compute from what they know.
#[pyfunction]
#[pyo3(signature = (tokens, *, model, revision = "", lora = None, multimodal = Vec::new(), salt = None))]
#[expect(clippy::needless_pass_by_value, reason = "Python lists come as values")]
pub(crate) fn prompt_digest(
    py: Python<'_>,
    tokens: Vec<u32>,
    model: &str,
    revision: &str,
    lora: Option<&str>,
    multimodal: Vec<String>,
    salt: Option<&str>,
) -> PromptDigest {
    let multimodal: Vec<&str> = multimodal.iter().map(String::as_str).collect();
    let identity =
        PromptIdentity { tokens: &tokens, model, revision, lora, multimodal: &multimodal, salt };
    PromptDigest(py.detach(|| identity.digest()))
}
