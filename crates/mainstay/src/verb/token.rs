//! `mainstay token`: signs a token with the built-in issuer's key.

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
    /// The subject [default: $USER]
    #[arg(long, value_name = "NAME")]
    subject: Option<String>,
    /// The organisation that they belong to
    #[arg(long, value_name = "ORG", default_value = local::ORG)]
    org: String,
    /// Make the subject an admin of the organisation
    #[arg(long)]
    org_admin: bool,
    /// A role: admin-read, admin-write, admin-full; may be repeated
    #[arg(long = "role", value_name = "ROLE")]
    roles: Vec<String>,
    /// The cluster whose agent it is for
    #[arg(long, value_name = "CLUSTER")]
    agent_of: Option<String>,
    /// How long it is valid
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
