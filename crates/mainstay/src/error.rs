//! How a command can fail. The class of the failure decides the exit code, and the hint says
//! what to try next.

use kernel::{Class, log::AuditFault};

use crate::config::Problems;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Kernel(#[from] kernel::Error),
    #[error(transparent)]
    Config(#[from] Problems),
    /// An error response of the server.
    #[error("{message}")]
    Server { class: Class, message: String, field: Option<String>, request_id: Option<String> },
    #[error("{server} is unreachable")]
    Unreachable {
        server: String,
        #[source]
        source: reqwest::Error,
    },
    #[error("{server} sent an invalid response: {what}")]
    BadResponse { server: String, what: String },
    #[error("the audit log is not whole: {0}")]
    Audit(AuditFault),
    #[error("{what}")]
    File {
        what: String,
        #[source]
        source: std::io::Error,
    },
    /// A wait reached its timeout.
    #[error("{0}")]
    TimedOut(String),
}

impl Error {
    pub fn file(what: impl Into<String>, source: std::io::Error) -> Error {
        Error::File { what: what.into(), source }
    }

    pub fn class(&self) -> Class {
        match self {
            Error::Kernel(error) => error.class(),
            Error::Config(_) => Class::Invalid,
            Error::Server { class, .. } => *class,
            Error::Unreachable { .. } | Error::TimedOut(_) => Class::Transient,
            Error::BadResponse { .. } | Error::Audit(_) | Error::File { .. } => Class::Terminal,
        }
    }

    fn hint(&self) -> Option<&'static str> {
        match (self, self.class()) {
            (Error::Unreachable { .. }, _) => Some(
                "start a server with `mainstay server`, or name one with --server URL or MAINSTAY_SERVER",
            ),
            (Error::Config(_), _) => Some("`mainstay config show` prints every key there is"),
            (Error::Server { .. }, Class::Unauthenticated) => Some(
                "sign in with `mainstay login` (`mainstay login --local` on the server's machine)",
            ),
            (Error::Server { .. }, Class::Forbidden) => Some(
                "`mainstay token --role admin-read` on the server's machine prints a token with that role",
            ),
            _ => None,
        }
    }

    /// The error with its causes and a hint, for stderr.
    pub fn report(&self) -> String {
        let mut text = String::from("error: ");
        if let Error::Server { field: Some(field), message, .. } = self
            && !message.starts_with(field.as_str())
        {
            text.push_str(&format!("{field}: "));
        }
        text.push_str(&self.to_string().replace('\n', "\nerror: "));
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            cause = error.source();
            // Between us and the reason why a connection failed are only layers of a library.
            if cause.is_none() || !matches!(self, Error::Unreachable { .. }) {
                text.push_str(&format!("\n  because: {error}"));
            }
        }
        if let Error::Server { request_id: Some(id), .. } = self {
            text.push_str(&format!("\n  request id: {id}"));
        }
        if let Some(hint) = self.hint() {
            let called = format!("`{} ", crate::output::program());
            text.push_str(&format!("\nhint: {}", hint.replace("`mainstay ", &called)));
        }
        text
    }
}

impl From<AuditFault> for Error {
    fn from(fault: AuditFault) -> Error {
        Error::Audit(fault)
    }
}

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The class of an error response: its label, else by its status.
pub fn class_of(label: Option<&str>, status: u16) -> Class {
    label.and_then(Class::parse).unwrap_or(match status {
        401 => Class::Unauthenticated,
        403 => Class::Forbidden,
        404 | 410 => Class::NotFound,
        409 | 412 => Class::Conflict,
        408 | 429 | 502..=504 => Class::Transient,
        400..=499 => Class::Invalid,
        _ => Class::Terminal,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_class_is_what_the_server_says_and_else_follows_from_the_status() {
        assert_eq!(class_of(Some("not_found"), 500), Class::NotFound);
        let cases = [
            (400, Class::Invalid),
            (401, Class::Unauthenticated),
            (403, Class::Forbidden),
            (404, Class::NotFound),
            (409, Class::Conflict),
            (413, Class::Invalid),
            (429, Class::Transient),
            (500, Class::Terminal),
            (503, Class::Transient),
        ];
        for (status, class) in cases {
            assert_eq!(class_of(None, status), class, "{status}");
            assert_eq!(class_of(Some("new"), status), class, "{status}");
        }
    }

    #[test]
    fn a_report_names_the_field_the_request_and_what_to_try() {
        let error = Error::Server {
            class: Class::Unauthenticated,
            message: "the token has expired".into(),
            field: Some("authorization".into()),
            request_id: Some("r1".into()),
        };
        let report = error.report();
        for part in ["authorization: the token", "request id: r1", " login --local`"] {
            assert!(report.contains(part), "{part} is not in: {report}");
        }
    }
}
