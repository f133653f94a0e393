//! How resources are named: in their environment by an address, from elsewhere by a reference.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Names are words of expressions too, where `-` is minus.
pub const NAME_CHARS_MAX: usize = 63;
pub const NAME_RULE: &str =
    "use up to 63 lower-case letters, digits and `_`, beginning with a letter";

/// Whether a name can be that of a parameter, resource or group.
pub fn is_name(text: &str) -> bool {
    text.len() <= NAME_CHARS_MAX
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}

/// Whether a name can be that of an environment or template: a DNS label.
pub fn is_label(text: &str) -> bool {
    text.len() <= NAME_CHARS_MAX
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && !text.ends_with('-')
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

/// A resource within its environment: `db`, `web[2]`, and `cache.primary` of the group `cache`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Address {
    /// With the group before it, if it is in one.
    pub name: String,
    pub index: Option<u32>,
}

impl Address {
    pub fn new(name: &str, index: Option<u32>) -> Address {
        Address { name: name.into(), index }
    }

    pub fn parse(text: &str) -> Option<Address> {
        let (name, index) = match text.strip_suffix(']') {
            None => (text, None),
            Some(text) => {
                let (name, index) = text.split_once('[')?;
                let digits = !index.is_empty() && index.bytes().all(|b| b.is_ascii_digit());
                (name, Some(index.parse().ok().filter(|_| digits)?))
            }
        };
        let named = match name.split_once('.') {
            None => is_name(name),
            Some((group, name)) => is_name(group) && is_name(name),
        };
        named.then(|| Address { name: name.into(), index })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.index {
            None => f.write_str(&self.name),
            Some(index) => write!(f, "{}[{index}]", self.name),
        }
    }
}

impl TryFrom<String> for Address {
    type Error = String;

    fn try_from(text: String) -> Result<Address, String> {
        Address::parse(&text).ok_or_else(|| format!("`{text}` is not an address"))
    }
}

impl From<Address> for String {
    fn from(address: Address) -> String {
        address.to_string()
    }
}

/// What a resource depends on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Reference {
    /// In the same environment. Without an index: all of that name.
    Here(Address),
    /// In another environment, by its name: `network/vpc`.
    Elsewhere { environment: String, address: Address },
    /// Something that is probed and never managed: `external:billing`.
    External(String),
}

pub const REFERENCE_RULE: &str = "write `db`, `web[2]`, `environment/resource` or `external:name`";

impl Reference {
    pub fn parse(text: &str) -> Option<Reference> {
        if let Some(name) = text.strip_prefix("external:") {
            return is_label(name).then(|| Reference::External(name.into()));
        }
        match text.split_once('/') {
            None => Address::parse(text).map(Reference::Here),
            Some((environment, address)) if is_label(environment) => Some(Reference::Elsewhere {
                environment: environment.into(),
                address: Address::parse(address)?,
            }),
            Some(_) => None,
        }
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reference::Here(address) => write!(f, "{address}"),
            Reference::Elsewhere { environment, address } => write!(f, "{environment}/{address}"),
            Reference::External(name) => write!(f, "external:{name}"),
        }
    }
}

impl TryFrom<String> for Reference {
    type Error = String;

    fn try_from(text: String) -> Result<Reference, String> {
        Reference::parse(&text).ok_or_else(|| format!("`{text}` is not a reference"))
    }
}

impl From<Reference> for String {
    fn from(reference: Reference) -> String {
        reference.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_read_as_they_are_written() {
        for text in [
            "db",
            "web[2]",
            "cache.primary",
            "cache.replica[0]",
            "net-1/vpc",
            "net/a.b[3]",
            "external:billing",
        ] {
            let reference = Reference::parse(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(reference.to_string(), text);
        }
        for wrong in [
            "",
            "Web",
            "my-db",
            "web[]",
            "web[-1]",
            "web[+1]",
            "web[1",
            "web1]",
            "a.b.c",
            "../x",
            "/x",
            "Net/db",
            "external:",
            "external:../x",
            "web[99999999999]",
            "1db",
            "a/b/c",
        ] {
            assert_eq!(Reference::parse(wrong), None, "{wrong}");
        }
    }
}
