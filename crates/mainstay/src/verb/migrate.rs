//! `mainstay migrate`: the tables of this version, without starting a server.

use crate::cli::ConfigArgs;
use crate::error::Result;
use crate::{output, server};

/// A server does this itself when it starts; this is for those who want it done before.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mainstay migrate --data-dir /var/lib/mainstay
  mainstay migrate --database postgres://mainstay@db/mainstay")]
pub struct Migrate {
    #[command(flatten)]
    config: ConfigArgs,
}

impl Migrate {
    pub async fn run(self) -> Result<()> {
        let loaded = self.config.load()?;
        let store = server::open_store(&loaded.config, kernel::store::uncounted()).await?;
        output::say(&format!("{} has the tables of this version", store.describe()));
        Ok(())
    }
}
