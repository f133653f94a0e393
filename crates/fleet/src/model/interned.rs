//! Small maps that are equal for many instances, such as their versions, and are in memory once.

use std::collections::{BTreeMap, HashSet};
use std::hash::Hash;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A map with copy-on-write. An empty one takes no memory.
#[derive(Debug, Clone)]
pub struct InternedMap<V: 'static>(Option<Arc<BTreeMap<String, V>>>);

impl<V> Default for InternedMap<V> {
    fn default() -> InternedMap<V> {
        InternedMap(None)
    }
}

impl<V> Deref for InternedMap<V> {
    type Target = BTreeMap<String, V>;

    fn deref(&self) -> &BTreeMap<String, V> {
        self.0.as_deref().unwrap_or(const { &BTreeMap::new() })
    }
}

impl<V: Clone> DerefMut for InternedMap<V> {
    fn deref_mut(&mut self) -> &mut BTreeMap<String, V> {
        Arc::make_mut(self.0.get_or_insert_default())
    }
}

impl<V> InternedMap<V> {
    pub fn is_empty(&self) -> bool {
        (**self).is_empty()
    }
}

impl<V: Clone + PartialEq> InternedMap<V> {
    /// Inserts these entries. Copies nothing if it has all of them.
    pub fn update(&mut self, others: &BTreeMap<String, V>) {
        if others.iter().any(|(name, value)| self.get(name) != Some(value)) {
            self.extend(others.iter().map(|(name, value)| (name.clone(), value.clone())));
        }
    }
}

impl<V: PartialEq> PartialEq for InternedMap<V> {
    fn eq(&self, other: &InternedMap<V>) -> bool {
        let same = match (&self.0, &other.0) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        };
        same || **self == **other
    }
}

impl<V> From<BTreeMap<String, V>> for InternedMap<V> {
    fn from(map: BTreeMap<String, V>) -> InternedMap<V> {
        InternedMap((!map.is_empty()).then(|| Arc::new(map)))
    }
}

impl<V: Serialize> Serialize for InternedMap<V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (**self).serialize(serializer)
    }
}

impl<'de, V: Deserialize<'de>> Deserialize<'de> for InternedMap<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<InternedMap<V>, D::Error> {
        BTreeMap::deserialize(deserializer).map(InternedMap::from)
    }
}

/// The maps in use, each once.
#[derive(Debug)]
pub struct Interner<V: 'static> {
    maps: HashSet<Arc<BTreeMap<String, V>>>,
    /// At this size, unused maps are removed.
    sweep_at: usize,
}

/// Fewer maps are not worth a sweep.
const SWEEP_MIN: usize = 64;

impl<V> Default for Interner<V> {
    fn default() -> Interner<V> {
        Interner { maps: HashSet::new(), sweep_at: SWEEP_MIN }
    }
}

impl<V: Hash + Eq> Interner<V> {
    /// Replaces a map by an equal one that is in use.
    pub fn intern(&mut self, map: &mut InternedMap<V>) {
        let Some(own) = &mut map.0 else { return };
        if let Some(known) = self.maps.get(own) {
            *own = known.clone();
            return;
        }
        if self.maps.len() >= self.sweep_at {
            self.maps.retain(|map| Arc::strong_count(map) > 1);
            self.sweep_at = SWEEP_MIN.max(2 * self.maps.len());
        }
        self.maps.insert(own.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(version: &str) -> InternedMap<String> {
        BTreeMap::from([("kafka".to_owned(), version.to_owned())]).into()
    }

    #[test]
    fn equal_maps_are_shared_and_a_change_copies() {
        let mut interner = Interner::default();
        let (mut one, mut other) = (map("1"), map("1"));
        interner.intern(&mut one);
        interner.intern(&mut other);
        assert!(Arc::ptr_eq(one.0.as_ref().unwrap(), other.0.as_ref().unwrap()));
        other.update(&map("1"));
        assert!(Arc::ptr_eq(one.0.as_ref().unwrap(), other.0.as_ref().unwrap()), "nothing new");
        other.insert("kafka".into(), "2".into());
        assert_eq!((one["kafka"].as_str(), other["kafka"].as_str()), ("1", "2"));
        assert_ne!(one, other);
    }

    #[test]
    fn all_empty_maps_are_equal() {
        let mut emptied = map("1");
        emptied.clear();
        assert_eq!(emptied, InternedMap::default());
        assert_eq!(serde_json::to_string(&emptied).unwrap(), "{}");
        assert_eq!(serde_json::from_str::<InternedMap<String>>("{}").unwrap(), emptied);
    }

    #[test]
    fn unused_maps_are_removed() {
        let mut interner = Interner::default();
        let mut kept = map("kept");
        interner.intern(&mut kept);
        for n in 0..10 * SWEEP_MIN {
            interner.intern(&mut map(&n.to_string()));
        }
        assert!(interner.maps.len() <= SWEEP_MIN, "{}", interner.maps.len());
        assert!(interner.maps.contains(kept.0.as_ref().unwrap()));
    }
}
