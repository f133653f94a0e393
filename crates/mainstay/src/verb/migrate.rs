//! `mainstay migrate`: the tables of this version, without starting a server.

use kernel::Ambient;
use kernel::installation::accept_keys;

use crate::cli::ConfigArgs;
use crate::error::Result;
use crate::{local, output, server};

/// A server does this itself when it starts; this is for those who want it done before.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mainstay migrate --data-dir /var/lib/mainstay
  mainstay migrate --database postgres://mainstay@db/mainstay
  mainstay migrate --accept-keys         after a key that someone may have read was removed")]
pub struct Migrate {
    /// The keys were replaced on purpose: let servers start with those that are there now
    #[arg(long)]
    accept_keys: bool,
    #[command(flatten)]
    config: ConfigArgs,
}

impl Migrate {
    pub async fn run(self) -> Result<()> {
        let loaded = self.config.load()?;
        let store = server::open_store(&loaded.config, kernel::store::uncounted()).await?;
        output::say(&format!("{} has the tables of this version", store.describe()));
        if self.accept_keys {
            let keys = local::key_files(&loaded.config);
            accept_keys(store.as_ref(), &Ambient::system(), &keys).await?;
            output::say("servers start with these keys from now on");
        }
        store.close().await?;
        Ok(())
    }
}
