//! The query behind every list and search, and its text form.

use serde::Serialize;
use utoipa::ToSchema;

use crate::{Error, Key, Object, Result};

/// Conditions that must all hold. Results come newest first, a page at a time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ObjectQuery {
    /// Restricts to one organisation: the caller's visibility.
    pub org: Option<String>,
    pub owner: Option<String>,
    pub kind: Option<String>,
    pub phase: Option<String>,
    pub name: Option<String>,
    pub labels: Vec<(String, String)>,
    /// Prefixes of words in the name, the description or the labels.
    pub words: Vec<String>,
    /// Finds what depends on this object, directly or not.
    pub depends_on: Option<Key>,
    /// Finds what this object depends on, directly or not.
    pub used_by: Option<Key>,
    /// Includes deleted objects.
    pub deleted: bool,
    /// Continues after this position, from [`QueryPage::next`].
    pub after: Option<i64>,
    pub limit: usize,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, ToSchema)]
#[schema(as = ObjectPage)]
pub struct QueryPage {
    pub objects: Vec<Object>,
    /// The `after` of the next page; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<i64>,
}

/// The most results per page.
pub const PAGE_MAX: usize = 500;
/// The most objects that a walk over dependencies visits: those farther away are not found.
pub const WALK_MAX: usize = 10_000;
/// The most words and filters in a search.
pub const TERMS_MAX: usize = 16;

impl ObjectQuery {
    /// Parses a search such as `blue kind:widget phase:ready label:team=core owner:alice
    /// depends-on:widget/x used-by:widget/y`.
    pub fn parse(text: &str) -> Result<ObjectQuery> {
        let mut find = ObjectQuery { limit: 50, ..ObjectQuery::default() };
        if text.split_whitespace().count() > TERMS_MAX {
            return Err(Error::invalid("q", format!("at most {TERMS_MAX} words and filters")));
        }
        for term in text.split_whitespace() {
            match term.split_once(':') {
                Some(("kind", kind)) => find.kind = Some(kind.into()),
                Some(("phase", phase)) => find.phase = Some(phase.into()),
                Some(("owner", owner)) => find.owner = Some(owner.into()),
                Some(("name", name)) => find.name = Some(name.into()),
                Some(("label", label)) => {
                    let pair = label.split_once('=').ok_or_else(|| {
                        Error::invalid("q", format!("`{term}`: a label filter is label:KEY=VALUE"))
                    })?;
                    find.labels.push((pair.0.into(), pair.1.into()));
                }
                Some(("depends-on", key)) => find.depends_on = Some(Key::parse(key)?),
                Some(("used-by", key)) => find.used_by = Some(Key::parse(key)?),
                Some((filter, _)) => {
                    return Err(Error::invalid(
                        "q",
                        format!(
                            "`{filter}:` is not a filter; there are kind:, phase:, owner:, name:, label:, depends-on: and used-by:"
                        ),
                    ));
                }
                None => find.words.extend(tokenize(term)),
            }
        }
        Ok(find)
    }

    /// Whether an object matches. The SQL of the stores must agree with this. `depends` says whether
    /// the first object depends on the second, directly or not.
    pub fn matches(&self, object: &Object, depends: impl Fn(&Key, &Key) -> bool) -> bool {
        let is = |want: &Option<String>, has: &str| want.as_deref().is_none_or(|want| want == has);
        is(&self.org, &object.org)
            && is(&self.owner, &object.owner)
            && is(&self.kind, object.key.kind())
            && is(&self.phase, &object.phase)
            && is(&self.name, &object.name)
            && self.labels.iter().all(|(k, v)| object.labels.get(k) == Some(v))
            && self.depends_on.as_ref().is_none_or(|key| depends(&object.key, key))
            && self.used_by.as_ref().is_none_or(|key| depends(key, &object.key))
            && (self.deleted || object.deleted_at.is_none())
            && (self.words.is_empty() || {
                let has = object.words();
                self.words.iter().all(|word| has.iter().any(|has| has.starts_with(word)))
            })
    }
}

/// Longer words are cut to this length, because indexes have limits.
const WORD_CHARS_MAX: usize = 64;

/// Splits text into lower-case words of letters and digits, for indexing and for searching.
pub fn tokenize(text: &str) -> impl Iterator<Item = String> + '_ {
    text.split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(|word| word.chars().take(WORD_CHARS_MAX).flat_map(char::to_lowercase).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_is_read_into_words_and_filters() {
        let find = ObjectQuery::parse(
            "Blue-ish kind:widget label:team=core=x depends-on:widget/a used-by:widget/b",
        )
        .unwrap();
        assert_eq!(find.words, ["blue", "ish"]);
        assert_eq!(find.kind.as_deref(), Some("widget"));
        assert_eq!(find.labels, [("team".to_owned(), "core=x".to_owned())]);
        assert_eq!(find.depends_on, Some(Key::new("widget", "a")));
        assert_eq!(find.used_by, Some(Key::new("widget", "b")));
    }

    #[test]
    fn an_unknown_filter_is_refused_with_the_ones_there_are() {
        let message = ObjectQuery::parse("color:blue").unwrap_err().to_string();
        assert!(message.contains("color:") && message.contains("phase:"), "{message}");
    }
}
