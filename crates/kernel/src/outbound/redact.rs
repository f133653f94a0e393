//! Redacts requests for logs and errors.

use reqwest::header::HeaderMap;
use url::Url;

/// Scheme, host, port, path and the names of the query's parameters; never their values, nor a
/// user, a password or a fragment.
pub fn url(url: &Url) -> String {
    let mut text = origin(url);
    text.push_str(url.path());
    for (i, (name, _)) in url.query_pairs().enumerate() {
        text.push(if i == 0 { '?' } else { '&' });
        text.extend(url::form_urlencoded::byte_serialize(name.as_bytes()));
        text.push_str("=[redacted]");
    }
    text
}

/// Scheme, host and port. For users' URLs, whose paths may be secret.
pub fn origin(url: &Url) -> String {
    let host = url.host_str().unwrap_or("");
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}://{host}{port}", url.scheme())
}

/// The headers by name; the values only of those that never hold a secret.
pub fn headers(headers: &HeaderMap) -> Vec<(String, String)> {
    const SHOWN: &[&str] = &[
        "accept",
        "content-length",
        "content-type",
        "date",
        "retry-after",
        "traceparent",
        "user-agent",
        "x-request-id",
    ];
    let show = |name: &str, value: &reqwest::header::HeaderValue| match value.to_str() {
        Ok(value) if SHOWN.contains(&name) => value.to_owned(),
        _ => "[redacted]".to_owned(),
    };
    headers
        .iter()
        .map(|(name, value)| (name.as_str().to_owned(), show(name.as_str(), value)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_loses_its_password_query_values_and_fragment() {
        let full =
            Url::parse("https://u:hunter2@h.example:8443/p/q?token=hunter2&a b=hunter2#hunter2");
        assert_eq!(
            url(&full.clone().unwrap()),
            "https://h.example:8443/p/q?token=[redacted]&a+b=[redacted]"
        );
        assert_eq!(origin(&full.unwrap()), "https://h.example:8443");
    }

    #[test]
    fn a_header_is_shown_only_if_it_is_known_to_be_harmless() {
        let mut map = HeaderMap::new();
        map.insert("authorization", "Bearer hunter2".parse().unwrap());
        map.insert("x-vault-token", "hunter2".parse().unwrap());
        map.insert("cookie", "s=hunter2".parse().unwrap());
        map.insert("content-type", "application/json".parse().unwrap());
        let shown = format!("{:?}", headers(&map));
        assert!(!shown.contains("hunter2"), "{shown}");
        assert!(shown.contains("authorization") && shown.contains("application/json"), "{shown}");
    }
}
