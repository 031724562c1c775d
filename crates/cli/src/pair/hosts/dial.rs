//! A socket to a parent on another host.

use std::net::{IpAddr, SocketAddr};

use kvferry::greet::Stream;
use kvferry::{Config, FetchError};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

use super::super::errors::from_fetch_error;
use super::{GREETING, greet};
use crate::failure::{Code, Failure};

/// Where a parent was said to be, and what failures call it.
type Whom<'a> = (&'a str, &'static str);

/// A socket whose other end is a side with the same secret, if any, and where that was found.
/// Failures call it `peer`.
pub(crate) async fn dial(
    address: &str,
    peer: &'static str,
    config: &Config,
) -> Result<(Stream, SocketAddr), Failure> {
    let whom = (address, peer);
    let found = within(whom, "address", lookup_host(address)).await?;
    let unknown = |why: std::io::Error| {
        unreachable(whom, &why)
            .hint(format!("give --connect HOST:PORT, as the {peer} side prints it"))
    };
    let found: Vec<SocketAddr> = found.map_err(unknown)?.collect();
    let mut refused = unreachable(whom, &"the name has no address");
    for target in found {
        match call(whom, target, config).await {
            Ok(stream) => return Ok((stream, target)),
            Err(failure) => refused = failure,
        }
    }
    Err(refused)
}

async fn call(whom: Whom<'_>, target: SocketAddr, config: &Config) -> Result<Stream, Failure> {
    let (address, peer) = whom;
    permitted(address, target.ip(), config).map_err(|why| from_fetch_error(&why))?;
    let stream = within(whom, "connection", TcpStream::connect(target)).await?;
    let not_there = |why: std::io::Error| {
        unreachable(whom, &why).hint(format!(
            "start the {peer} side first; --connect takes the address that it prints"
        ))
    };
    let stream = stream.map_err(not_there)?;
    stream.set_nodelay(true).map_err(not_there)?;
    let greeting = greet::dialler(stream, host(address), config);
    let greeted = within(whom, "greeting", greeting).await?;
    greeted.map_err(|why| Failure { hint: why.hint, ..unreachable(whom, &why.message) })
}

/// The host of an address with a port that was looked up.
fn host(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

/// The rule by which the ranks connect holds for their parent.
fn permitted(address: &str, found: IpAddr, config: &Config) -> Result<(), FetchError> {
    let (found, address) = (found.to_canonical(), address.to_owned());
    if config.secret.is_none() && !found.is_loopback() {
        return Err(FetchError::NotLoopback { address });
    }
    match &config.allow {
        Some(allow) if !allow.contains(found) => Err(FetchError::NotAllowed { address, found }),
        _ => Ok(()),
    }
}

pub(super) async fn within<T>(
    whom: Whom<'_>,
    what: &str,
    step: impl Future<Output = T>,
) -> Result<T, Failure> {
    let late = |_| unreachable(whom, &format!("no {what} within {} s", GREETING.as_secs()));
    timeout(GREETING, step).await.map_err(late)
}

fn unreachable((address, peer): Whom<'_>, why: &dyn std::fmt::Display) -> Failure {
    Failure::new(Code::Peer, format!("cannot reach the {peer} host at {address}: {why}"))
}
