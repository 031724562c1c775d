use std::path::PathBuf;

use crate::Version;

/// Why libfabric cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// It is nowhere where it was looked for.
    #[error(
        "no libfabric can be loaded (tried: {}); install the package libfabric1 or the fabric \
         software of the machine's vendor, name the file libfabric.so.1, or use another provider",
        tried.join("; ")
    )]
    NotHere {
        /// The system's words about each place.
        tried: Vec<String>,
    },
    /// There is a library, and it is another one.
    #[error("{} is no libfabric: it has no function {name}", file.display())]
    NoFunction {
        /// The file.
        file: PathBuf,
        /// What it lacks.
        name: &'static str,
    },
    /// It is older or newer than those that were tried.
    #[error(
        "{} is libfabric {found}, and only {} and later versions before {} are known to work",
        file.display(), Version::OLDEST, Version::UNKNOWN
    )]
    Version {
        /// The file.
        file: PathBuf,
        /// What it says it is.
        found: Version,
    },
    /// This process has one already, and two would take the network cards from each other.
    #[error(
        "this process uses {} already; {} cannot be loaded beside it",
        loaded.display(), asked.display()
    )]
    Another {
        /// The one that is in use.
        loaded: PathBuf,
        /// The one that was asked for.
        asked: PathBuf,
    },
}
