//! Fetches and caches one issuer's keys: on first use, when a token names an unknown key, and
//! periodically. Known keys are kept while the issuer is unreachable.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use parking_lot::{Mutex, RwLock};
use reqwest::Method;
use serde::Deserialize;
use url::Url;

use super::config::Algorithm;
pub use super::jwk::Key;
use super::jwk::{Document, Jwk, KeySet, Lookup};
use super::token::refused;
use crate::outbound::{self, Target};
use crate::{Ambient, Error, Result, Timestamp};

/// The shortest interval between fetches, so that tokens with made-up key ids cannot cause more.
const REFRESH_EVERY: Duration = Duration::from_secs(60);
/// Without any keys nobody can sign in: retry more often.
const FIRST_EVERY: Duration = Duration::from_secs(5);
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);
const DOCUMENT_BYTES_MAX: usize = 512 * 1024;

pub struct Keys {
    issuer: String,
    set: RwLock<Arc<KeySet>>,
    /// `None`: the keys are ours and never change.
    source: Option<Source>,
    refresh: Mutex<Refresh>,
    ambient: Ambient,
}

#[derive(Default)]
struct Refresh {
    began: Option<Timestamp>,
    number: u64,
    /// Concurrent callers share one fetch.
    in_flight: Option<Fetching>,
}

type Fetching = Shared<BoxFuture<'static, Result<Arc<KeySet>, Arc<Error>>>>;

#[derive(Clone)]
struct Source {
    issuer: String,
    jwks_url: Option<String>,
    target: Target,
}

impl Keys {
    pub fn fixed(issuer: &str, key: Jwk, ambient: Ambient) -> Keys {
        Keys::new(issuer, KeySet::of([key], &KeySet::default()), None, ambient)
    }

    pub fn remote(
        issuer: &str,
        jwks_url: Option<String>,
        target: Target,
        ambient: Ambient,
    ) -> Keys {
        let target = target.with_timeout(FETCH_TIMEOUT);
        let source = Source { issuer: issuer.to_owned(), jwks_url, target };
        Keys::new(issuer, KeySet::default(), Some(source), ambient)
    }

    fn new(issuer: &str, set: KeySet, source: Option<Source>, ambient: Ambient) -> Keys {
        let (issuer, set) = (issuer.to_owned(), RwLock::new(Arc::new(set)));
        Keys { issuer, set, source, refresh: Mutex::default(), ambient }
    }

    fn current(&self) -> Arc<KeySet> {
        self.set.read().clone()
    }

    /// The key that a token names, fetched if need be.
    pub async fn find(&self, kid: Option<&str>, algorithm: Algorithm) -> Result<Arc<Key>> {
        let mut found = self.current().find(kid, algorithm);
        if matches!(found, Lookup::Unknown) {
            let fetched = self.refresh(true).await;
            let current = self.current();
            if let (Err(error), true) = (fetched, current.is_empty()) {
                return Err(Error::unavailable(format!("the issuer {}", self.issuer), error));
            }
            found = current.find(kid, algorithm);
        }
        match found {
            Lookup::Found(key) => Ok(key),
            Lookup::WrongAlgorithm => Err(refused(format!(
                "the token's `alg` {algorithm:?} does not match the key that its `kid` names"
            ))),
            Lookup::Unknown => Err(refused(format!(
                "the token is signed with a key that {} does not have, or no longer has; get a new token",
                self.issuer
            ))),
        }
    }

    /// Fetches the keys; keeps the known ones if that fails. `limited`: skips the fetch if the last
    /// one was just now, which is an error only without any keys.
    pub async fn refresh(&self, limited: bool) -> Result<(), Arc<Error>> {
        let Some(source) = &self.source else { return Ok(()) };
        let (number, fetching) = {
            let mut refresh = self.refresh.lock();
            match &refresh.in_flight {
                Some(fetching) => (refresh.number, fetching.clone()),
                None if limited && self.is_too_soon(refresh.began) => {
                    return Err(Arc::new(Error::unavailable(
                        "its keys",
                        "asked for them just now",
                    )));
                }
                None => {
                    let fetching = source.clone().fetch(self.current()).boxed().shared();
                    refresh.number += 1;
                    refresh.began = Some(self.ambient.now());
                    refresh.in_flight = Some(fetching.clone());
                    (refresh.number, fetching)
                }
            }
        };
        let fetched = fetching.await;
        let mut refresh = self.refresh.lock();
        if refresh.number == number && refresh.in_flight.take().is_some() {
            match &fetched {
                Ok(set) => *self.set.write() = set.clone(),
                Err(error) => tracing::warn!(
                    issuer = self.issuer,
                    error = error.as_ref() as &dyn std::error::Error,
                    "fetching the issuer's keys failed; keeping the known ones"
                ),
            }
        }
        fetched.map(|_| ())
    }

    fn is_too_soon(&self, began: Option<Timestamp>) -> bool {
        let every = if self.current().is_empty() { FIRST_EVERY } else { REFRESH_EVERY };
        let now = self.ambient.now();
        // A clock that was set back must not block fetches until it has caught up.
        began.is_some_and(|began| began <= now && now < began.plus(every))
    }
}

impl Source {
    async fn fetch(self, before: Arc<KeySet>) -> Result<Arc<KeySet>, Arc<Error>> {
        let fetch = async {
            let jwks_url = match &self.jwks_url {
                Some(url) => url.clone(),
                None => self.discover().await?,
            };
            let document: Document = self.get("keys", &jwks_url).await?;
            let set = KeySet::read(document, &before);
            if set.is_empty() {
                let why = "none of its keys can verify an accepted signature";
                return Err(Error::unavailable(jwks_url, why));
            }
            Ok(Arc::new(set))
        };
        fetch.await.map_err(Arc::new)
    }

    async fn discover(&self) -> Result<String> {
        #[derive(Deserialize)]
        struct Discovery {
            issuer: String,
            jwks_uri: String,
        }
        let base = self.issuer.trim_end_matches('/');
        let url = format!("{base}/.well-known/openid-configuration");
        let found: Discovery = self.get("discovery", &url).await?;
        if found.issuer.trim_end_matches('/') != base {
            let why = format!("it speaks for {:?}, not for {:?}", found.issuer, self.issuer);
            return Err(Error::unavailable(url, why));
        }
        Ok(found.jwks_uri)
    }

    async fn get<T: serde::de::DeserializeOwned>(&self, operation: &str, url: &str) -> Result<T> {
        let url = Url::parse(url).map_err(|e| Error::unavailable(url, e))?;
        let request = self.target.request(Method::GET, url);
        let response = self.target.http(operation, request).await?;
        outbound::json(response, DOCUMENT_BYTES_MAX).await
    }
}
