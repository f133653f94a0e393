//! An issuer's public keys, and which signatures each can verify.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::DecodingKey;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::config::Algorithm;

/// More than any issuer publishes at once.
const KEYS_MAX: usize = 64;
const RSA_BYTES_MIN: usize = 256;

/// The fields of an RFC 7517 key that we use.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Jwk {
    pub kty: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kid: Option<String>,
    #[serde(default, rename = "use", skip_serializing_if = "Option::is_none")]
    pub purpose: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alg: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crv: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub x: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub y: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub e: Option<String>,
}

#[derive(Debug, Deserialize)]
pub struct Document {
    keys: Vec<Value>,
}

/// A public key, ready to check signatures with.
pub struct Key {
    jwk: Jwk,
    material: DecodingKey,
}

impl Key {
    /// `None` if the key cannot verify any accepted signature.
    fn from_jwk(jwk: Jwk) -> Option<Key> {
        if jwk.purpose.as_deref().is_some_and(|purpose| purpose != "sig") {
            return None;
        }
        let material = match (jwk.kty.as_str(), jwk.crv.as_deref()) {
            ("RSA", _) => {
                let (n, e) = (jwk.n.as_deref()?, jwk.e.as_deref()?);
                let n_bytes = URL_SAFE_NO_PAD.decode(n).ok()?;
                if n_bytes.iter().skip_while(|byte| **byte == 0).count() < RSA_BYTES_MIN {
                    return None;
                }
                DecodingKey::from_rsa_components(n, e).ok()?
            }
            ("EC", Some("P-256" | "P-384")) => {
                let (x, y) = (jwk.x.as_deref()?, jwk.y.as_deref()?);
                DecodingKey::from_ec_components(x, y).ok()?
            }
            _ => return None,
        };
        Some(Key { jwk, material })
    }

    /// The key's type decides what it may verify, never the token.
    pub fn fits(&self, algorithm: Algorithm) -> bool {
        use Algorithm::*;
        let Jwk { kty, crv, alg, .. } = &self.jwk;
        let key_type = match algorithm {
            RS256 | RS384 | RS512 | PS256 | PS384 | PS512 => kty == "RSA",
            ES256 => crv.as_deref() == Some("P-256") && kty == "EC",
            ES384 => crv.as_deref() == Some("P-384") && kty == "EC",
        };
        key_type && alg.as_deref().is_none_or(|alg| alg == format!("{algorithm:?}"))
    }

    pub fn verifies(&self, algorithm: Algorithm, message: &str, signature: &str) -> bool {
        use Algorithm::*;
        let theirs = match algorithm {
            RS256 => jsonwebtoken::Algorithm::RS256,
            RS384 => jsonwebtoken::Algorithm::RS384,
            RS512 => jsonwebtoken::Algorithm::RS512,
            PS256 => jsonwebtoken::Algorithm::PS256,
            PS384 => jsonwebtoken::Algorithm::PS384,
            PS512 => jsonwebtoken::Algorithm::PS512,
            ES256 => jsonwebtoken::Algorithm::ES256,
            ES384 => jsonwebtoken::Algorithm::ES384,
        };
        self.fits(algorithm)
            && jsonwebtoken::crypto::verify(signature, message.as_bytes(), &self.material, theirs)
                .unwrap_or(false)
    }
}

/// An issuer's keys at one time.
#[derive(Default)]
pub struct KeySet {
    keys: Vec<Arc<Key>>,
}

pub enum Lookup {
    Found(Arc<Key>),
    /// There is such a key, but not for this algorithm.
    WrongAlgorithm,
    Unknown,
}

impl KeySet {
    /// Keeps keys that `before` had, so that cached verifications stay valid.
    pub fn read(document: Document, before: &KeySet) -> KeySet {
        let parsed = document.keys.into_iter().take(KEYS_MAX);
        let parsed = parsed.filter_map(|key| serde_json::from_value::<Jwk>(key).ok());
        KeySet::of(parsed, before)
    }

