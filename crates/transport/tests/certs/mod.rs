//! Certificates of tests, made anew for each run.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

/// By which names and addresses the sides of a test reach each other.
pub const HERE: [&str; 3] = ["127.0.0.1", "::1", "localhost"];

/// Whoever signs certificates.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    pub fn new() -> Self {
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "an authority of tests");
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// Writes what a side of these names needs: `cert.pem`, `key.pem` and `ca.pem`.
    pub fn certify(&self, folder: &Path, names: &[&str]) {
        self.issue(folder, names, |_| ());
    }

    /// The same, after a change to what the certificate says.
    pub fn issue(
        &self,
        folder: &Path,
        names: &[&str],
        change: impl FnOnce(&mut CertificateParams),
    ) {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        let files = [("cert", certificate), ("key", key.serialize_pem()), ("ca", self.pem.clone())];
        for (name, pem) in files {
            let path = folder.join(format!("{name}.pem"));
            fs::write(&path, pem).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        }
    }
}
