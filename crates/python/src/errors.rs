//! Errors of the facade as Python exceptions, one for each class.

use kvferry::connector::params::ParamsError;
use kvferry::connector::{FinishError, RequestIdError, UnderWay};
use kvferry::transport::session::{SecretError, TlsError};
use kvferry::{AllowListError, Class, FetchError, OfferError, ProviderError, StartError};
use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;

create_exception!(
    kvferry,
    KvferryError,
    PyException,
    "What went wrong; its subclass says what to do."
);
create_exception!(kvferry, RetryError, KvferryError, "This hand-off is lost; another may work.");
create_exception!(kvferry, PeerLostError, KvferryError, "The peer is gone.");
create_exception!(kvferry, ProtocolError, KvferryError, "The other side said what it must not.");
create_exception!(kvferry, ConfigError, KvferryError, "The two sides or the settings do not fit.");
create_exception!(kvferry, ExhaustedError, KvferryError, "A limit was reached.");
create_exception!(kvferry, BugError, KvferryError, "This package was used wrongly.");

/// The name of a class, as reports and outcomes have it.
pub(crate) fn kind(class: Class) -> &'static str {
    match class {
        Class::Retry => "retry",
        Class::PeerLost => "peer_lost",
        Class::Protocol => "protocol",
        Class::Config => "config",
        Class::Exhausted => "exhausted",
        _ => "bug",
    }
}

pub(crate) fn error(class: Class, why: impl std::fmt::Display) -> PyErr {
    let why = why.to_string();
    match class {
        Class::Retry => RetryError::new_err(why),
        Class::PeerLost => PeerLostError::new_err(why),
        Class::Protocol => ProtocolError::new_err(why),
        Class::Config => ConfigError::new_err(why),
        Class::Exhausted => ExhaustedError::new_err(why),
        _ => BugError::new_err(why),
    }
}

/// An error of ours, to be raised.
pub(crate) trait Raised {
    fn raised(self) -> PyErr;
}

macro_rules! raised {
    ($($error:ty),*) => { $(
        impl Raised for $error {
            fn raised(self) -> PyErr {
                error(self.class(), self)
            }
        }
    )* };
}

raised!(StartError, OfferError, FetchError, ParamsError, FinishError, RequestIdError);

macro_rules! raised_as {
    ($class:ident: $($error:ty),*) => { $(
        impl Raised for $error {
            fn raised(self) -> PyErr {
                error(Class::$class, self)
            }
        }
    )* };
}

raised_as!(Config: AllowListError, ProviderError, SecretError, TlsError);
raised_as!(Bug: UnderWay);
