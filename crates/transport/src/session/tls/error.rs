use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};

use super::super::file::FileError;
use super::MAX_FILE;
use crate::Class;

/// Why this side cannot speak TLS.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {}: {why}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        why: io::Error,
    },
    /// A folder, a pipe or a device.
    #[error("{} is not a file", path.display())]
    NotAFile {
        /// What it is called.
        path: PathBuf,
    },
    /// Whoever writes the file decides who is let in.
    #[error(
        "others may write {} (mode {mode:03o}): take that from them with `chmod go-w FILE`",
        path.display()
    )]
    Writable {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// It is not read in part.
    #[error("{} has more than {MAX_FILE} bytes: it is probably another file", path.display())]
    Large {
        /// The file.
        path: PathBuf,
    },
    /// What is looked for is not there.
    #[error("{} has no {what} in it: PEM is wanted, not encrypted", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
        /// What it should have.
        what: &'static str,
    },
    /// It is there and makes no sense.
    #[error("{} cannot be used: {why}", path.display())]
    Bad {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The key cannot be used, or is that of another certificate.
    #[error("the key {} does not go with the certificate {}: {why}", key.display(), certificate.display())]
    Key {
        /// The file with the certificate.
        certificate: PathBuf,
        /// The file with the key.
        key: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Nobody who takes the certificates of these authorities would take this one.
    #[error(
        "the certificate {} does not hold against {}: {why}",
        certificate.display(), authorities.display()
    )]
    Own {
        /// The file with the certificate.
        certificate: PathBuf,
        /// The file with the authorities.
        authorities: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Whoever connects would take this side for somebody else.
    #[error(
        "the certificate {} is not for {host}, where others reach this side: {why}",
        path.display()
    )]
    Name {
        /// The file with the certificate.
        path: PathBuf,
        /// The name or address.
        host: String,
        /// What it is for.
        why: String,
    },
}

impl TlsError {
    /// What to do about it.
    #[must_use]
    pub fn class(&self) -> Class {
        Class::Config
    }

    pub(super) fn none(path: &Path, what: &'static str) -> Self {
        Self::Empty { path: path.to_owned(), what }
    }

    pub(super) fn bad(path: &Path, why: &dyn Display) -> Self {
        Self::Bad { path: path.to_owned(), why: why.to_string() }
    }
}

pub(super) fn not_read(path: &Path, why: FileError) -> TlsError {
    let path = path.to_owned();
    match why {
        FileError::Read(why) => TlsError::Read { path, why },
        FileError::NotAFile => TlsError::NotAFile { path },
        FileError::Writable(mode) => TlsError::Writable { path, mode },
        FileError::Large => TlsError::Large { path },
    }
}
