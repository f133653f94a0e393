//! Small maps that are the same for many instances, such as their versions: in memory once.

use std::collections::{BTreeMap, HashSet};
use std::hash::Hash;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A map that is copied when it is changed. An empty one takes no memory.
#[derive(Debug, Clone)]
pub struct Shared<V: 'static>(Option<Arc<BTreeMap<String, V>>>);

impl<V> Default for Shared<V> {
    fn default() -> Shared<V> {
        Shared(None)
    }
}

impl<V> Deref for Shared<V> {
    type Target = BTreeMap<String, V>;

    fn deref(&self) -> &BTreeMap<String, V> {
        self.0.as_deref().unwrap_or(const { &BTreeMap::new() })
    }
}

impl<V: Clone> DerefMut for Shared<V> {
    fn deref_mut(&mut self) -> &mut BTreeMap<String, V> {
        Arc::make_mut(self.0.get_or_insert_default())
    }
}

impl<V> Shared<V> {
    pub fn is_empty(&self) -> bool {
        (**self).is_empty()
    }
}

impl<V: Clone + PartialEq> Shared<V> {
    /// Takes these in. Nothing is copied if all of them are there.
    pub fn update(&mut self, others: &BTreeMap<String, V>) {
        if others.iter().any(|(name, value)| self.get(name) != Some(value)) {
            self.extend(others.iter().map(|(name, value)| (name.clone(), value.clone())));
        }
    }
}

impl<V: PartialEq> PartialEq for Shared<V> {
    fn eq(&self, other: &Shared<V>) -> bool {
        let same = match (&self.0, &other.0) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        };
        same || **self == **other
    }
}

impl<V> From<BTreeMap<String, V>> for Shared<V> {
    fn from(map: BTreeMap<String, V>) -> Shared<V> {
        Shared((!map.is_empty()).then(|| Arc::new(map)))
    }
}

impl<V: Serialize> Serialize for Shared<V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (**self).serialize(serializer)
    }
}

impl<'de, V: Deserialize<'de>> Deserialize<'de> for Shared<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Shared<V>, D::Error> {
        BTreeMap::deserialize(deserializer).map(Shared::from)
    }
}

/// The maps that are in use, each once.
#[derive(Debug)]
pub struct Shelf<V: 'static> {
    maps: HashSet<Arc<BTreeMap<String, V>>>,
    /// When there are so many, those that nobody has any more are thrown out.
    sweep_at: usize,
}

/// Fewer are not worth a look.
const SWEEP_MIN: usize = 64;

impl<V> Default for Shelf<V> {
    fn default() -> Shelf<V> {
        Shelf { maps: HashSet::new(), sweep_at: SWEEP_MIN }
    }
}

impl<V: Hash + Eq> Shelf<V> {
    /// Puts the one that is here in the place of an equal one.
    pub fn share(&mut self, map: &mut Shared<V>) {
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

    fn map(version: &str) -> Shared<String> {
        BTreeMap::from([("kafka".to_owned(), version.to_owned())]).into()
    }

    #[test]
    fn equal_maps_are_one_and_a_change_is_ones_own() {
        let mut shelf = Shelf::default();
        let (mut one, mut other) = (map("1"), map("1"));
        shelf.share(&mut one);
        shelf.share(&mut other);
        assert!(Arc::ptr_eq(one.0.as_ref().unwrap(), other.0.as_ref().unwrap()));
        other.update(&map("1"));
        assert!(Arc::ptr_eq(one.0.as_ref().unwrap(), other.0.as_ref().unwrap()), "nothing new");
        other.insert("kafka".into(), "2".into());
        assert_eq!((one["kafka"].as_str(), other["kafka"].as_str()), ("1", "2"));
        assert_ne!(one, other);
    }

    #[test]
    fn an_empty_map_is_an_empty_map_however_it_came_to_be() {
        let mut emptied = map("1");
        emptied.clear();
        assert_eq!(emptied, Shared::default());
        assert_eq!(serde_json::to_string(&emptied).unwrap(), "{}");
        assert_eq!(serde_json::from_str::<Shared<String>>("{}").unwrap(), emptied);
    }

    #[test]
    fn what_nobody_has_any_more_is_thrown_out() {
        let mut shelf = Shelf::default();
        let mut kept = map("kept");
        shelf.share(&mut kept);
        for n in 0..10 * SWEEP_MIN {
            shelf.share(&mut map(&n.to_string()));
        }
        assert!(shelf.maps.len() <= SWEEP_MIN, "{}", shelf.maps.len());
        assert!(shelf.maps.contains(kept.0.as_ref().unwrap()));
    }
}
