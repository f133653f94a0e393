//! `mainstay backup | restore`: the store and the keys of an installation, in one directory.

use std::path::PathBuf;

use kernel::Ambient;
use kernel::backup::{self, Installation, Restored};

use crate::cli::ConfigArgs;
use crate::config::Config;
use crate::error::Result;
use crate::progress::with_progress;
use crate::{local, output};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
The server may run meanwhile. What was written is read back and verified. The directory holds the keys
that tokens are signed with: keep it where only you can read it.

Examples:
  mainstay backup /backup/$(date +%F)
  mainstay backup /backup/today --data-dir /var/lib/mainstay
  mainstay backup /backup/today --database postgres://mainstay@db/mainstay --data-dir /var/lib/mainstay")]
pub struct Backup {
    /// A new directory
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    #[command(flatten)]
    config: ConfigArgs,
}

impl Backup {
    pub async fn run(self) -> Result<()> {
        let config = self.config.load()?.config;
        let (of, ambient) = (installation(&config)?, Ambient::system());
        let written = backup::backup(&of, &self.dir, &ambient);
        let manifest = with_progress("writing the backup", written).await?;
        let (rows, bytes) = totals(&manifest);
        output::say(&format!(
            "{}: {} with {rows} rows in {} tables and its keys, {bytes} bytes, verified\naudit log ends at {}:{}",
            self.dir.display(),
            manifest.store,
            manifest.tables.len(),
            manifest.heads.audit_seq,
            manifest.heads.audit_hash,
        ));
        Ok(())
    }
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
The target must be empty: a new data directory, or a database without tables. All of the backup is
restored, or nothing. Start the server afterwards, with the same configuration as before.

Examples:
  mainstay restore /backup/2026-01-31 --data-dir /var/lib/mainstay
  mainstay restore /backup/2026-01-31 --database postgres://mainstay@db/new --data-dir /var/lib/mainstay")]
pub struct Restore {
    /// What `mainstay backup` wrote
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    #[command(flatten)]
    config: ConfigArgs,
}

impl Restore {
    pub async fn run(self) -> Result<()> {
        let config = self.config.load()?.config;
        local::check_data_dir(&config.data_dir)?;
        let (into, ambient) = (installation(&config)?, Ambient::system());
        let restored = backup::restore(&into, &self.dir, &ambient);
        let Restored { manifest, skipped } =
            with_progress("restoring the backup", restored).await?;
        if !skipped.is_empty() {
            let names = skipped.join(", ");
            output::say(&format!("left out, because they are not tables of Mainstay: {names}"));
        }
        let (rows, _) = totals(&manifest);
        output::say(&format!(
            "restored {rows} rows and the keys of {}; the server can be started",
            manifest.made_at
        ));
        Ok(())
    }
}

fn installation(config: &Config) -> Result<Installation> {
    let database = config.database.url()?;
    let (data_dir, keys) = (config.data_dir.clone(), local::key_files(config));
    Ok(Installation { database, data_dir, keys })
}

fn totals(manifest: &backup::Manifest) -> (u64, u64) {
    let rows = manifest.tables.iter().map(|table| table.rows).sum();
    (rows, manifest.files.iter().map(|file| file.bytes).sum())
}
