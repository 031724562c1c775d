//! Reading a model's config.json.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use kv_layout::{ConfigError, Model};

use crate::failure::Failure;

/// Far above any published config.json.
const MAX_BYTES: u64 = 16 << 20;

/// Reads and parses `path`.
pub(crate) fn load(path: &Path) -> Result<Model, Failure> {
    let name = path.display().to_string();
    let text = read(path).map_err(|why| {
        Failure::input(format!("{name}: {why}"))
            .hint("give the path of a Hugging Face config.json; some are in models/")
    })?;
    Model::from_config(&text, &name).map_err(|why: ConfigError| Failure::input(why))
}

fn read(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    let read = File::open(path)?.take(MAX_BYTES + 1).read_to_string(&mut text)?;
    if read as u64 > MAX_BYTES {
        return Err(std::io::Error::other(format!("larger than {MAX_BYTES} bytes")));
    }
    Ok(text)
}
