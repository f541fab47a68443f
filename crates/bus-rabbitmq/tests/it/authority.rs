//! A private certificate authority.

use std::{
    fs,
    path::{Path, PathBuf},
};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, date_time_ymd,
};

/// An authority and the folder of its certificates.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: PathBuf,
}

impl Authority {
    /// Creates an authority and writes its certificate to `<name>.pem` in `folder`.
    pub(crate) fn new(folder: &Path, name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("a certificate");
        fs::write(folder.join(format!("{name}.pem")), issuer.pem()).expect("written");
        Self { issuer, folder: folder.to_owned() }
    }

    /// Issues `server.pem` and `server.key`, a server certificate for the addresses.
    pub(crate) fn server(&self, addresses: &[&str]) {
        let addresses: Vec<_> = addresses.iter().map(|&address| address.to_owned()).collect();
        let mut params = CertificateParams::new(addresses).expect("addresses");
        params.insert_extended_key_usage(ExtendedKeyUsagePurpose::ServerAuth);
        self.issue("server", &params);
    }

    /// Issues `<file>.pem` and `<file>.key`, a client certificate for a user, valid until 31 December of the year
    /// `last`, 00:00 UTC.
    pub(crate) fn user(&self, file: &str, user: &str, last: i32) {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, user);
        params.not_before = date_time_ymd(2000, 1, 1);
        params.not_after = date_time_ymd(last, 12, 31);
        params.insert_extended_key_usage(ExtendedKeyUsagePurpose::ClientAuth);
        self.issue(file, &params);
    }

    /// Writes `<file>.pem` and `<file>.key`.
    fn issue(&self, file: &str, params: &CertificateParams) {
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        fs::write(self.folder.join(format!("{file}.pem")), certificate.pem()).expect("written");
        fs::write(self.folder.join(format!("{file}.key")), key.serialize_pem()).expect("written");
    }
}