    pub fn of(keys: impl IntoIterator<Item = Jwk>, before: &KeySet) -> KeySet {
        let same = |jwk: &Jwk| before.keys.iter().find(|key| key.jwk == *jwk).cloned();
        let keys = keys
            .into_iter()
            .filter_map(|jwk| same(&jwk).or_else(|| Key::from_jwk(jwk).map(Arc::new)))
            .collect();
        KeySet { keys }
    }

    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The key of this name; without a name, the only key that fits.
    pub fn find(&self, kid: Option<&str>, algorithm: Algorithm) -> Lookup {
        let named = self.keys.iter().filter(|key| kid.is_none() || key.jwk.kid.as_deref() == kid);
        let mut fitting = named.clone().filter(|key| key.fits(algorithm));
        match (fitting.next(), fitting.next()) {
            (Some(key), None) => Lookup::Found(key.clone()),
            (Some(_), Some(_)) => Lookup::WrongAlgorithm,
            (None, _) if named.count() > 0 => Lookup::WrongAlgorithm,
            (None, _) => Lookup::Unknown,
        }
    }
}

#[cfg(test)]
impl Key {
    pub fn for_tests() -> Key {
        let part = Some(URL_SAFE_NO_PAD.encode([1; 32]));
        let jwk = Jwk {
            kty: "EC".into(),
            crv: Some("P-256".into()),
            x: part.clone(),
            y: part,
            ..Jwk::default()
        };
        Key::from_jwk(jwk).expect("is well formed, though no point of the curve")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set(keys: Value) -> KeySet {
        let document = serde_json::from_value(json!({ "keys": keys })).unwrap();
        KeySet::read(document, &KeySet::default())
    }

    fn ec(kid: &str) -> Value {
        let part = URL_SAFE_NO_PAD.encode([1; 32]);
        json!({"kty": "EC", "kid": kid, "crv": "P-256", "x": part, "y": part})
    }

    fn rsa(kid: &str, bytes: usize) -> Value {
        json!({"kty": "RSA", "kid": kid, "n": URL_SAFE_NO_PAD.encode(vec![0xff; bytes]), "e": "AQAB"})
    }

    #[test]
    fn keys_that_could_not_be_trusted_are_left_out() {
        let mut encrypts = ec("enc");
        encrypts["use"] = json!("enc");
        let shared = json!({"kty": "oct", "kid": "hs", "k": "c2VjcmV0", "alg": "HS256"});
        let padded = json!({"kty": "RSA", "kid": "pad", "e": "AQAB",
            "n": URL_SAFE_NO_PAD.encode([vec![0; 200], vec![0xff; 128]].concat())});
        let keys = json!([
            shared, encrypts, padded, rsa("weak", 128), 7, {}, {"kty": "EC", "crv": "secp256k1"},
            ec("good"), rsa("strong", 256)
        ]);
        let kept = set(keys);
        let ids: Vec<_> = kept.keys.iter().map(|key| key.jwk.kid.clone().unwrap()).collect();
        assert_eq!(ids, ["good", "strong"]);
    }

    #[test]
    fn a_key_is_found_only_for_an_algorithm_that_fits_it() {
        let mut pinned = rsa("pinned", 256);
        pinned["alg"] = json!("PS256");
        let set = set(json!([ec("e"), rsa("r", 256), pinned]));
        let found = |kid, alg| matches!(set.find(kid, alg), Lookup::Found(_));
        assert!(found(Some("e"), Algorithm::ES256) && found(Some("r"), Algorithm::RS256));
        assert!(matches!(set.find(Some("e"), Algorithm::RS256), Lookup::WrongAlgorithm));
        assert!(matches!(set.find(Some("e"), Algorithm::ES384), Lookup::WrongAlgorithm));
        assert!(matches!(set.find(Some("pinned"), Algorithm::RS256), Lookup::WrongAlgorithm));
        assert!(matches!(set.find(Some("x"), Algorithm::RS256), Lookup::Unknown));
        assert!(found(None, Algorithm::ES256) && found(None, Algorithm::RS256));
        assert!(!found(None, Algorithm::PS256), "two keys could be meant");
    }

    #[test]
    fn a_key_that_stays_is_the_same_key() {
        let first = set(json!([ec("a"), ec("b")]));
        let document = serde_json::from_value(json!({"keys": [ec("b"), ec("c")]})).unwrap();
        let second = KeySet::read(document, &first);
        let at = |set: &KeySet, kid| match set.find(Some(kid), Algorithm::ES256) {
            Lookup::Found(key) => key,
            _ => panic!("{kid} is not there"),
        };
        assert!(Arc::ptr_eq(&at(&first, "b"), &at(&second, "b")));
        let gone = Arc::downgrade(&at(&first, "a"));
        drop(first);
        assert_eq!(gone.strong_count(), 0);
    }
}
