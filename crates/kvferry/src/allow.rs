use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;

use ipnet::IpNet;

use crate::Class;

/// Networks that a decode agent may connect to. It is read from text such as
/// `10.0.0.0/8,192.168.7.1,fd00::/8`: an address alone is a network of one host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowList(Arc<[IpNet]>);

/// Why a text is no allow-list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AllowListError {
    /// Nothing at all would be allowed.
    #[error("no network is named: write for example 10.0.0.0/8,192.168.7.1")]
    Empty,
    /// One of its entries is none.
    #[error("{entry:?} is no network: write for example 10.0.0.0/8 or 192.168.7.1, not a name")]
    Network {
        /// The entry.
        entry: String,
    },
}

impl AllowListError {
    /// What to do about it.
    #[must_use]
    pub fn class(&self) -> Class {
        Class::Config
    }
}

impl FromStr for AllowList {
    type Err = AllowListError;

    fn from_str(text: &str) -> Result<Self, AllowListError> {
        let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        let networks: Arc<[IpNet]> = entries.map(network).collect::<Result<_, _>>()?;
        if networks.is_empty() { Err(AllowListError::Empty) } else { Ok(Self(networks)) }
    }
}

impl AllowList {
    /// Whether an address is in one of the networks. An IPv4 address may be written as an IPv6
    /// one.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|network| network.contains(&address))
    }
}

fn network(entry: &str) -> Result<IpNet, AllowListError> {
    let address = entry.parse().map(|address: IpAddr| IpNet::from(address.to_canonical()));
    let network = address.or_else(|_| entry.parse());
    network.map_err(|_| AllowListError::Network { entry: entry.to_owned() })
}

#[cfg(test)]
#[path = "allow_tests.rs"]
mod tests;
