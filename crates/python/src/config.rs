//! How an agent works.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kvferry::Class;
use kvferry::connector::Bounds;
use kvferry::transport::session::{Secret, Tls};
use pyo3::prelude::*;

use crate::errors::{Raised, error};

/// How an agent works; what is left out has the default of the protocol.
#[pyclass(frozen, module = "kvferry")]
pub(crate) struct Config(pub(crate) kvferry::Config);

#[pymethods]
impl Config {
    /// `listen` is an address and a port, `[::1]:0` for IPv6; port 0 lets the system choose.
    /// Times are in seconds.
    #[new]
    #[pyo3(signature = (*, listen = "127.0.0.1:0", advertise = None, secret_file = None, allow = None,
        tls_cert = None, tls_key = None, tls_ca = None, lease_seconds = None,
        read_timeout_seconds = None, transport = "auto", streams = None))]
    #[expect(clippy::too_many_arguments, reason = "named in Python")]
    fn new(
        listen: &str,
        advertise: Option<String>,
        secret_file: Option<PathBuf>,
        allow: Option<&str>,
        tls_cert: Option<PathBuf>,
        tls_key: Option<PathBuf>,
        tls_ca: Option<PathBuf>,
        lease_seconds: Option<f64>,
        read_timeout_seconds: Option<f64>,
        transport: &str,
        streams: Option<u16>,
    ) -> PyResult<Self> {
        let secret = secret_file.map(|path| Secret::from_file(&path).map(Arc::new));
        let tls = match (tls_cert, tls_key, tls_ca) {
            (None, None, None) => None,
            (Some(cert), Some(key), Some(ca)) => {
                let tls = Tls::from_files(&cert, &key, &ca).map_err(Raised::raised)?;
                Some(Arc::new(tls))
            }
            _ => {
                let why = "`tls_cert`, `tls_key` and `tls_ca` go together: all three or none";
                return Err(error(Class::Config, why));
            }
        };
        let defaults = kvferry::Config::default();
        let mut bounds = Bounds::default();
        if let Some(seconds) = lease_seconds {
            bounds.unclaimed = lease(seconds, bounds.oldest)?;
        }
        let read_timeout = match read_timeout_seconds {
            Some(seconds) => duration("read_timeout_seconds", seconds)?,
            None => defaults.read_timeout,
        };
        Ok(Self(kvferry::Config {
            listen: address(listen)?,
            advertise,
            secret: secret.transpose().map_err(Raised::raised)?,
            allow: allow.map(str::parse).transpose().map_err(kvferry::AllowListError::raised)?,
            tls,
            bounds,
            read_timeout,
            provider: transport.parse().map_err(kvferry::ProviderError::raised)?,
            streams,
        }))
    }

    fn __repr__(&self) -> String {
        format!("Config(listen={:?})", self.0.listen.to_string())
    }
}

fn address(listen: &str) -> PyResult<SocketAddr> {
    listen.parse().map_err(|_| {
        let why = format!(
            "`listen` of {listen:?} is no address and port: write 127.0.0.1:7000, or [::1]:7000 \
             for IPv6"
        );
        error(Class::Config, why)
    })
}

/// Here and not with the other bounds, since that is where the option has its name.
fn lease(seconds: f64, oldest: Duration) -> PyResult<Duration> {
    let lease = duration("lease_seconds", seconds)?;
    if lease.is_zero() || lease >= oldest {
        let why = format!(
            "`lease_seconds` of {seconds}: more than 0 and less than {}, when every lease ends",
            oldest.as_secs()
        );
        return Err(error(Class::Config, why));
    }
    Ok(lease)
}

fn duration(name: &str, seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds)
        .map_err(|why| error(Class::Config, format!("`{name}` of {seconds}: {why}")))
}
