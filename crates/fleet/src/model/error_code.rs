//! The fleet's error codes: numbers that clients switch on, the same for every kind.

use kernel::{Class, Error};

macro_rules! codes {
    ($($(#[$about:meta])* $name:ident = $number:literal, $http:literal, $class:ident, $reason:literal;)*) => {
        /// An error code, by its number on the wire.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum ErrorCode { $($(#[$about])* $name = $number,)* }

        impl ErrorCode {
            pub const ALL: &'static [ErrorCode] = &[$(ErrorCode::$name,)*];

            pub fn number(self) -> u32 {
                self as u32
            }

            pub fn http(self) -> u16 {
                match self { $(ErrorCode::$name => $http,)* }
            }

            pub fn class(self) -> Class {
                match self { $(ErrorCode::$name => Class::$class,)* }
            }

            /// The default text.
            pub fn reason(self) -> &'static str {
                match self { $(ErrorCode::$name => $reason,)* }
            }
        }
    };
}

codes! {
    Forbidden = 4, 403, Forbidden, "Forbidden to perform this action";
    QuotaReached = 5, 403, Forbidden, "The maximum number of allowed instances is reached";
    Conflict = 6, 409, Conflict, "An entity with the specified unique values already exists";
    NotFound = 7, 404, NotFound, "Resource not found";
    Validation = 8, 400, Invalid, "General validation failure";
    General = 9, 500, Terminal, "Unspecified error";
    NotImplemented = 10, 405, Invalid, "HTTP Method not implemented for this endpoint";
    Unauthorized = 11, 403, Forbidden, "Account is unauthorized to perform this action";
    TermsNotAccepted = 12, 403, Forbidden, "Required terms have not been accepted";
    Unauthenticated = 15, 401, Unauthenticated, "Account authentication could not be verified";
    Malformed = 17, 400, Invalid, "Unable to read request body";
    Maintenance = 18, 403, Forbidden, "Unable to perform this action, as the service is currently under maintenance";
    BadRequest = 21, 400, Invalid, "Bad request";
    Search = 23, 400, Invalid, "Failed to parse search query";
    TooMany = 24, 403, Forbidden, "The maximum number of allowed kafka instances has been reached";
    Gone = 25, 410, NotFound, "Resource gone";
    Provider = 30, 400, Invalid, "Provider not supported";
    Region = 31, 400, Invalid, "Region not supported";
    Name = 32, 400, Invalid, "Kafka cluster name is invalid";
    TooShort = 33, 400, Invalid, "Minimum field length not reached";
    TooLong = 34, 400, Invalid, "Maximum field length has been depassed";
    MultiAz = 35, 400, Invalid, "Only multi-AZ is supported";
    NameTaken = 36, 409, Conflict, "Kafka cluster name is already used";
    Field = 37, 400, Invalid, "Field validation failed";
    AccountName = 38, 400, Invalid, "Service account name is invalid";
    AccountDescription = 39, 400, Invalid, "Service account description is invalid";
    AccountId = 40, 400, Invalid, "Service account id is invalid";
    InstanceType = 41, 400, Invalid, "Instance Type not supported";
    Plan = 42, 400, Invalid, "Instance plan not supported";
    Billing = 43, 400, Invalid, "Billing account id missing or invalid";
    ClusterTaken = 44, 409, Conflict, "Cluster id is already registered";
    ClusterId = 45, 400, Invalid, "Cluster id is invalid";
    ExternalClusterId = 46, 400, Invalid, "External cluster id is invalid";
    DnsName = 47, 400, Invalid, "DNS name is invalid";
    Sync = 103, 400, Invalid, "Synchronous action is not supported";
    SsoCreate = 106, 500, Transient, "Failed to create the client in the sso";
    SsoSecret = 107, 500, Transient, "Failed to get the client's secret from the sso";
    SsoGet = 108, 500, Transient, "Failed to get the client from the sso";
    SsoDelete = 109, 500, Transient, "Failed to delete the client from the sso";
    AccountCreate = 110, 500, Transient, "Failed to create the service account";
    AccountGet = 111, 500, Transient, "Failed to get the service account";
    AccountDelete = 112, 500, Transient, "Failed to delete the service account";
    AccountNotFound = 113, 404, NotFound, "Failed to find the service account";
    AccountLimit = 115, 403, Forbidden, "Max limit for the service account creation has reached";
    NoQuota = 120, 403, Forbidden, "Insufficient quota";
    QuotaCheck = 121, 500, Transient, "Failed to check the quota";
    TooManyRequests = 429, 429, Transient, "Too many requests";
    Unsendable = 1000, 500, Terminal, "An unexpected error happened, please check the log of the service for details";
}

impl ErrorCode {
    pub fn from_number(number: u32) -> Option<ErrorCode> {
        ErrorCode::ALL.iter().copied().find(|code| code.number() == number)
    }

    /// An error with this code and its own text.
    pub fn error(self, reason: impl Into<String>) -> Error {
        Error::coded(self.number(), self.class(), reason)
    }

    /// An error with this code and the default text.
    pub fn default_error(self) -> Error {
        self.error(self.reason())
    }
}

/// The code of an error of any origin.
pub fn code_of(error: &Error) -> ErrorCode {
    match error {
        Error::Coded { code, .. } => ErrorCode::from_number(*code).unwrap_or(ErrorCode::General),
        Error::MethodNotAllowed { .. } => ErrorCode::NotImplemented,
        Error::TooLarge { .. } => ErrorCode::Malformed,
        Error::Busy { .. } => ErrorCode::TooManyRequests,
        other => match other.class() {
            Class::Invalid => ErrorCode::Validation,
            Class::Unauthenticated => ErrorCode::Unauthenticated,
            Class::Forbidden => ErrorCode::Forbidden,
            Class::NotFound => ErrorCode::NotFound,
            Class::Conflict => ErrorCode::Conflict,
            Class::Transient | Class::Terminal => ErrorCode::General,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_48_codes_in_order() {
        assert_eq!(ErrorCode::ALL.len(), 48);
        assert!(ErrorCode::ALL.is_sorted());
        assert_eq!(ErrorCode::from_number(36), Some(ErrorCode::NameTaken));
        assert_eq!(ErrorCode::from_number(22), None);
    }
}
