//! The parameters that travel from P to D through any router, as plain JSON.
//!
//! vLLM's names keep their meaning (`vllm/distributed/kv_transfer/kv_connector/v1/nixl`), ours
//! stand under `kvferry`. They are hints from outside: they say where to ask, never what to
//! read. `remote_block_ids` is left out, for P's answer to the claim is the authority.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::class::Class;
use crate::ids::{EngineEpoch, LeaseId, Nonce, RequestId};
use crate::limits::{MAX_NAME, MAX_RANKS};

/// Version of our own part.
const VERSION: u64 = 1;

/// Where the KV of a prompt waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandoffParams {
    /// What to claim (`remote_request_id`, `kvferry.engine`, `kvferry.nonce`).
    pub lease: LeaseId,
    /// Where P answers.
    pub address: Address,
    /// Tokens whose KV exists (`remote_num_tokens`).
    pub tokens: u64,
}

/// Where an engine answers and how many ranks it has.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Address {
    /// Its configured name (`remote_engine_id`), 1 to 1024 bytes.
    pub engine_id: String,
    /// Its tensor parallel ranks (`tp_size`), 1 to 4096.
    pub tp_size: u32,
    /// Where its rank 0 answers (`remote_host`, `remote_port`).
    pub first: RankAddress,
    /// Where ranks 1, 2, … answer, at most 4095 of them (`kvferry.other_ranks`).
    pub others: Vec<RankAddress>,
}

/// Where the control channel of one rank is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RankAddress {
    /// Its host name or IP address, 1 to 1024 bytes.
    pub host: String,
    /// Its port, not 0.
    pub port: u16,
}

impl fmt::Display for RankAddress {
    /// As people write it: an IPv6 address in brackets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

/// Why parameters, or an address to be put into some, are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParamsError {
    /// A field that is absent, of another type or out of its range.
    #[error("`{field}` is absent or not {expected}")]
    Field {
        /// Its name.
        field: &'static str,
        /// What it must be.
        expected: &'static str,
    },
    /// `do_remote_prefill` is not true: there is nothing to fetch.
    #[error("`do_remote_prefill` is not true")]
    NothingRemote,
    /// P does not hand off in the way that this side does.
    #[error("`transfer_mode` is not \"pull\"")]
    NotPull,
    /// P speaks another version of `kvferry`.
    #[error("version {theirs} of `kvferry` is not {VERSION}")]
    Version {
        /// P's version.
        theirs: u64,
    },
}

impl ParamsError {
    /// What to do about it.
    #[must_use]
    pub fn class(&self) -> Class {
        match self {
            Self::Field { .. } | Self::NothingRemote => Class::Protocol,
            Self::NotPull | Self::Version { .. } => Class::Config,
        }
    }
}

impl HandoffParams {
    /// The JSON object `kv_transfer_params`. 64-bit numbers of ours are 16 hexadecimal digits,
    /// since routers may read JSON numbers as floats.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let Address { engine_id, tp_size, first, others } = &self.address;
        let mut ours = json!({
            "version": VERSION,
            "engine": hex(self.lease.engine.0),
            "nonce": hex(self.lease.nonce.0),
        });
        if !others.is_empty() {
            ours["other_ranks"] = json!(others);
        }
        json!({
            "do_remote_prefill": true,
            "do_remote_decode": false,
            "remote_engine_id": engine_id,
            "remote_request_id": self.lease.request.as_str(),
            "remote_host": first.host,
            "remote_port": first.port,
            "tp_size": tp_size,
            "remote_num_tokens": self.tokens,
            "transfer_mode": "pull",
            "kvferry": ours,
        })
    }

    /// Reads `kv_transfer_params`. Unknown fields are ignored, an absent `transfer_mode` means
    /// pull, and every field named above must be there and in its range.
    ///
    /// # Errors
    /// The first field that is not as it must be, by name.
    pub fn from_json(params: &Value) -> Result<Self, ParamsError> {
        if params.get("do_remote_prefill") != Some(&Value::Bool(true)) {
            return Err(ParamsError::NothingRemote);
        }
        match params.get("transfer_mode") {
            None => {}
            Some(mode) if mode == "pull" => {}
            Some(_) => return Err(ParamsError::NotPull),
        }
        Ok(Self {
            lease: lease(params)?,
            address: Address::from_json(params)?,
            tokens: number(params, "remote_num_tokens", "a positive number")?,
        })
    }
}

