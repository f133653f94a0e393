//! Access on the server's own machine: its data directory has the server's address, and its
//! signing key signs tokens.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kernel::Ambient;
use kernel::identity::Principal;
use kernel::identity::builtin::{CLI_CLIENT, KEY_FILE, Kind, Signer};
use kernel::installation::KeyFile;
use serde::{Deserialize, Serialize};

use crate::client::context::Context;
use crate::config::{Config, Sources};
use crate::error::{Error, Result};
use crate::output::{program, quoted};

/// In the data directory: the address of the server when it last ran.
const ADDRESS_FILE: &str = "address";

/// Creates the directory, for its owner alone.
pub fn make_data_dir(dir: &Path) -> Result<()> {
    check_data_dir(dir)?;
    let mut builder = std::fs::DirBuilder::new();
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    let made = builder.recursive(true).create(dir);
    made.map_err(|e| Error::file(format!("data_dir: {} cannot be made", dir.display()), e))
}

/// Refuses a directory that cannot be meant, or that a restore did not finish.
pub fn check_data_dir(dir: &Path) -> Result<()> {
    if dir.starts_with("~") {
        let why = "HOME is not set, so there is no directory `~`; say where the data is with --data-dir DIR";
        return Err(kernel::Error::invalid("data_dir", why).into());
    }
    Ok(kernel::installation::check_data_dir(dir)?)
}

/// The key that sealed data is encrypted with.
pub fn installation_key_file(config: &Config) -> PathBuf {
    config.key_file.clone().unwrap_or_else(|| config.data_dir.join(INSTALLATION_KEY))
}

const INSTALLATION_KEY: &str = "installation-key";

/// The keys that this configuration uses: tokens are signed with one, secrets derived from another,
/// and data sealed with the third.
pub fn key_files(config: &Config) -> Vec<KeyFile> {
    let file = |configured: &Option<PathBuf>, name, setting| KeyFile {
        name,
        path: configured.clone().unwrap_or_else(|| config.data_dir.join(name)),
        setting,
    };
    let issuer = || file(&config.identity.signing_key_file, KEY_FILE, "identity.signing_key_file");
    let fleet = file(&config.fleet.key_file, "fleet-key", "fleet.key_file");
    let sealing = file(&config.key_file, INSTALLATION_KEY, "key_file");
    config.identity.builtin().then(issuer).into_iter().chain([fleet, sealing]).collect()
}

/// The server's URL for clients. Also the name of its issuer.
pub fn public_url(config: &Config, listens: SocketAddr) -> String {
    let scheme = if config.http.tls.is_some() { "https" } else { "http" };
    match &config.http.public_url {
        Some(url) => url.as_str().trim_end_matches('/').into(),
        None => format!("{scheme}://{listens}"),
    }
}

pub fn write_address(config: &Config, url: &str) -> Result<()> {
    let path = config.data_dir.join(ADDRESS_FILE);
    // A client may read it at any moment.
    kernel::files::replace(&path, format!("{url}\n").as_bytes(), 0o644)
        .map_err(|e| Error::file(format!("{} cannot be written", path.display()), e))
}

/// The address of the server of this data directory, at least when it last ran.
pub fn address(data_dir: &Path) -> Option<String> {
    let text = std::fs::read_to_string(data_dir.join(ADDRESS_FILE)).ok()?;
    Some(text.trim().to_owned()).filter(|url| !url.is_empty())
}

/// A server whose signing key is readable: what a context needs to sign tokens for it.
#[derive(Clone, Serialize, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Local {
    pub data_dir: PathBuf,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signing_key_file: Option<PathBuf>,
}

impl Local {
    pub fn of(config: &Config) -> Local {
        Local {
            data_dir: config.data_dir.clone(),
            signing_key_file: config.identity.signing_key_file.clone(),
        }
    }

    /// An admin's token: a user who can read the signing key could sign one anyway.
    pub fn token(&self) -> Result<String> {
        let Some(address) = address(&self.data_dir) else {
            let dir = quoted(&self.data_dir.to_string_lossy());
            let why = format!(
                "no server has run with {dir}; start one with `{} server --data-dir {dir}`",
                program()
            );
            return Err(kernel::Error::invalid("data_dir", why).into());
        };
        let mut config = Config { data_dir: self.data_dir.clone(), ..Config::default() };
        config.identity.signing_key_file = self.signing_key_file.clone();
        let who = Principal {
            subject: user(),
            org: ORG.into(),
            roles: ["admin-full".to_owned()].into(),
            ..Principal::default()
        };
        sign(&config, &address, &who, TOKEN_FOR, Kind::Access)
    }
}

/// The server of the usual data directory, if it is the one at this address and its signing key
/// can be read.
pub fn found(server: &str) -> Option<Context> {
    let config = crate::config::load(&Sources::of_process(None, Vec::new())).ok()?.config;
    let same = |url: String| url.trim_end_matches('/') == server.trim_end_matches('/');
    address(&config.data_dir).filter(|url| same(url.clone()))?;
    let local = Local::of(&config);
    local.token().ok()?;
    Some(Context { server: server.into(), local: Some(local), ..Context::default() })
}

/// The lifetime of a token that a client on the server's machine signs for itself.
pub const TOKEN_FOR: Duration = Duration::from_secs(15 * 60);

/// The organisation of users on the server's own machine.
pub const ORG: &str = "local";

/// Signs a token as the server of this configuration would, in its own name.
pub fn issue(config: &Config, who: &Principal, good_for: Duration, kind: Kind) -> Result<String> {
    make_data_dir(&config.data_dir)?;
    let configured = config.http.public_url.is_some();
    let known = address(&config.data_dir).filter(|_| !configured);
    let issuer = known.unwrap_or_else(|| public_url(config, config.listen));
    sign(config, &issuer, who, good_for, kind)
}

fn sign(
    config: &Config,
    issuer: &str,
    who: &Principal,
    good_for: Duration,
    kind: Kind,
) -> Result<String> {
    let signer = Signer::open(&config.identity, &config.data_dir, issuer, Ambient::system())?;
    Ok(signer.issue(who, CLI_CLIENT, good_for, kind)?)
}

/// The person at this machine.
pub fn user() -> String {
    std::env::var("USER").ok().filter(|user| !user.is_empty()).unwrap_or_else(|| "local".into())
}
