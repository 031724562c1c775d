//! How the two sides reach each other, and who may.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use clap::Args;
use kvferry::{AllowList, AllowListError, Config, Provider, Secret, SecretError, Tls};

use crate::failure::Failure;
use crate::pair::Role;

/// How the two sides reach each other.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Network")]
pub(crate) struct LinkArgs {
    /// Where the first prefill rank listens, each other one on the next port; port 0 lets the
    /// system choose. With --role prefill, where the decode side connects to; the ranks then take
    /// ports of the same address that the system chooses, and the decode side is told. Beyond
    /// loopback only with --secret-file [default: 127.0.0.1:0]
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) listen: Option<SocketAddr>,
    /// Name or address by which the decode ranks reach the prefill ranks, without a port. Needed
    /// where --listen is every address of the host.
    #[arg(long, value_name = "HOST")]
    pub(crate) advertise: Option<String>,
    /// What both sides prove to each other to have, on every connection. Make one with `head -c
    /// 32 /dev/urandom | base64 > FILE`
    #[arg(long, value_name = "FILE")]
    pub(crate) secret_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) tls: TlsArgs,
    /// What moves the blocks: `auto` takes the fastest that works between each two ranks, the
    /// others insist on theirs: `tcp`, or `shm`, the memory of processes of one host
    #[arg(long, value_name = "NAME", default_value_t = Provider::Auto)]
    pub(crate) transport: Provider,
    /// The only networks and addresses that the decode side connects to, such as
    /// 10.0.0.0/8,192.168.7.1
    #[arg(long, value_name = "NET[,NET…]")]
    pub(crate) allow: Option<Allow>,
    /// Decides which block ids are drawn.
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = None)]
    pub(crate) seed: u64,
}

/// What encrypts every connection, the blocks on it included: TLS 1.3, both sides certified.
#[derive(Clone, Debug, Args)]
pub(crate) struct TlsArgs {
    /// Certificate of this side, with those between it and the authority, in PEM. It encrypts
    /// every connection; both sides need one
    #[arg(long, value_name = "FILE", requires_all = ["tls_key", "tls_ca"])]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Its private key, in PEM and not encrypted
    #[arg(long, value_name = "FILE", requires_all = ["tls_cert", "tls_ca"])]
    pub(crate) tls_key: Option<PathBuf>,
    /// The authorities whose certificates this side takes, in PEM
    #[arg(long, value_name = "FILE", requires_all = ["tls_cert", "tls_key"])]
    pub(crate) tls_ca: Option<PathBuf>,
}

/// One side of a hand-off between two hosts.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Two hosts")]
pub(crate) struct HostArgs {
    /// Run one side only. The prefill side is started first; it prints where it listens, and
    /// serves one decode side, for prompts of its own --tokens at most
    #[arg(long, value_enum, value_name = "SIDE")]
    pub(crate) role: Option<Role>,
    /// Where the prefill side listens.
    #[arg(long, value_name = "HOST:PORT", required_if_eq("role", "decode"))]
    pub(crate) connect: Option<String>,
}

/// An allow-list, and how it was written.
#[derive(Clone, Debug)]
pub(crate) struct Allow {
    text: String,
    list: AllowList,
}

impl FromStr for Allow {
    type Err = AllowListError;

    fn from_str(text: &str) -> Result<Self, AllowListError> {
        Ok(Self { text: text.to_owned(), list: text.parse()? })
    }
}

impl Allow {
    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}

impl LinkArgs {
    pub(crate) fn listen(&self) -> SocketAddr {
        self.listen.unwrap_or(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
    }

    /// As the library must know it. Reads the secret and the certificates.
    pub(crate) fn config(&self) -> Result<Config, Failure> {
        let secret = self.secret_file.as_deref().map(Secret::from_file).transpose();
        Ok(Config {
            listen: self.listen(),
            advertise: self.advertise.clone(),
            secret: secret.map_err(|why| unusable(&why))?.map(Arc::new),
            tls: self.tls.read()?.map(Arc::new),
            provider: self.transport,
            allow: self.allow.as_ref().map(|allow| allow.list.clone()),
            ..Config::default()
        })
    }
}

impl TlsArgs {
    fn read(&self) -> Result<Option<Tls>, Failure> {
        let Self { tls_cert: Some(cert), tls_key: Some(key), tls_ca: Some(ca) } = self else {
            return Ok(None);
        };
        let tls = Tls::from_files(cert, key, ca).map_err(Failure::input)?;
        Ok(Some(tls))
    }

    /// The flags and what was given for them.
    pub(crate) fn given(&self) -> [(&'static str, Option<&PathBuf>); 3] {
        let Self { tls_cert, tls_key, tls_ca } = self;
        [
            ("--tls-cert", tls_cert.as_ref()),
            ("--tls-key", tls_key.as_ref()),
            ("--tls-ca", tls_ca.as_ref()),
        ]
    }
}

fn unusable(why: &SecretError) -> Failure {
    let failure = Failure::input(why);
    match why {
        // The others say what to do.
        SecretError::Read { .. } | SecretError::NotAFile { .. } => {
            failure.hint("give --secret-file a file that this user can read")
        }
        _ => failure,
    }
}
