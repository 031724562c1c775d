//! Files that decide who is let in.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Permission bits by which others than its owner may write a file, and read it.
const OTHERS_WRITE: u32 = 0o022;
const OTHERS_READ: u32 = 0o044;

/// Why such a file is not used.
pub(super) enum FileError {
    /// The system's answer.
    Read(io::Error),
    /// A folder, a pipe or a device.
    NotAFile,
    /// Others may write it: its permission bits.
    Writable(u32),
    /// It goes on beyond the limit.
    Large,
}

/// A file of at most `most` bytes that nobody but its owner may write. One that others may read
/// is worth a warning in the log, if it is named as something to keep to oneself.
pub(super) fn read(path: &Path, most: u64, private: Option<&str>) -> Result<Vec<u8>, FileError> {
    // Whoever opens a pipe that nobody writes to would wait for ever.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path);
    let file = file.map_err(FileError::Read)?;
    check(&file, path, private)?;
    let mut bytes = Vec::new();
    // One byte more than it may have: a part of it must not pass for the whole.
    let len = file.take(most + 1).read_to_end(&mut bytes).map_err(FileError::Read)?;
    if len as u64 > most { Err(FileError::Large) } else { Ok(bytes) }
}

/// Looks at the open file, so that none can be put in its place meanwhile.
fn check(file: &File, path: &Path, private: Option<&str>) -> Result<(), FileError> {
    let about = file.metadata().map_err(FileError::Read)?;
    if !about.is_file() {
        return Err(FileError::NotAFile);
    }
    let mode = about.mode() & 0o777;
    if mode & OTHERS_WRITE != 0 {
        return Err(FileError::Writable(mode));
    }
    if let Some(what) = private
        && mode & OTHERS_READ != 0
    {
        let mode = format!("{mode:03o}");
        tracing::warn!(path = %path.display(), %mode, "others may read the {what}");
    }
    Ok(())
}
