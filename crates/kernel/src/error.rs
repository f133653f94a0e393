//! One error type. The class of an error determines its HTTP status, whether to retry, the metric
//! label and the exit code.

use std::time::Duration;

use crate::change::Refusal;
use crate::identity::TokenProblem;
use crate::outbound::{Delivery, Later};

type Source = Box<dyn std::error::Error + Send + Sync>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Invalid input. Names the field and says what would be right.
    #[error("{field}: {message}")]
    Invalid { field: String, message: String },
    #[error("the body is larger than {limit_bytes} bytes")]
    TooLarge { limit_bytes: usize },
    #[error("{message}")]
    Unauthenticated { problem: TokenProblem, message: String },
    #[error("{0}")]
    Forbidden(String),
    #[error("{0} does not exist")]
    NotFound(String),
    #[error("{method} is not possible here")]
    MethodNotAllowed { method: String },
    #[error("{0}")]
    Conflict(String),
    /// It was purged; `oldest` is the first that is kept.
    #[error("{what} is no longer kept; the oldest is {oldest}")]
    Gone { what: String, oldest: i64 },
    /// An error with a code of the domain's own.
    #[error("{message}")]
    Coded { code: u32, class: Class, message: String },
    /// The store refused a change; nothing of it was written.
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("too many requests; try again in {retry_after_s} s")]
    Busy { retry_after_s: u64 },
    /// A failure of our own that may pass.
    #[error("{0}")]
    Transient(String),
    /// A dependency did not do what it was asked for; it may later. `why` has the text of all causes,
    /// so `cause` is not a source once more: it is for code that asks for its type.
    #[error("{what}: {why}")]
    Unavailable { what: String, why: String, delivery: Delivery, cause: Source },
    /// A bug or damaged data: needs a person.
    #[error("internal error: {what}")]
    Internal {
        what: String,
        #[source]
        source: Option<Source>,
    },
}

crate::labels! {
    pub enum Class {
        Invalid = "invalid",
        Unauthenticated = "unauthenticated",
        Forbidden = "forbidden",
        NotFound = "not_found",
        Conflict = "conflict",
        Transient = "transient",
        Terminal = "terminal",
    }
}

impl Class {
    /// The exit code of a process that ended with such an error.
    pub fn exit_code(self) -> u8 {
        match self {
            Class::Terminal => 1,
            Class::Invalid => 2,
            Class::Unauthenticated => 3,
            Class::Forbidden => 4,
            Class::NotFound => 5,
            Class::Conflict => 6,
            Class::Transient => 7,
        }
    }
}

impl Error {
    pub fn invalid(field: impl Into<String>, message: impl Into<String>) -> Error {
        Error::Invalid { field: field.into(), message: message.into() }
    }

    pub fn internal(what: impl Into<String>, source: impl Into<Source>) -> Error {
        Error::Internal { what: what.into(), source: Some(source.into()) }
    }

    /// Whether the call may have had an effect is unknown, unless [`Error::with_delivery`] says so.
    pub fn unavailable(what: impl Into<String>, cause: impl Into<Source>) -> Error {
        let (what, cause) = (what.into(), cause.into());
        let why = chain(&*cause);
        Error::Unavailable { what, why, delivery: Delivery::Unknown, cause }
    }

    pub fn with_delivery(mut self, known: Delivery) -> Error {
        if let Error::Unavailable { delivery, .. } = &mut self {
            *delivery = known;
        }
        self
    }

    /// Whether the call that failed may have had an effect; none if it was no call.
    pub fn delivery(&self) -> Option<Delivery> {
        match self {
            Error::Unavailable { delivery, .. } => Some(*delivery),
            _ => None,
        }
    }

    /// How long the other side asks to wait before the next call, if it does.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Error::Unavailable { cause, .. } => cause.downcast_ref::<Later>()?.retry_after,
            _ => None,
        }
    }

    /// The message and those of all causes, for logs and for people who operate this server.
    pub fn with_causes(&self) -> String {
        chain(self)
    }

    /// The message for clients: what failed, but not what another system said about it.
    pub fn public_message(&self) -> String {
        match self {
            Error::Unavailable { what, .. } => format!("{what} is unavailable"),
            Error::Internal { .. } => "internal error; the log has it under the request id".into(),
            other => other.to_string(),
        }
    }

    pub fn coded(code: u32, class: Class, message: impl Into<String>) -> Error {
        Error::Coded { code, class, message: message.into() }
    }

    pub fn class(&self) -> Class {
        match self {
            Error::Invalid { .. } | Error::TooLarge { .. } | Error::MethodNotAllowed { .. } => {
                Class::Invalid
            }
            Error::Unauthenticated { .. } => Class::Unauthenticated,
            Error::Forbidden(_) => Class::Forbidden,
            Error::NotFound(_) => Class::NotFound,
            Error::Conflict(_) | Error::Gone { .. } => Class::Conflict,
            Error::Coded { class, .. } => *class,
            Error::Refused(refusal) => refusal.class(),
            Error::Busy { .. } | Error::Transient(_) | Error::Unavailable { .. } => {
                Class::Transient
            }
            Error::Internal { .. } => Class::Terminal,
        }
    }
}

/// The error and its sources, as text.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let sources = std::iter::successors(error.source(), |error| error.source());
    sources.fold(error.to_string(), |text, source| format!("{text}: {source}"))
}

/// The message of a panic.
pub fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".into())
}

pub type Result<T, E = Error> = std::result::Result<T, E>;
