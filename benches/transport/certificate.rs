use std::fs;
use std::sync::Arc;

use rcgen::{CertificateParams, KeyPair};
use transport::session::Tls;

use crate::Fallible;

/// A certificate of this host that is its own authority.
pub fn tls() -> Fallible<Arc<Tls>> {
    let folder = tempfile::tempdir()?;
    let key = KeyPair::generate()?;
    let certificate = CertificateParams::new(["127.0.0.1".to_owned()])?.self_signed(&key)?.pem();
    let [cert, private] = ["cert.pem", "key.pem"].map(|name| folder.path().join(name));
    fs::write(&cert, certificate)?;
    fs::write(&private, key.serialize_pem())?;
    Ok(Arc::new(Tls::from_files(&cert, &private, &cert)?))
}
