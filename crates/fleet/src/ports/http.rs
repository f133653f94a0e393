//! URLs of the HTTP APIs that the configuration names.

use kernel::{Error, Result};
use url::Url;

/// The base URL of an API. The example is part of the error.
pub fn base_url(field: &str, url: &str, example: &str) -> Result<Url> {
    let invalid = |why: String| Error::invalid(field, why);
    let base =
        Url::parse(url).map_err(|e| invalid(format!("is not a URL ({e}); give {example}")))?;
    if base.cannot_be_a_base() {
        return Err(invalid("must begin with https:// or http://".into()));
    }
    Ok(base)
}

/// Appends segments to the path of a base URL, and escapes them.
pub fn below<'a>(base: &Url, path: impl IntoIterator<Item = &'a str>) -> Url {
    let mut url = base.clone();
    let mut segments = url.path_segments_mut().expect("a base URL has a path");
    segments.pop_if_empty().extend(path);
    drop(segments);
    url
}
