//! `mainstay token`: a token from the built-in issuer, for whoever can read its signing key.

use std::time::Duration;

use kernel::identity::Principal;
use kernel::identity::builtin::Kind;

use crate::cli::{ConfigArgs, duration};
use crate::error::Result;
use crate::{local, output};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  export MAINSTAY_TOKEN=$(mainstay token)
  mainstay token --subject alice --org acme --for 8h
  mainstay token --role admin-read
  mainstay token --subject ci --offline --for 90d     a refresh token, for `mainstay login --token`")]
pub struct Token {
    /// Who it speaks for [default: $USER]
    #[arg(long, value_name = "NAME")]
    subject: Option<String>,
    /// The organisation that they belong to
    #[arg(long, value_name = "ORG", default_value = local::ORG)]
    org: String,
    /// They may do everything that their organisation may
    #[arg(long)]
    org_admin: bool,
    /// A role: admin-read, admin-write, admin-full; may be repeated
    #[arg(long = "role", value_name = "ROLE")]
    roles: Vec<String>,
    /// The cluster whose agent it is for
    #[arg(long, value_name = "CLUSTER")]
    agent_of: Option<String>,
    /// How long it is good for
    #[arg(long = "for", value_name = "TIME", default_value = "1h", value_parser = duration)]
    for_: Duration,
    /// A refresh token, from which access tokens are made
    #[arg(long)]
    offline: bool,
    #[command(flatten)]
    config: ConfigArgs,
}

const ROLES: [&str; 3] = ["admin-read", "admin-write", "admin-full"];

impl Token {
    pub fn run(self) -> Result<()> {
        let loaded = self.config.load()?;
        let who = Principal {
            subject: self.subject.unwrap_or_else(local::user),
            org: self.org,
            org_admin: self.org_admin,
            roles: self.roles.iter().map(|role| role.to_lowercase()).collect(),
            agent_of: self.agent_of,
            ..Principal::default()
        };
        for role in who.roles.iter().filter(|role| !ROLES.contains(&role.as_str())) {
            output::say(&format!("note: the role `{role}` means nothing to Mainstay itself"));
        }
        let kind = if self.offline { Kind::Refresh } else { Kind::Access };
        output::print(&local::issue(&loaded.config, &who, self.for_, kind)?)
    }
}
