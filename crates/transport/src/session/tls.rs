//! What a side needs to speak TLS: 1.3 only, with certificates on both sides.

mod error;
mod words;

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::{
    Resumption, VerifierBuilderError, WebPkiServerVerifier,
    verify_server_cert_signed_by_trust_anchor as verify_server_cert, verify_server_name,
};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{
    ClientConfig, ClientConnection, Connection, ConnectionCommon, RootCertStore, ServerConfig,
    ServerConnection,
};

use super::file;
pub use error::TlsError;
use error::not_read;
pub(super) use words::meaning;

/// The most bytes of a file; a chain of certificates has a few thousand.
const MAX_FILE: u64 = 1 << 20;

const CERTIFICATE: &str = "certificate";

/// What a TLS handshake and an alert begin with, which no hello does.
pub(super) const HANDSHAKE: [u8; 2] = [22, 3];
pub(super) const ALERT: [u8; 2] = [21, 3];

/// Bytes that only the two ends of one TLS session can know.
pub type Binding = [u8; 32];

/// A side's certificate with its key, and whose certificates it takes of others.
pub struct Tls {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
    own: CertificateDer<'static>,
    path: PathBuf,
}

impl fmt::Debug for Tls {
    /// Shows no key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("certificate", &self.path).finish_non_exhaustive()
    }
}

impl Tls {
    /// Reads PEM files: the certificate of this side with those between it and the authority,
    /// the key of the first, and the authorities that sign for all. Nobody but their owner may
    /// write the files; a key that others may read is worth a warning in the log. That the
    /// certificate holds today, for both ends of a connection, is checked.
    ///
    /// # Errors
    /// [`TlsError`]: what is in the files cannot be used.
    pub fn from_files(chain: &Path, key: &Path, authorities: &Path) -> Result<Self, TlsError> {
        let files = Files { chain, key, authorities };
        let provider = Arc::new(ring::default_provider());
        let roots = Arc::new(roots(authorities)?);
        let all = certificates(chain)?;
        let (own, between) = all.split_first().ok_or_else(|| TlsError::none(chain, CERTIFICATE))?;
        let bad = |why: VerifierBuilderError| TlsError::bad(authorities, &why);
        let builder = WebPkiServerVerifier::builder_with_provider;
        let of_servers = builder(Arc::clone(&roots), Arc::clone(&provider)).build().map_err(bad)?;
        let builder = WebPkiClientVerifier::builder_with_provider;
        let of_clients = builder(Arc::clone(&roots), Arc::clone(&provider)).build().map_err(bad)?;
        // Before the key, which may well be that of another certificate that expired.
        holds(own, between, &roots, &*of_clients, &provider).map_err(|why| files.not_held(&why))?;
        let own = own.clone();
        let mine = Mine { chain: all, key: private_key(key)?, provider };
        Ok(Self {
            client: mine.client(of_servers).map_err(|why| files.no_key(&why))?.into(),
            server: mine.server(of_clients).map_err(|why| files.no_key(&why))?.into(),
            own,
            path: chain.into(),
        })
    }

    /// Whether this side's certificate is for the name or address by which others reach it,
    /// which they check.
    ///
    /// # Errors
    /// [`TlsError::Name`].
    pub fn covers(&self, host: &str) -> Result<(), TlsError> {
        let wrong = |why| TlsError::Name { path: self.path.clone(), host: host.to_owned(), why };
        let name = ServerName::try_from(host).map_err(|why| wrong(why.to_string()))?;
        let certificate = ParsedCertificate::try_from(&self.own);
        let held = certificate.and_then(|parsed| verify_server_name(&parsed, &name));
        held.map_err(|why| wrong(words::plain(&why)))
    }

    /// For the side that connects.
    #[must_use]
    pub fn client(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.client)
    }

    /// For the side that is connected to.
    #[must_use]
    pub fn server(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.server)
    }

    /// A session with whoever is certified to be at `peer`.
    pub(crate) fn to(&self, peer: IpAddr) -> Result<Connection, rustls::Error> {
        let name = ServerName::IpAddress(peer.to_canonical().into());
        ClientConnection::new(self.client(), name).map(Connection::Client)
    }

    /// A session with whoever has connected.
    pub(crate) fn from(&self) -> Result<Connection, rustls::Error> {
        ServerConnection::new(self.server()).map(Connection::Server)
    }
}

/// What names a session whose handshake is over, to both of its ends and to nobody else.
///
/// # Errors
/// The handshake is not over.
pub fn binding<Side>(session: &ConnectionCommon<Side>) -> Result<Binding, rustls::Error> {
    session.export_keying_material(Binding::default(), b"EXPORTER-kvferry proof", None)
}

/// Where all that came from.
struct Files<'a> {
    chain: &'a Path,
    key: &'a Path,
    authorities: &'a Path,
}

impl Files<'_> {
    fn no_key(&self, why: &rustls::Error) -> TlsError {
        let (certificate, key) = (self.chain.into(), self.key.into());
        TlsError::Key { certificate, key, why: words::plain(why) }
    }

    fn not_held(&self, why: &rustls::Error) -> TlsError {
        let (certificate, authorities) = (self.chain.into(), self.authorities.into());
        TlsError::Own { certificate, authorities, why: words::plain(why) }
    }
}

/// What this side shows.
struct Mine {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    provider: Arc<CryptoProvider>,
}

impl Mine {
    /// Every session shows its certificates: none goes on from an earlier one.
    fn client(&self, servers: Arc<WebPkiServerVerifier>) -> Result<ClientConfig, rustls::Error> {
        let config = ClientConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(&[&TLS13])?
            .with_webpki_verifier(servers);
        let mut config = config.with_client_auth_cert(self.chain.clone(), self.key.clone_key())?;
        config.resumption = Resumption::disabled();
        Ok(config)
    }

    fn server(&self, clients: Arc<dyn ClientCertVerifier>) -> Result<ServerConfig, rustls::Error> {
        let config = ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(clients);
        let mut config = config.with_single_cert(self.chain.clone(), self.key.clone_key())?;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(config)
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let pem = read(path, None)?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    all.map_err(|why| TlsError::bad(path, &words::pem(&why)))
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let pem = read(path, Some("private key"))?;
    let key = PrivateKeyDer::pem_slice_iter(&pem).next();
    let key = key.ok_or_else(|| TlsError::none(path, "private key"))?;
    key.map_err(|why| TlsError::bad(path, &words::pem(&why)))
}

fn roots(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|why| TlsError::bad(path, &words::plain(&why)))?;
    }
    if roots.is_empty() { Err(TlsError::none(path, CERTIFICATE)) } else { Ok(roots) }
}

fn read(path: &Path, private: Option<&str>) -> Result<Vec<u8>, TlsError> {
    file::read(path, MAX_FILE, private).map_err(|why| not_read(path, why))
}

/// Whether others would take the certificate: a side that nobody takes does better not to start.
/// Each agent listens, and one that decodes connects as well, so it is asked for both.
fn holds(
    own: &CertificateDer<'_>,
    between: &[CertificateDer<'_>],
    roots: &RootCertStore,
    clients: &dyn ClientCertVerifier,
    provider: &CryptoProvider,
) -> Result<(), rustls::Error> {
    let (now, algorithms) = (UnixTime::now(), provider.signature_verification_algorithms.all);
    let parsed = ParsedCertificate::try_from(own)?;
    verify_server_cert(&parsed, roots, between, now, algorithms)?;
    clients.verify_client_cert(own, between, now).map(|_| ())
}
