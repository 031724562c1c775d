//! Reading a model's config.json.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use kv_layout::{ConfigError, EngineShape, Model};
use serde_json::Value;

use crate::failure::{Code, Failure};

/// Far above any published config.json.
const MAX_BYTES: u64 = 16 << 20;

/// Reads and parses `path`.
pub(crate) fn load(path: &Path) -> Result<Model, Failure> {
    let name = path.display().to_string();
    let text = read(path).map_err(|why| {
        Failure::input(format!("{name}: {why}"))
            .hint("give the path of a Hugging Face config.json; some are in models/")
    })?;
    Model::from_config(&text, &name).map_err(refused)
}

fn refused(why: ConfigError) -> Failure {
    let code = if why.is_unsupported() { Code::Unsupported } else { Code::Input };
    Failure::new(code, why)
}

/// Reads an engine's shape; blocks are of `block_size` tokens where it does not say.
pub(crate) fn load_shape(path: &Path, block_size: u32) -> Result<EngineShape, Failure> {
    let name = path.display().to_string();
    let wrong = |why: &dyn std::fmt::Display| {
        Failure::input(format!("{name}: {why}")).hint(
            "a shape is a JSON object such as {\"tensor\": 4, \"block_size\": 32}; see --help",
        )
    };
    let text = read(path).map_err(|why| wrong(&why))?;
    let shape: Value = serde_json::from_str(&text).map_err(|why| wrong(&why))?;
    if !shape.is_object() {
        return Err(wrong(&"not a JSON object"));
    }
    let says_block_size = shape.get("block_size").is_some();
    let shape: EngineShape = serde_json::from_value(shape).map_err(|why| wrong(&why))?;
    Ok(if says_block_size { shape } else { EngineShape { block_size, ..shape } })
}

fn read(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    let read = File::open(path)?.take(MAX_BYTES + 1).read_to_string(&mut text)?;
    if read as u64 > MAX_BYTES {
        return Err(std::io::Error::other(format!("larger than {MAX_BYTES} bytes")));
    }
    Ok(text)
}
