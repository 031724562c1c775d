//! What `kvferry bench` accepts.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use kvferry::Provider;

use super::workload::{Workload, Workloads};
use crate::args::{LinkArgs, TlsArgs};

const EXAMPLES: &str = "\
On two hosts, with the same secret on both:
  10.0.0.1$ kvferry bench --listen 10.0.0.1:7000 --secret-file FILE
  10.0.0.2$ kvferry bench --connect 10.0.0.1:7000 --secret-file FILE

Only reads are measured: a kvferry endpoint does not write into a peer.";

/// Rounds where the command line does not say.
const ROUNDS: u32 = 9;

#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BenchArgs {
    #[command(flatten)]
    pub(super) what: WhatArgs,
    /// Write the table and plots into this page, which needs nothing else to be shown.
    #[arg(long, value_name = "FILE")]
    pub(super) html: Option<PathBuf>,
    #[command(flatten)]
    pub(super) hosts: HostsArgs,
    #[command(flatten)]
    pub(super) trust: TrustArgs,
}

/// What is measured.
#[derive(Clone, Debug, Args)]
pub(super) struct WhatArgs {
    /// W1, W2, W3 (blocks of 128, 128 and 4 KiB of many regions), W4 (one block of 4 KiB, for its
    /// time), sweep (4 KiB to 1 MiB, 16 to 1024 of them), or BLOCKxCOUNT, such as 64KiBx128;
    /// several between commas [default: all named]
    #[arg(long, value_name = "NAME[,NAME…]", value_delimiter = ',')]
    workload: Vec<Workloads>,
    /// Only cases whose names have one of these words in them; that of a whole name is that case
    /// alone.
    #[arg(long, value_name = "WORD[,WORD…]", value_delimiter = ',')]
    pub(super) case: Vec<String>,
    /// Rounds that count, after one that does not; in each, every case has its turn [default: 9]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: Option<u32>,
    /// Sockets of the provider tcp [default: what the library chooses]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=16))]
    pub(super) streams: Option<u16>,
    /// Decides which block ids are drawn.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) seed: u64,
}

/// The two sides, where they are not two processes of this host.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Two hosts")]
pub(super) struct HostsArgs {
    /// Be the source alone, and wait here for a reader. Beyond loopback only with --secret-file
    #[arg(long, value_name = "ADDR:PORT", conflicts_with_all = [
        "connect", "workload", "case", "rounds", "streams", "html", "seed",
    ])]
    pub(super) listen: Option<SocketAddr>,
    /// Read from the source that waits there.
    #[arg(long, value_name = "HOST:PORT")]
    pub(super) connect: Option<String>,
}

/// What both sides show each other.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Network")]
pub(super) struct TrustArgs {
    /// What both sides prove to each other to have. Make one with `head -c 32 /dev/urandom |
    /// base64 > FILE`
    #[arg(long, value_name = "FILE")]
    pub(super) secret_file: Option<PathBuf>,
    #[command(flatten)]
    pub(super) tls: TlsArgs,
}

/// What a source's process on this host must know; written by the reader's.
#[derive(Clone, Debug, Args)]
pub(crate) struct SourceArgs {
    #[command(flatten)]
    pub(super) trust: TrustArgs,
}

impl WhatArgs {
    pub(super) fn rounds(&self) -> u32 {
        self.rounds.unwrap_or(ROUNDS)
    }

    /// Each once, in the order in which they were named.
    pub(super) fn workloads(&self) -> Vec<Workload> {
        let all =
            ["W1", "W2", "W3", "W4", "sweep"].into_iter().filter_map(|name| name.parse().ok());
        let named = if self.workload.is_empty() { all.collect() } else { self.workload.clone() };
        let mut workloads: Vec<Workload> = Vec::new();
        for Workloads(several) in named {
            for workload in several {
                if !workloads.contains(&workload) {
                    workloads.push(workload);
                }
            }
        }
        workloads
    }
}

impl TrustArgs {
    /// In the words of the other commands, for a side that listens there.
    pub(super) fn link(&self, listen: Option<SocketAddr>) -> LinkArgs {
        let Self { secret_file, tls } = self.clone();
        let transport = Provider::Auto;
        LinkArgs { listen, advertise: None, secret_file, tls, allow: None, transport, seed: 0 }
    }
}
