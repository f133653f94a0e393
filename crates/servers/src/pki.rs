//! A certificate authority of a place's own, and what it signs; PEM files below one directory.

use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::Result;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};

pub struct Authority {
    dir: PathBuf,
    name: String,
    issuer: Issuer<'static, KeyPair>,
}

/// What a certificate is good for.
#[derive(Clone, Copy)]
pub enum For<'a> {
    /// A server under these names and addresses.
    Server(&'a [&'a str]),
    /// A client of this organisation, which may be empty.
    Client { organisation: &'a str },
}

impl Authority {
    /// Writes `NAME.crt` and `NAME.key`.
    pub fn create(dir: &Path, name: &str) -> Result<Authority> {
        std::fs::create_dir_all(dir)?;
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.distinguished_name = distinguished(name, "");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::CrlSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        let certificate = params.self_signed(&key)?;
        write(dir, &format!("{name}.crt"), &certificate.pem())?;
        write(dir, &format!("{name}.key"), &key.serialize_pem())?;
        Ok(Authority { dir: dir.into(), name: name.into(), issuer: Issuer::new(params, key) })
    }

    pub fn certificate(&self) -> PathBuf {
        self.dir.join(&self.name).with_extension("crt")
    }

    /// Writes `FILE.crt` and `FILE.key`; the subject is `common_name`.
    pub fn sign(&self, file: &str, common_name: &str, purpose: For) -> Result<()> {
        let names = match purpose {
            For::Server(names) => names.iter().map(|name| (*name).to_owned()).collect(),
            For::Client { .. } => Vec::new(),
        };
        let mut params = CertificateParams::new(names)?;
        let organisation = match purpose {
            For::Server(_) => "",
            For::Client { organisation } => organisation,
        };
        params.distinguished_name = distinguished(common_name, organisation);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![match purpose {
            For::Server(_) => ExtendedKeyUsagePurpose::ServerAuth,
            For::Client { .. } => ExtendedKeyUsagePurpose::ClientAuth,
        }];
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        write(&self.dir, &format!("{file}.crt"), &certificate.pem())?;
        write(&self.dir, &format!("{file}.key"), &key.serialize_pem())
    }
}

/// A key pair alone: `FILE.key` and `FILE.pub`.
pub fn key_pair(dir: &Path, file: &str) -> Result<()> {
    let key = KeyPair::generate()?;
    write(dir, &format!("{file}.key"), &key.serialize_pem())?;
    write(dir, &format!("{file}.pub"), &key.public_key_pem())
}

fn distinguished(common_name: &str, organisation: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    if !organisation.is_empty() {
        name.push(DnType::OrganizationName, organisation);
    }
    name.push(DnType::CommonName, common_name);
    name
}

/// Readable by the owner alone: most of it are keys.
fn write(dir: &Path, name: &str, text: &str) -> Result<()> {
    let mut options = std::fs::OpenOptions::new();
    options.create(true).truncate(true).write(true).mode(0o600);
    let mut file = options.open(dir.join(name))?;
    Ok(std::io::Write::write_all(&mut file, text.as_bytes())?)
}
