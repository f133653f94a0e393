//! A cache of recently read objects.
//!
//! It never serves anything older than the last commit. The writer invalidates the objects of a
//! batch before the commit; until the commit has ended they are not cached, and readers go to the
//! file. A reader caches what it read from the file only if no batch ended since it began to read,
//! and no running batch writes the object: then its copy is still current.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::{Key, Object};

/// The size limit, map overhead included: about 8,000 objects with a spec of a few hundred
/// bytes.
const BYTES_MAX: usize = 8 << 20;

pub struct Cache {
    generations: Mutex<Generations>,
    bytes_max: usize,
}

#[derive(Default)]
struct Generations {
    /// Recently read. When it reaches half of the limit, it replaces `old`, which is dropped.
    young: HashMap<Key, Arc<Object>>,
    young_bytes: usize,
    old: HashMap<Key, Arc<Object>>,
    /// Keys that the running batch writes.
    writing: HashSet<Key>,
    batches_ended: u64,
}

/// The number of ended batches when a read of the file began.
pub struct ReadEpoch(u64);

impl Cache {
    pub fn new() -> Cache {
        Cache { generations: Mutex::default(), bytes_max: BYTES_MAX }
    }

    /// The cached object. On a miss: read the file, then call [`Cache::put`].
    pub fn get(&self, key: &Key) -> Result<Arc<Object>, ReadEpoch> {
        let mut generations = self.generations.lock();
        if let Some(object) = generations.young.get(key) {
            return Ok(object.clone());
        }
        if let Some(object) = generations.old.remove(key) {
            generations.keep(object.clone(), self.bytes_max);
            return Ok(object);
        }
        Err(ReadEpoch(generations.batches_ended))
    }

    pub fn put(&self, object: Arc<Object>, epoch: ReadEpoch) {
        let mut generations = self.generations.lock();
        if epoch.0 == generations.batches_ended && !generations.writing.contains(&object.key) {
            generations.keep(object, self.bytes_max);
        }
    }

    /// Call before the commit of a batch that writes these keys. Hold the guard until the commit has
    /// ended, successful or not.
    pub fn invalidate(&self, keys: impl IntoIterator<Item = Key>) -> InvalidationGuard<'_> {
        let mut generations = self.generations.lock();
        for key in keys {
            generations.remove(&key);
            generations.writing.insert(key);
        }
        InvalidationGuard(self)
    }
}

/// Held during the commit of a batch.
pub struct InvalidationGuard<'a>(&'a Cache);

impl Drop for InvalidationGuard<'_> {
    fn drop(&mut self) {
        let mut generations = self.0.generations.lock();
        generations.writing.clear();
        generations.batches_ended += 1;
    }
}

impl Generations {
    fn keep(&mut self, object: Arc<Object>, bytes_max: usize) {
        self.remove(&object.key);
        let bytes = bytes(&object);
        if bytes > bytes_max / 8 {
            return;
        }
        if self.young_bytes + bytes > bytes_max / 2 {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
        self.young_bytes += bytes;
        self.young.insert(object.key.clone(), object);
    }

    fn remove(&mut self, key: &Key) {
        if let Some(object) = self.young.remove(key) {
            self.young_bytes -= bytes(&object);
        }
        self.old.remove(key);
    }
}

/// The approximate memory of an object: its strings, its map entry, and allocator overhead.
fn bytes(object: &Object) -> usize {
    let Object { key, org, owner, name, description, phase, labels, spec, status, .. } = object;
    let texts = [key.as_str(), key.as_str(), org, owner, name, description, phase];
    let texts = texts.into_iter().chain([spec.text(), status.text()]);
    let labels = labels.iter().map(|(key, value)| 64 + key.len() + value.len());
    2 * size_of::<Object>() + texts.map(str::len).sum::<usize>() + labels.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Json, Timestamp};
    use proptest::prelude::*;

    fn object(id: u8, revision: i64, spec_bytes: usize) -> Arc<Object> {
        let key = Key::new("widget", &id.to_string());
        let mut object = Object::new(key, "acme", "alice", "n", "ready", Timestamp(0));
        object.revision = revision;
        object.spec = Json::encode(&"x".repeat(spec_bytes));
        Arc::new(object)
    }

    fn held(cache: &Cache) -> usize {
        let generations = cache.generations.lock();
        let young: usize = generations.young.values().map(|object| bytes(object)).sum();
        assert_eq!(young, generations.young_bytes);
        young + generations.old.values().map(|object| bytes(object)).sum::<usize>()
    }

    #[test]
    fn it_stays_within_its_limit_and_keeps_recently_used_objects() {
        let cache = Cache { bytes_max: 20_000, ..Cache::new() };
        let used = object(255, 1, 100);
        for n in 0..=254 {
            for object in [object(n, 1, usize::from(n) * 15), used.clone()] {
                if let Err(epoch) = cache.get(&object.key) {
                    cache.put(object, epoch);
                }
                assert!(held(&cache) <= 20_000, "{} bytes", held(&cache));
            }
            assert!(cache.get(&used.key).is_ok(), "after {n}");
        }
        assert!(
            cache.get(&object(0, 1, 0).key).is_err(),
            "an object that was not read again is evicted"
        );
    }

    /// One step of the writer, or of one of three readers.
    #[derive(Debug, Clone)]
    enum Step {
        Begin(Vec<u8>),
        Commit,
        End,
        Attempt(usize, u8),
        Read(usize),
        Put(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            prop::collection::vec(0..3_u8, 0..3).prop_map(Step::Begin),
            Just(Step::Commit),
            Just(Step::End),
            (0..3_usize, 0..3_u8).prop_map(|(reader, id)| Step::Attempt(reader, id)),
            (0..3_usize).prop_map(Step::Read),
            (0..3_usize).prop_map(Step::Put),
        ]
    }

    /// The next step of a reader after a cache miss.
    enum Pending {
        Read(u8, ReadEpoch),
        Put(Arc<Object>, ReadEpoch),
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn the_cache_agrees_with_the_file_in_every_order_of_steps(
            steps in prop::collection::vec(step(), 0..60)
        ) {
            let cache = Cache::new();
            let mut file = [1_i64; 3];
            // The running batch, the keys it writes, and whether it is committed.
            let mut batch: Option<(InvalidationGuard<'_>, Vec<u8>, bool)> = None;
            let mut readers: [Option<Pending>; 3] = [None, None, None];
            for step in steps {
                match step {
                    Step::Begin(ids) if batch.is_none() => {
                        let keys = ids.iter().map(|id| object(*id, 0, 0).key.clone());
                        batch = Some((cache.invalidate(keys), ids, false));
                    }
                    Step::Commit => if let Some((_, ids, committed @ false)) = &mut batch {
                        ids.iter().for_each(|id| file[usize::from(*id)] += 1);
                        *committed = true;
                    },
                    Step::End => batch = None,
                    Step::Attempt(reader, id) => match cache.get(&object(id, 0, 0).key) {
                        Ok(found) => prop_assert_eq!(found.revision, file[usize::from(id)]),
                        Err(epoch) => readers[reader] = Some(Pending::Read(id, epoch)),
                    },
                    Step::Read(reader) => readers[reader] = match readers[reader].take() {
                        Some(Pending::Read(id, epoch)) => {
                            Some(Pending::Put(object(id, file[usize::from(id)], 0), epoch))
                        }
                        other => other,
                    },
                    Step::Put(reader) => match readers[reader].take() {
                        Some(Pending::Put(object, epoch)) => cache.put(object, epoch),
                        other => readers[reader] = other,
                    },
                    Step::Begin(_) => {}
                }
            }
        }
    }
}
