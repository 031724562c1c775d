//! What the doctor finds.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

/// What a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Subject {
    Tcp,
    Shm,
    Libfabric,
    Cuda,
    /// What every provider shares; none by itself.
    #[value(skip)]
    Limits,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Status {
    Ok,
    /// It works, not as well as it could.
    Warn,
    /// What it is about cannot be used.
    Missing,
}

/// One line: how it stands, and what mends it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) status: Status,
    pub(super) what: String,
    pub(super) mend: Option<String>,
}

impl Finding {
    pub(super) fn ok(what: impl Into<String>) -> Self {
        Self { status: Status::Ok, what: what.into(), mend: None }
    }

    pub(super) fn warn(what: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { status: Status::Warn, what: what.into(), mend: Some(mend.into()) }
    }

    pub(super) fn missing(what: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { status: Status::Missing, what: what.into(), mend: Some(mend.into()) }
    }

    /// That this build does not have a provider, whatever the host offers.
    pub(super) fn not_in_this_build(name: &str) -> Self {
        Self::missing(
            format!("the provider {name} is not in this build yet"),
            "use tcp; CHANGELOG.md says what is to come",
        )
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::Shm => "shm",
            Self::Libfabric => "libfabric",
            Self::Cuda => "cuda",
            Self::Limits => "limits",
        })
    }
}

/// The number that a file of one number has.
pub(super) fn number<T: FromStr>(text: &str) -> Option<T> {
    text.trim().parse().ok()
}

/// What the system chose of a list such as `always [madvise] never`.
pub(super) fn chosen(text: &str) -> Option<&str> {
    text.split_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'))
}
