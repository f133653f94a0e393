//! Who is denied with which error, and what handlers know of a caller.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use kernel::http::{Caller, CommandSender, RequestContext};
use kernel::identity::{Action, Principal};
use kernel::{App, Error, Result};

use crate::Fleet;
use crate::model::catalogue::Catalogue;
use crate::model::error_code::ErrorCode;
use crate::store::access;

/// Returns the error for a caller whose roles do not allow the action. The existing service hides
/// the routes of admins and agents from everybody else.
pub fn deny(action: Action, _: &Principal) -> Error {
    match action {
        Action::Agent | Action::AdminRead | Action::AdminWrite | Action::AdminFull => {
            ErrorCode::NotFound.default_error()
        }
        _ => ErrorCode::Unauthenticated.default_error(),
    }
}

/// A request to a route of the fleet.
pub struct FleetRequest {
    pub fleet: Arc<Fleet>,
    pub context: Arc<RequestContext>,
    pub sender: CommandSender,
    pub who: Arc<Principal>,
}

impl FromRequestParts<App> for FleetRequest {
    type Rejection = Error;
    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<FleetRequest> {
        let sender = CommandSender::from_request_parts(parts, app).await?;
        let context = sender.context.clone();
        let Caller(who) = <Caller as FromRequestParts<App>>::from_request_parts(parts, app).await?;
        let fleet = parts.extensions.get::<Arc<Fleet>>().cloned();
        let fleet = fleet.ok_or_else(|| Error::internal("a route of the fleet", "has no state"))?;
        Ok(FleetRequest { fleet, context, sender, who })
    }
}

/// A caller of an organisation that has access, on routes with [`Action::OrgUser`].
pub struct User {
    pub fleet: Arc<Fleet>,
    pub catalogue: Arc<Catalogue>,
    pub sender: CommandSender,
    pub who: Arc<Principal>,
}

impl FromRequestParts<App> for User {
    type Rejection = Error;
    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<User> {
        let FleetRequest { fleet, sender, who, .. } =
            FleetRequest::from_request_parts(parts, app).await?;
        let catalogue = fleet.catalogue();
        access::check(&catalogue, &who)?;
        Ok(User { fleet, catalogue, sender, who })
    }
}
