use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::PROOF_LEN;
use crate::Class;

/// Bytes of a secret.
const MIN: usize = 16;
const MAX: usize = 4096;

/// What a line may end with, which is no part of the secret.
const LINE_END: usize = 2;

/// Permission bits by which others than its owner may write a file, and read it.
const OTHERS_WRITE: u32 = 0o022;
const OTHERS_READ: u32 = 0o044;

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
        let unreadable = |why| SecretError::Read { path: path.to_owned(), why };
        // Whoever opens a pipe that nobody writes to would wait for ever.
        let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path);
        let file = file.map_err(unreadable)?;
        check(&file, path)?;
        let mut bytes = Vec::new();
        let most = (MAX + LINE_END + 1) as u64;
        file.take(most).read_to_end(&mut bytes).map_err(unreadable)?;
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

/// Looks at the open file, so that none can be put in its place meanwhile.
fn check(file: &File, path: &Path) -> Result<(), SecretError> {
    let about = file.metadata();
    let about = about.map_err(|why| SecretError::Read { path: path.to_owned(), why })?;
    if !about.is_file() {
        return Err(SecretError::NotAFile { path: path.to_owned() });
    }
    let mode = about.mode() & 0o777;
    if mode & OTHERS_WRITE != 0 {
        return Err(SecretError::Writable { path: path.to_owned(), mode });
    }
    if mode & OTHERS_READ != 0 {
        let mode = format!("{mode:03o}");
        tracing::warn!(path = %path.display(), %mode, "others may read the secret");
    }
    Ok(())
}
