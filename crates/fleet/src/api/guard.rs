//! Who is let in, and what the others are told: as the existing service does.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use kernel::http::{Caller, Context, RequestContext};
use kernel::identity::Principal;
use kernel::{App, Error, Result};

use super::router::Call;
use crate::Fleet;
use crate::model::catalogue::Catalogue;
use crate::model::error_code::ErrorCode;

/// Who is let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guard {
    Anyone,
    /// Whoever is signed in.
    SignedIn,
    /// A person of an organisation that is let in.
    User,
    /// A person, or a service account, of an organisation that is let in.
    Reader,
    /// The agent of the cluster in the path. Others are not told that there is something.
    Agent,
    /// An agent, of whichever cluster.
    AnyAgent,
    /// An admin, by the method. Others are not told that there is something.
    Admin,
}

impl Guard {
    pub fn admit(self, call: &Call, method: &str, who: &Principal) -> Result<()> {
        let hidden = || Err(ErrorCode::NotFound.default_error());
        match self {
            Guard::Anyone | Guard::SignedIn => Ok(()),
            Guard::User => admit_user(&call.catalogue, who),
            Guard::Reader => admit_organisation(&call.catalogue, who),
            Guard::Agent => match &who.agent_of {
                Some(id) if *id == call.args[0] && call.fleet.index.cluster(id).is_some() => Ok(()),
                _ => hidden(),
            },
            Guard::AnyAgent => match &who.agent_of {
                Some(_) => Ok(()),
                None => hidden(),
            },
            Guard::Admin => {
                let roles: &[&str] = match method {
                    "GET" => &["admin-read", "admin-write", "admin-full"],
                    "PATCH" => &["admin-write", "admin-full"],
                    _ => &["admin-full"],
                };
                if roles.iter().any(|role| who.roles.contains(*role)) { Ok(()) } else { hidden() }
            }
        }
    }
}

/// A person of an organisation that is let in, on routes of their own.
pub struct User {
    pub fleet: Arc<Fleet>,
    pub catalogue: Arc<Catalogue>,
    pub context: Arc<RequestContext>,
    pub who: Arc<Principal>,
}

impl FromRequestParts<App> for User {
    type Rejection = Error;
    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<User> {
        let Context(context) = Context::from_request_parts(parts, app).await?;
        let Caller(who) = <Caller as FromRequestParts<App>>::from_request_parts(parts, app).await?;
        let fleet = app.shared::<Fleet>()?;
        let catalogue = fleet.catalogue();
        admit_user(&catalogue, &who)?;
        Ok(User { fleet, catalogue, context, who })
    }
}

fn admit_user(catalogue: &Catalogue, who: &Principal) -> Result<()> {
    if is_program(who) {
        return Err(ErrorCode::Unauthenticated.default_error());
    }
    admit_organisation(catalogue, who)
}

fn admit_organisation(catalogue: &Catalogue, who: &Principal) -> Result<()> {
    if who.agent_of.is_some() || who.org.is_empty() {
        return Err(ErrorCode::Unauthenticated.default_error());
    }
    let access = &catalogue.access;
    if access.denied.contains(&who.subject) {
        let why = format!("User '{}' is not authorized to access the service.", who.subject);
        return Err(ErrorCode::Forbidden.error(why));
    }
    if access.allowed.as_ref().is_some_and(|allowed| !allowed.contains(&who.org)) {
        return Err(ErrorCode::Maintenance.default_error());
    }
    Ok(())
}

/// A service account of ours: for the data plane, not for this API.
fn is_program(who: &Principal) -> bool {
    who.client.starts_with("srvc-acct-") || who.client.starts_with("canary-")
}
