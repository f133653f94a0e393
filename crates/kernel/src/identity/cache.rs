//! A cache of verified tokens by hash, so that each signature is verified once.
//!
//! A table of small buckets: a token can be in one bucket only, so look-up and eviction touch a
//! handful of entries, however full the table is.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use super::Principal;
use super::keys::Key;
use crate::Timestamp;

const BUCKETS: usize = 1024;
/// 10,240 tokens in all: more concurrent callers than one process serves.
const BUCKET_ENTRIES_MAX: usize = 10;

pub type TokenHash = [u8; 32];

pub fn token_hash(token: &str) -> TokenHash {
    Sha256::digest(token).into()
}

pub struct Cache {
    buckets: Vec<Mutex<Vec<Entry>>>,
}

struct Entry {
    hash: TokenHash,
    /// When it expires, with the allowed clock skew.
    until: Timestamp,
    /// Valid as long as the issuer has the key.
    key: Weak<Key>,
    principal: Arc<Principal>,
}

impl Entry {
    fn holds(&self, now: Timestamp) -> bool {
        now < self.until && self.key.strong_count() > 0
    }
}

impl Cache {
    pub fn new() -> Cache {
        Cache { buckets: (0..BUCKETS).map(|_| Mutex::default()).collect() }
    }

    fn bucket(&self, hash: &TokenHash) -> &Mutex<Vec<Entry>> {
        let index = usize::from(u16::from_be_bytes([hash[0], hash[1]])) % BUCKETS;
        &self.buckets[index]
    }

    pub fn get(&self, hash: &TokenHash, now: Timestamp) -> Option<Arc<Principal>> {
        let bucket = self.bucket(hash).lock();
        let entry = bucket.iter().find(|entry| entry.hash == *hash)?;
        entry.holds(now).then(|| entry.principal.clone())
    }

    pub fn put(
        &self,
        hash: TokenHash,
        until: Timestamp,
        key: &Arc<Key>,
        principal: Arc<Principal>,
        now: Timestamp,
    ) {
        let mut bucket = self.bucket(&hash).lock();
        bucket.retain(|entry| entry.holds(now) && entry.hash != hash);
        if bucket.len() >= BUCKET_ENTRIES_MAX {
            let soonest = (0..bucket.len()).min_by_key(|i| bucket[*i].until).unwrap_or(0);
            bucket.swap_remove(soonest);
        }
        bucket.push(Entry { hash, until, key: Arc::downgrade(key), principal });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn principal(name: &str) -> Arc<Principal> {
        Arc::new(Principal { subject: name.into(), ..Principal::default() })
    }

    fn hash(bucket: u8, number: u8) -> TokenHash {
        let mut hash = [0; 32];
        (hash[1], hash[31]) = (bucket, number);
        hash
    }

    #[test]
    fn a_token_is_believed_until_it_expires_or_its_key_goes() {
        let (cache, key) = (Cache::new(), Arc::new(Key::for_tests()));
        let (now, until) = (Timestamp(0), Timestamp(100));
        cache.put(hash(1, 1), until, &key, principal("a"), now);
        assert_eq!(cache.get(&hash(1, 1), Timestamp(99)).unwrap().subject, "a");
        assert!(cache.get(&hash(1, 1), until).is_none());
        assert!(cache.get(&hash(1, 2), now).is_none());
        drop(key);
        assert!(cache.get(&hash(1, 1), now).is_none());
    }

    #[test]
    fn a_full_bucket_gives_up_the_dead_first_and_then_what_expires_soonest() {
        let (cache, key) = (Cache::new(), Arc::new(Key::for_tests()));
        let gone = Arc::new(Key::for_tests());
        cache.put(hash(1, 0), Timestamp(9_999), &gone, principal("gone"), Timestamp(0));
        drop(gone);
        for n in 1..=10 {
            let until = Timestamp(1_000 + i64::from(n));
            cache.put(hash(1, n), until, &key, principal("a"), Timestamp(0));
        }
        assert!((1..=10).all(|n| cache.get(&hash(1, n), Timestamp(0)).is_some()));
        cache.put(hash(1, 11), Timestamp(2_000), &key, principal("b"), Timestamp(0));
        assert!(cache.get(&hash(1, 1), Timestamp(0)).is_none());
        assert!((2..=11).all(|n| cache.get(&hash(1, n), Timestamp(0)).is_some()));
        assert!(cache.buckets.iter().all(|b| b.lock().len() <= BUCKET_ENTRIES_MAX));
    }
}
