//! Reading the files again while the server runs: at SIGHUP, by the API, or when one of them
//! changes.

use std::sync::Arc;
use std::time::Duration;

use kernel::change::{AuditDraft, Wake};
use kernel::{Change, Result};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::Fleet;
use crate::model::cluster::Provider;
use crate::plane::runner::{CLUSTER, register};
use crate::rules::Rules;

/// How often the files' times are looked at: a configuration that is mounted tells nobody.
const LOOK: Duration = Duration::from_secs(5);

impl Fleet {
    /// Takes the files as they are now, all or none, and looks at whom that concerns.
    pub async fn reload(&self, audit: Option<AuditDraft>) -> Result<()> {
        let next = Rules::read(&self.config)?;
        let before = self.rules();
        let now = self.ambient.now();
        let denied: Vec<&String> = next.access.denied.difference(&before.access.denied).collect();
        let mut wakes: Vec<Wake> = denied
            .iter()
            .flat_map(|owner| self.index.of_owner(owner))
            .map(|row| crate::api::instances::wake(&row.instance, now))
            .collect();
        let quota = next.quota != before.quota;
        for kind in next.kinds.keys().filter(|_| quota) {
            // Trials do not depend on it.
            self.index.each(kind, |instance| {
                if !instance.spec.quota_counter.starts_with("fleet/trial/") {
                    wakes.push(crate::api::instances::wake(instance, now));
                }
            });
        }
        self.set_rules(next);
        // This machine takes new kinds at once.
        if self.index.cluster(CLUSTER).is_some_and(|c| c.spec.provider == Provider::Local) {
            register(self).await?;
        }
        crate::work::declared::sync_clusters(self).await?;
        if audit.is_some() || !wakes.is_empty() {
            let change = Change { wakes, audit, ..Change::default() };
            kernel::store::commit(self.store.as_ref(), change, now).await?;
        }
        Ok(())
    }

    /// The times of all files of the rules, to notice that one changed.
    fn file_times(&self) -> Vec<(std::path::PathBuf, Option<std::time::SystemTime>)> {
        let config = &self.config;
        let kinds = config.kinds_dir.iter().flat_map(|dir| std::fs::read_dir(dir).ok());
        let kinds = kinds.flatten().filter_map(|entry| Some(entry.ok()?.path()));
        let files = [
            &config.quota_file,
            &config.deny_file,
            &config.access_file,
            &config.providers_file,
            &config.clusters_file,
        ];
        let files = files.into_iter().flatten().cloned();
        let mut times: Vec<_> = kinds
            .chain(files)
            .map(|path| {
                let time = std::fs::metadata(&path).and_then(|meta| meta.modified()).ok();
                (path, time)
            })
            .collect();
        times.sort();
        times
    }
}

/// Reads the files again whenever they change, or at SIGHUP. A mistake is logged with its place,
/// and what was there stays.
pub async fn watch(fleet: Arc<Fleet>, stop: CancellationToken) {
    let Ok(mut hangup) = signal(SignalKind::hangup()) else { return };
    let mut times = fleet.file_times();
    loop {
        // Without files there is nothing to look at.
        let look = !times.is_empty();
        tokio::select! {
            () = stop.cancelled() => return,
            _ = hangup.recv() => {}
            () = tokio::time::sleep(LOOK), if look => {
                let now = fleet.file_times();
                if now == times {
                    continue;
                }
                times = now;
            }
        }
        match fleet.reload(None).await {
            Ok(()) => tracing::info!("the fleet's files were read again"),
            Err(error) => {
                tracing::error!(%error, "the fleet's files have a mistake; what was there stays")
            }
        }
    }
}
