//! The data sources that jobs may read: those of the configuration, and those that organisations have
//! made over the API.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use kernel::blob::Blobs;
use kernel::outbound::Outbound;
use kernel::{App, Error, Key, Object, Result, Store};
use parking_lot::Mutex;

use super::{Gate, Prometheus};
use crate::model::datasource::Datasource;
use crate::model::tenant::Tenant;
use crate::model::user_source::{DATASOURCE, SETTINGS, UserSource};

/// With more, those that nobody reads are made again when they are needed.
const KEPT_MAX: usize = 500;

/// All data sources.
pub struct Sources {
    configured: BTreeMap<String, Arc<Source>>,
    store: Arc<dyn Store>,
    blobs: Blobs,
    outbound: Outbound,
    /// Whether users' data sources must have public addresses.
    guarded: bool,
    kept: Mutex<HashMap<Key, Kept>>,
}

/// A data source of the API, and the revision of the object that it was made of.
struct Kept {
    revision: i64,
    source: Arc<Source>,
}

/// A data source with its name. All that read it share its gate, so that the pace of one job is that
/// of all.
pub struct Source {
    pub name: String,
    pub client: Prometheus,
    pub gate: Gate,
}

impl Sources {
    /// Makes the clients of the configuration, without connecting.
    pub fn new(
        app: &App,
        configured: &BTreeMap<String, Datasource>,
        private_addresses: bool,
    ) -> Result<Sources> {
        let source = |(name, datasource): (&String, &Datasource)| {
            let key = format!("advisor.datasources.{name}");
            let client = Prometheus::new(&key, datasource, &app.outbound)?;
            Ok((name.clone(), Arc::new(Source::of(name, client))))
        };
        Ok(Sources {
            configured: configured.iter().map(source).collect::<Result<_>>()?,
            store: app.store.clone(),
            blobs: app.blobs.clone(),
            outbound: app.outbound.clone(),
            guarded: !private_addresses,
            kept: Mutex::default(),
        })
    }

    /// Whether users' data sources must have public addresses.
    pub fn is_guarded(&self) -> bool {
        self.guarded
    }

    pub fn is_configured(&self, name: &str) -> bool {
        self.configured.contains_key(name)
    }

    /// The data source of this name that an organisation may read, as it is now.
    pub async fn find(&self, org: &str, name: &str) -> Result<Option<Arc<Source>>> {
        if let Some(source) = self.configured.get(name) {
            return Ok(Some(source.clone()));
        }
        let key = user_source_key(org, name);
        let found = self.store.object(&key).await?;
        let Some(object) = found.filter(|object| object.deleted_at.is_none()) else {
            self.kept.lock().remove(&key);
            return Ok(None);
        };
        if let Some(source) = self.kept(&object) {
            return Ok(Some(source));
        }
        let source = self.open(&object).await?;
        let mut kept = self.kept.lock();
        // Another caller may have made one at the same time: all share one gate.
        if let Some(other) = kept.get(&key).filter(|other| other.revision == object.revision) {
            return Ok(Some(other.source.clone()));
        }
        if kept.len() >= KEPT_MAX {
            kept.retain(|_, kept| Arc::strong_count(&kept.source) > 1);
        }
        kept.insert(key, Kept { revision: object.revision, source: source.clone() });
        Ok(Some(source))
    }

    fn kept(&self, object: &Object) -> Option<Arc<Source>> {
        let kept = self.kept.lock();
        let found = kept.get(&object.key).filter(|kept| kept.revision == object.revision);
        found.map(|kept| kept.source.clone())
    }

    /// Makes the client of an object. All that it needs is in one blob, so an address never meets the
    /// secrets of another.
    async fn open(&self, object: &Object) -> Result<Arc<Source>> {
        let damaged = |why: String| Error::internal(format!("{} is damaged", object.key), why);
        let blob = self.blobs.get(self.store.as_ref(), &object.key, SETTINGS).await?;
        // It was deleted since the object was read.
        let blob =
            blob.ok_or_else(|| Error::Transient(format!("{} is being changed", object.key)))?;
        let value: serde_json::Value = serde_json::from_slice(&blob.data)
            .map_err(|_| damaged("its settings are not JSON".to_owned()))?;
        let source = UserSource::try_from(value).map_err(|error| damaged(error.to_string()))?;
        let client = Prometheus::of_user(&source, &self.outbound, self.guarded).await?;
        Ok(Arc::new(Source::of(&source.name, client)))
    }

    /// The names of those that an organisation may read.
    pub async fn names(&self, org: &str) -> Result<Vec<String>> {
        let mut names: Vec<String> = self.configured.keys().cloned().collect();
        if !org.is_empty() {
            let made = self.store.find(&Tenant { org, owner: "" }.query(DATASOURCE)).await?;
            names.extend(made.objects.into_iter().map(|object| object.name));
        }
        names.sort();
        names.dedup();
        Ok(names)
    }
}

impl Source {
    fn of(name: &str, client: Prometheus) -> Source {
        Source { name: name.to_owned(), gate: Gate::of(&client), client }
    }
}

/// The key of a data source that an organisation has made.
pub fn user_source_key(org: &str, name: &str) -> Key {
    Tenant { org, owner: "" }.key(DATASOURCE, name)
}
