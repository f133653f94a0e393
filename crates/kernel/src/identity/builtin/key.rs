//! The built-in issuer's signing key: a file readable by its owner alone, created once.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use p256::SecretKey;
use p256::elliptic_curve::sec1::ToEncodedPoint;
use p256::pkcs8::{DecodePrivateKey, EncodePrivateKey, LineEnding};
use sha2::{Digest, Sha256};

use crate::identity::config::Config;
use crate::identity::jwk::Jwk;
use crate::{Ambient, Error, Result, files};

pub const KEY_FILE: &str = "issuer-key.pem";

pub struct SigningKey {
    pub encoding: jsonwebtoken::EncodingKey,
    pub public: Jwk,
    pub kid: String,
}

impl SigningKey {
    /// The configured key; else the one in the data directory, which is created if missing.
    pub fn open(config: &Config, data_dir: &Path, ambient: &Ambient) -> Result<SigningKey> {
        match &config.signing_key_file {
            // Group-readable is how Kubernetes mounts a secret for a user that is not root.
            Some(path) => read(path, 0o037),
            None => {
                let path = data_dir.join(KEY_FILE);
                if !path.try_exists().unwrap_or(false) {
                    make(&path, ambient)
                        .map_err(|e| wrong(&path, &format!("cannot be made: {e}")))?;
                }
                read(&path, 0o077)
            }
        }
    }

    fn of(secret: &SecretKey, pem: &str) -> Result<SigningKey> {
        let point = secret.public_key().to_encoded_point(false);
        let part = |bytes: Option<&p256::FieldBytes>| {
            URL_SAFE_NO_PAD.encode(bytes.expect("an uncompressed point has both coordinates"))
        };
        let (x, y) = (part(point.x()), part(point.y()));
        // RFC 7638: the id is derived from the key, so replicas that share it agree.
        let thumb = format!(r#"{{"crv":"P-256","kty":"EC","x":"{x}","y":"{y}"}}"#);
        let kid = URL_SAFE_NO_PAD.encode(Sha256::digest(thumb));
        let public = Jwk {
            kty: "EC".into(),
            kid: Some(kid.clone()),
            purpose: Some("sig".into()),
            alg: Some("ES256".into()),
            crv: Some("P-256".into()),
            x: Some(x),
            y: Some(y),
            ..Jwk::default()
        };
        let encoding = jsonwebtoken::EncodingKey::from_ec_pem(pem.as_bytes())
            .map_err(|e| Error::internal("the signing key", e))?;
        Ok(SigningKey { encoding, public, kid })
    }
}

fn wrong(path: &Path, why: &str) -> Error {
    Error::invalid("identity.signing_key_file", format!("{} {why}", path.display()))
}

fn read(path: &Path, forbidden: u32) -> Result<SigningKey> {
    let cannot = |e: io::Error| wrong(path, &format!("cannot be read: {e}"));
    let mode = fs::metadata(path).map_err(cannot)?.permissions().mode() & 0o777;
    if mode & forbidden != 0 {
        let why = format!(
            "is open to others (mode {mode:o}), who could make tokens with it; run chmod 600 on it, \
             and if someone may have read it, remove it: a new one is made, and old tokens end"
        );
        return Err(wrong(path, &why));
    }
    let pem = fs::read_to_string(path).map_err(cannot)?;
    // Without the parser's error: it adds nothing, and the file is a secret.
    let secret = SecretKey::from_pkcs8_pem(&pem)
        .map_err(|_| wrong(path, "is not a P-256 private key in PKCS#8 PEM form"))?;
    SigningKey::of(&secret, &pem)
}

/// Creates the key file, unless another process did meanwhile.
fn make(path: &Path, ambient: &Ambient) -> io::Result<()> {
    let secret = loop {
        // Fails for zero and for numbers beyond the curve's order: once in 2^32 tries.
        if let Ok(secret) = SecretKey::from_slice(&ambient.random_bytes::<32>()) {
            break secret;
        }
    };
    let pem = secret.to_pkcs8_pem(LineEnding::LF).map_err(io::Error::other)?;
    files::create(path, pem.as_bytes(), 0o600).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(directory: &Path) -> Result<SigningKey> {
        SigningKey::open(&Config::default(), directory, &Ambient::system())
    }

    #[test]
    fn the_key_is_made_once_with_mode_600_and_read_back_after() {
        let directory = tempfile::tempdir().unwrap();
        let made = open(directory.path()).unwrap();
        let path = directory.path().join(KEY_FILE);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(open(directory.path()).unwrap().kid, made.kid);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "no temporary file is left");
    }

    #[test]
    fn many_that_start_at_once_end_with_one_key() {
        let directory = tempfile::tempdir().unwrap();
        let barrier = std::sync::Barrier::new(8);
        let kids: std::collections::BTreeSet<String> = std::thread::scope(|scope| {
            let start = || {
                barrier.wait();
                open(directory.path()).unwrap().kid
            };
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(start)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(kids.len(), 1, "{kids:?}");
    }

    #[test]
    fn a_key_that_others_can_read_is_refused_and_the_error_says_what_to_do() {
        let directory = tempfile::tempdir().unwrap();
        let kid = open(directory.path()).unwrap().kid;
        let path = directory.path().join(KEY_FILE);
        let shared = Config { signing_key_file: Some(path.clone()), ..Config::default() };
        for (mode, own, configured) in [
            (0o644, false, false),
            (0o640, false, true),
            (0o620, false, false),
            (0o400, true, true),
        ] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(open(directory.path()).is_ok(), own, "{mode:o}");
            let opened = SigningKey::open(&shared, Path::new("/nonexistent"), &Ambient::system());
            assert_eq!(opened.is_ok_and(|key| key.kid == kid), configured, "{mode:o}");
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let message = open(directory.path()).err().unwrap().to_string();
        assert!(message.contains("chmod 600") && message.contains("644"), "{message}");
    }

    #[test]
    fn a_damaged_key_is_refused_and_not_shown_or_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(KEY_FILE);
        open(directory.path()).unwrap();
        fs::write(&path, "-----BEGIN PRIVATE KEY-----\nhunter2\n").unwrap();
        let message = open(directory.path()).err().unwrap().to_string();
        assert!(message.contains("P-256") && !message.contains("hunter2"), "{message}");
        assert!(fs::read_to_string(&path).unwrap().contains("hunter2"));
        assert!(open(Path::new("/nonexistent")).is_err());
    }
}
