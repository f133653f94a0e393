//! A value that cannot be printed or serialised by accident.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

const REDACTED: &str = "[redacted]";

/// Deserialises like its content, prints and serialises as `[redacted]`. [`Secret::expose`] is the
/// only access to the value, so that a search for it finds every use of a secret.
#[derive(Clone, Default)]
pub struct Secret<T = String>(T);

impl<T> Secret<T> {
    pub fn new(value: T) -> Secret<T> {
        Secret(value)
    }

    pub fn expose(&self) -> &T {
        &self.0
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Secret {
        Secret(text.to_owned())
    }
}

impl<T> fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}

impl<T> fmt::Display for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}

impl<T> Serialize for Secret<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(REDACTED)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Secret<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Secret<T>, D::Error> {
        T::deserialize(deserializer).map(Secret)
    }
}

/// Compares in constant time.
impl<T: AsRef<[u8]>> PartialEq for Secret<T> {
    fn eq(&self, other: &Secret<T>) -> bool {
        let (a, b) = (self.0.as_ref(), other.0.as_ref());
        let pairs = a.iter().zip(b);
        a.len() == b.len() && pairs.fold(0, |differ, (x, y)| differ | (x ^ y)) == 0
    }
}

impl<T: AsRef<[u8]>> Eq for Secret<T> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Serialize, Deserialize)]
    struct Login {
        user: String,
        password: Secret,
    }

    #[test]
    fn a_secret_is_read_but_neither_printed_nor_written() {
        let login: Login = serde_json::from_str(r#"{"user":"a","password":"hunter2"}"#).unwrap();
        assert_eq!(login.password.expose(), "hunter2");
        let everything = format!(
            "{login:?} {login:#?} {} {}",
            login.password,
            serde_json::to_string(&login).unwrap()
        );
        assert!(!everything.contains("hunter2"), "{everything}");
        assert_eq!(everything.matches(REDACTED).count(), 4, "{everything}");
    }

    #[test]
    fn secrets_compare_by_content() {
        assert_eq!(Secret::from("abc"), Secret::from("abc"));
        assert_ne!(Secret::from("abc"), Secret::from("abd"));
        assert_ne!(Secret::from("abc"), Secret::from("ab"));
    }
}
