//! APIs of other systems that existing clients call: the account management service behind OCM, and
//! Keycloak's service accounts.

pub mod keycloak;
pub mod ocm;
