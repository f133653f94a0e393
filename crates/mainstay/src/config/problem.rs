//! What is wrong with a configuration: which key, where it was given, and what would be right.

use super::source::Origin;

#[derive(Debug, Clone, PartialEq)]
pub struct Problem {
    /// The key's path, as in `http.body_bytes_max`; empty if it is about a whole file.
    pub path: String,
    pub message: String,
    pub origin: Origin,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.path.as_str() {
            "" => write!(f, "{}: {}", self.origin, self.message),
            path => write!(f, "{}: {path}: {}", self.origin, self.message),
        }
    }
}

/// All problems that were found, not only the first.
#[derive(Debug, Clone, PartialEq)]
pub struct Problems(pub Vec<Problem>);

impl std::fmt::Display for Problems {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (i, problem) in self.0.iter().enumerate() {
            write!(f, "{}{problem}", if i == 0 { "" } else { "\n" })?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

/// Below this, a name is not what was meant but something else.
const LIKENESS_MIN: f64 = 0.6;

/// The message for an unknown key: suggests the nearest one, or lists all.
pub fn unknown_key(
    unknown: &str,
    parent: &str,
    siblings: &[&str],
    everywhere: &[String],
) -> String {
    let likeness = |name: &str| strsim::normalized_damerau_levenshtein(unknown, name);
    let nearest = siblings
        .iter()
        .map(|name| (likeness(name), *name))
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .filter(|(likeness, _)| *likeness >= LIKENESS_MIN)
        .map(|(_, name)| join(parent, name));
    // The right name in the wrong section.
    let elsewhere = || {
        let leaf = |path: &&String| path.rsplit('.').next() == Some(unknown);
        everywhere.iter().find(leaf).cloned()
    };
    // Secrets had a second key for a file.
    if let Some(name) = unknown.strip_suffix("_file").filter(|name| siblings.contains(name)) {
        return format!("there is no such key; write {name} = {{ file = \"/path\" }}");
    }
    match nearest.or_else(elsewhere) {
        Some(name) => format!("there is no such key; did you mean {name}?"),
        None if siblings.is_empty() => "there is no such key; nothing can be set here".into(),
        None => format!("there is no such key; there are {}", siblings.join(", ")),
    }
}

/// Appends a key to a path.
pub fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.into() } else { format!("{path}.{key}") }
}
