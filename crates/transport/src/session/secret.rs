use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::PROOF_LEN;
use super::file::{self, FileError};
use crate::Class;

/// Bytes of a secret.
const MIN: usize = 16;
const MAX: usize = 4096;

/// What a line may end with, which is no part of the secret.
const LINE_END: usize = 2;

/// What all agents that may talk to each other know, and nobody else.
#[derive(Clone)]
pub struct Secret {
    /// Keyed already: the bytes themselves are not kept.
    mac: Hmac<Sha256>,
}

/// Why a secret cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SecretError {
    /// It could be guessed.
    #[error(
        "a secret of {len} bytes is too short, {MIN} are the least: make one with \
         `head -c 32 /dev/urandom | base64 > FILE`"
    )]
    Short {
        /// Its bytes.
        len: usize,
    },
    /// It is probably another file.
    #[error(
        "a secret of more than {MAX} bytes is too long: make one with \
         `head -c 32 /dev/urandom | base64 > FILE`"
    )]
    Long,
    /// The file cannot be read.
    #[error("cannot read the secret {}: {why}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        why: io::Error,
    },
    /// A folder, a pipe or a device.
    #[error("the secret {} is not a file", path.display())]
    NotAFile {
        /// What it is called.
        path: PathBuf,
    },
    /// Whoever writes the file decides who is let in.
    #[error(
        "others may write the secret {} (mode {mode:03o}): take that from them with \
         `chmod go-rwx FILE`",
        path.display()
    )]
    Writable {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
}

impl SecretError {
    /// What to do about it.
    #[must_use]
    pub fn class(&self) -> Class {
        Class::Config
    }
}

impl fmt::Debug for Secret {
    /// Tells nothing.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secret").finish_non_exhaustive()
    }
}

impl Secret {
    /// A secret of 16 to 4096 bytes; the end of a line after them is left out.
    ///
    /// # Errors
    /// [`SecretError::Short`] and [`SecretError::Long`].
    pub fn new(bytes: &[u8]) -> Result<Self, SecretError> {
        let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
        match bytes.len() {
            len @ ..MIN => Err(SecretError::Short { len }),
            MIN..=MAX => {
                let mac = Hmac::new_from_slice(bytes).map_err(|_| SecretError::Long)?;
                Ok(Self { mac })
            }
            _ => Err(SecretError::Long),
        }
    }

    /// Reads a secret from a file that nobody but its owner may write. One that others may read
    /// is worth a warning in the log.
    ///
    /// # Errors
    /// [`SecretError`]: the file or what is in it cannot be used.
    pub fn from_file(path: &Path) -> Result<Self, SecretError> {
        let most = (MAX + LINE_END) as u64;
        let bytes = file::read(path, most, Some("secret")).map_err(|why| {
            let path = path.to_owned();
            match why {
                FileError::Read(why) => SecretError::Read { path, why },
                FileError::NotAFile => SecretError::NotAFile { path },
                FileError::Writable(mode) => SecretError::Writable { path, mode },
                FileError::Large => SecretError::Long,
            }
        })?;
        Self::new(&bytes)
    }

    pub(super) fn tag(&self, parts: &[&[u8]]) -> [u8; PROOF_LEN] {
        self.fed(parts).finalize().into_bytes().into()
    }

    /// Compares in constant time.
    pub(super) fn is_tag(&self, parts: &[&[u8]], tag: &[u8]) -> bool {
        self.fed(parts).verify_slice(tag).is_ok()
    }

    fn fed(&self, parts: &[&[u8]]) -> Hmac<Sha256> {
        let mut mac = self.mac.clone();
        parts.iter().for_each(|part| mac.update(part));
        mac
    }
}
