//! Which organisations and people have access, and what they see.

use kernel::Result;
use kernel::identity::Principal;

use crate::model::catalogue::Catalogue;
use crate::model::error_code::ErrorCode;
use crate::model::instance::Instance;

/// Checks the access lists of the catalogue.
pub fn check(catalogue: &Catalogue, who: &Principal) -> Result<()> {
    let access = &catalogue.access;
    if access.denied.contains(&who.subject) {
        let reason = format!("User '{}' is not authorized to access the service.", who.subject);
        return Err(ErrorCode::Forbidden.error(reason));
    }
    if access.allowed.as_ref().is_some_and(|allowed| !allowed.contains(&who.org)) {
        return Err(ErrorCode::Maintenance.default_error());
    }
    Ok(())
}

/// Whether the instance is visible to the caller: their organisation's, or their own without one.
pub fn can_see(who: &Principal, instance: &Instance) -> bool {
    match who.org.as_str() {
        "" => instance.org.is_empty() && instance.owner == who.subject,
        org => instance.org == org,
    }
}
