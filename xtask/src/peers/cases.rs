//! The other engines, and the settings with which each is measured.

use std::fmt;

/// A transfer engine that is not ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    Nixl,
    Mooncake,
}

/// An engine with settings.
pub struct Case {
    pub name: &'static str,
    pub peer: Peer,
    /// What the engine reads.
    pub environment: &'static [(&'static str, &'static str)],
    /// What our program reads.
    pub arguments: &'static [&'static str],
}

const NO_THREAD: &[&str] = &["--no-reader-thread"];

/// NIXL is kept to loopback, where all the bytes of the other cases go as well.
const LO: (&str, &str) = ("UCX_NET_DEVICES", "lo");

/// As the makers ship them, and with what was found to help each most on loopback.
pub const CASES: [Case; 7] = [
    Case {
        name: "NIXL UCX tcp",
        peer: Peer::Nixl,
        environment: &[LO, ("UCX_TLS", "tcp")],
        arguments: &[],
    },
    Case {
        name: "NIXL UCX tcp, no reader thread",
        peer: Peer::Nixl,
        environment: &[LO, ("UCX_TLS", "tcp")],
        arguments: NO_THREAD,
    },
    Case {
        name: "NIXL UCX tcp, tuned",
        peer: Peer::Nixl,
        environment: &[
            LO,
            ("UCX_TLS", "tcp"),
            ("UCX_TCP_TX_SEG_SIZE", "64k"),
            ("UCX_TCP_RX_SEG_SIZE", "128k"),
            ("UCX_TCP_SNDBUF", "256k"),
            ("UCX_TCP_RCVBUF", "256k"),
        ],
        arguments: NO_THREAD,
    },
    Case { name: "NIXL UCX default", peer: Peer::Nixl, environment: &[LO], arguments: &[] },
    Case {
        name: "NIXL UCX default, no reader thread",
        peer: Peer::Nixl,
        environment: &[LO],
        arguments: NO_THREAD,
    },
    Case { name: "Mooncake tcp", peer: Peer::Mooncake, environment: &[], arguments: &[] },
    Case {
        name: "Mooncake tcp, long queue",
        peer: Peer::Mooncake,
        environment: &[
            ("MC_TCP_ENABLE_CONNECTION_POOL", "1"),
            ("MC_TCP_MAX_QUEUED_TRANSFERS_PER_PEER", "65535"),
        ],
        arguments: &[],
    },
];

impl Peer {
    /// What `benches/peers` calls it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Nixl => "nixl",
            Self::Mooncake => "mooncake",
        }
    }

    /// What it is installed from, with nothing that these ask for: NIXL names PyTorch and uses it
    /// only where a caller does.
    pub fn packages(self) -> &'static [&'static str] {
        match self {
            Self::Nixl => &["numpy==2.4.6", "nixl==1.5.1", "nixl-cu13==1.5.1"],
            Self::Mooncake => &["numpy==2.4.6", "mooncake-transfer-engine-non-cuda==0.3.13.post1"],
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nixl => "NIXL",
            Self::Mooncake => "Mooncake",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_case_has_a_name_of_its_own_that_begins_with_its_peer() {
        for (at, case) in CASES.iter().enumerate() {
            assert!(case.name.starts_with(&case.peer.to_string()), "{}", case.name);
            assert!(CASES[..at].iter().all(|other| other.name != case.name), "{}", case.name);
        }
    }
}