fn lease(params: &Value) -> Result<LeaseId, ParamsError> {
    let ours = object(params, "kvferry")?;
    match ours.get("version").and_then(Value::as_u64) {
        Some(VERSION) => {}
        Some(theirs) => return Err(ParamsError::Version { theirs }),
        None => return Err(field("kvferry.version", "a number")),
    }
    let request = text(params, "remote_request_id")?;
    let request = RequestId::new(request)
        .map_err(|_| field("remote_request_id", "a text of 1 to 256 bytes"))?;
    let engine = unhex(ours.get("engine"), "kvferry.engine")?;
    let nonce = unhex(ours.get("nonce"), "kvferry.nonce")?;
    Ok(LeaseId { engine: EngineEpoch(engine), request, nonce: Nonce(nonce) })
}

impl Address {
    /// Where all ranks answer, in their order.
    pub fn ranks(&self) -> impl Iterator<Item = &RankAddress> {
        std::iter::once(&self.first).chain(&self.others)
    }

    /// How many ranks there are.
    #[must_use]
    pub fn rank_count(&self) -> usize {
        1 + self.others.len()
    }

    fn from_json(params: &Value) -> Result<Self, ParamsError> {
        let port = number(params, "remote_port", PORT)?;
        let tp_size = number(params, "tp_size", RANKS)?;
        let first = RankAddress {
            host: text(params, "remote_host")?.to_owned(),
            port: u16::try_from(port).map_err(|_| field("remote_port", PORT))?,
        };
        let others = match object(params, "kvferry")?.get("other_ranks") {
            Some(others) => Vec::deserialize(others).map_err(|_| field(OTHERS, ADDRESSES))?,
            None => Vec::new(),
        };
        let address = Self {
            engine_id: text(params, "remote_engine_id")?.to_owned(),
            tp_size: u32::try_from(tp_size).map_err(|_| field("tp_size", RANKS))?,
            first,
            others,
        };
        address.checked()
    }

    /// Refuses what a peer would refuse.
    pub(crate) fn checked(self) -> Result<Self, ParamsError> {
        let named = |name: &str| (1..=MAX_NAME).contains(&name.len());
        if !named(&self.engine_id) {
            return Err(field("remote_engine_id", NAME));
        }
        if !is_host(&self.first.host) {
            return Err(field("remote_host", HOST));
        }
        if self.first.port == 0 {
            return Err(field("remote_port", PORT));
        }
        if !(1..=MAX_RANKS).contains(&self.tp_size) {
            return Err(field("tp_size", RANKS));
        }
        let right = |other: &RankAddress| is_host(&other.host) && other.port != 0;
        if self.rank_count() > MAX_RANKS as usize || !self.others.iter().all(right) {
            return Err(field(OTHERS, ADDRESSES));
        }
        Ok(self)
    }
}

/// Whether a text may be a host name or an IP address. It goes into logs and to the resolver.
fn is_host(text: &str) -> bool {
    let right = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:%".contains(&byte);
    (1..=MAX_NAME).contains(&text.len()) && text.bytes().all(right)
}

const NAME: &str = "a text of 1 to 1024 bytes";
const HOST: &str = "a host name or an IP address of at most 1024 bytes";
const PORT: &str = "a port number from 1 to 65535";
const RANKS: &str = "a number from 1 to 4096";
const OTHERS: &str = "kvferry.other_ranks";
const ADDRESSES: &str = "a list of at most 4095 objects of a host and a port";

fn field(field: &'static str, expected: &'static str) -> ParamsError {
    ParamsError::Field { field, expected }
}

fn text<'a>(params: &'a Value, name: &'static str) -> Result<&'a str, ParamsError> {
    params.get(name).and_then(Value::as_str).ok_or(field(name, "a text"))
}

fn object<'a>(
    params: &'a Value,
    name: &'static str,
) -> Result<&'a Map<String, Value>, ParamsError> {
    params.get(name).and_then(Value::as_object).ok_or(field(name, "an object"))
}

/// A positive number.
fn number(params: &Value, name: &'static str, expected: &'static str) -> Result<u64, ParamsError> {
    let number = params.get(name).and_then(Value::as_u64).filter(|number| *number > 0);
    number.ok_or(field(name, expected))
}

fn hex(number: u64) -> String {
    format!("{number:016x}")
}

fn unhex(value: Option<&Value>, name: &'static str) -> Result<u64, ParamsError> {
    let digits = value.and_then(Value::as_str).filter(|text| {
        text.len() == 16 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    });
    digits
        .and_then(|digits| u64::from_str_radix(digits, 16).ok())
        .ok_or(field(name, "16 lowercase hexadecimal digits"))
}
