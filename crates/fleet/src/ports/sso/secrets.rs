//! Secrets of clients, derived from one key: nothing secret is stored, and a client that was deleted by
//! hand is created again with the secret that its users have.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, Mac};
use kernel::{Ambient, Result};
use sha2::Sha256;

pub struct Secrets {
    key: Vec<u8>,
}

impl Secrets {
    pub fn from_key(key: Vec<u8>) -> Secrets {
        Secrets { key }
    }

    /// Reads the key, or creates it on first start.
    pub fn open(file: &Path, ambient: &Ambient) -> Result<Secrets> {
        Ok(Secrets { key: kernel::key_file::open(file, "fleet.key_file", ambient)? })
    }

    /// The client's secret after `rotation` rotations.
    pub fn derive(&self, client: &str, rotation: i64) -> String {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key).expect("any length is a key");
        mac.update(&rotation.to_be_bytes());
        mac.update(client.as_bytes());
        URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes())
    }

    /// Whether it is the client's secret, in constant time.
    pub fn verify(&self, client: &str, rotation: i64, offered: &str) -> bool {
        let Ok(offered) = URL_SAFE_NO_PAD.decode(offered) else { return false };
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key).expect("any length is a key");
        mac.update(&rotation.to_be_bytes());
        mac.update(client.as_bytes());
        mac.verify_slice(&offered).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_secret_is_derived_from_key_client_and_rotation() {
        let secrets = Secrets::from_key(vec![7; 32]);
        let secret = secrets.derive("a", 0);
        assert_eq!(secret, secrets.derive("a", 0));
        assert_ne!(secret, secrets.derive("a", 1));
        assert_ne!(secret, secrets.derive("b", 0));
        assert!(secrets.verify("a", 0, &secret));
        assert!(
            !secrets.verify("a", 1, &secret)
                && !secrets.verify("a", 0, "x")
                && !secrets.verify("a", 0, "")
        );
    }

    #[test]
    fn the_key_is_created_once_and_only_its_owner_can_read_it() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("fleet-key");
        let ambient = Ambient::system();
        let first = Secrets::open(&file, &ambient).unwrap().derive("a", 0);
        assert_eq!(Secrets::open(&file, &ambient).unwrap().derive("a", 0), first);
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        std::fs::write(&file, "short").unwrap();
        assert!(Secrets::open(&file, &ambient).is_err());
    }

    #[test]
    fn concurrent_openers_get_the_same_key() {
        for _ in 0..20 {
            let dir = tempfile::tempdir().unwrap();
            let file = dir.path().join("fleet-key");
            let open = || Secrets::open(&file, &Ambient::system()).unwrap().derive("a", 0);
            let secrets: BTreeSet<String> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..8).map(|_| scope.spawn(open)).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            assert_eq!(secrets.len(), 1);
        }
    }
}
