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

/// Headers that never hold a secret.
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

/// The values of headers that may be secrets, without their scheme (`Bearer`).
pub fn secrets(headers: &HeaderMap) -> Vec<String> {
    let hidden = headers.iter().filter(|(name, _)| !SHOWN.contains(&name.as_str()));
    let values = hidden.filter_map(|(_, value)| value.to_str().ok()?.split_whitespace().last());
    values.filter(|value| value.len() >= 6).map(str::to_owned).collect()
}

/// Fields in which APIs describe an error, the most telling first.
const MESSAGES: [&str; 7] =
    ["error_description", "errorMessage", "message", "reason", "detail", "title", "error"];
const MESSAGE_CHARS_MAX: usize = 300;

/// The message of an error response in one line: of JSON its message, of other text the beginning,
/// of a web page nothing. Neither the secrets that were sent nor anything that looks like a token.
pub fn message(body: &[u8], secrets: &[String]) -> String {
    let text = String::from_utf8_lossy(body);
    let text = match serde_json::from_slice::<serde_json::Value>(body) {
        Ok(json) => {
            let errors = json.get("error").filter(|error| error.is_object()).unwrap_or(&json);
            let message = MESSAGES.iter().find_map(|name| errors.get(name)?.as_str());
            // Vault's are a list.
            let message = message.or_else(|| json.get("errors")?.get(0)?.as_str());
            message.unwrap_or_default().to_owned()
        }
        Err(_) if text.trim_start().starts_with('<') => String::new(),
        Err(_) => text.into_owned(),
    };
    let shown = |word: &str| {
        let secret = word.starts_with("eyJ") || secrets.iter().any(|secret| word.contains(secret));
        if secret { "[redacted]".to_owned() } else { word.to_owned() }
    };
    let words: Vec<String> = text.split_whitespace().map(shown).collect();
    words.join(" ").chars().take(MESSAGE_CHARS_MAX).collect()
}

/// The headers by name; the values only of those that never hold a secret.
pub fn headers(headers: &HeaderMap) -> Vec<(String, String)> {
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
    fn of_an_error_response_its_message_is_shown_without_the_secrets_that_were_sent() {
        let mut sent = HeaderMap::new();
        sent.insert("authorization", "Bearer hunter2-token".parse().unwrap());
        let secrets = secrets(&sent);
        let shown = |body: &str| message(body.as_bytes(), &secrets);
        assert_eq!(shown(r#"{"error":"x","error_description":"no disk"}"#), "no disk");
        assert_eq!(shown(r#"{"error":{"message":"no\nroom"}}"#), "no room");
        assert_eq!(shown(r#"{"errors":["it is sealed"]}"#), "it is sealed");
        assert_eq!(
            shown("bad token hunter2-token, eyJhbGciOi.x"),
            "bad token [redacted] [redacted]"
        );
        assert_eq!(shown("<html>502</html>") + &shown(r#"{"a":1}"#) + &shown(""), "");
        assert_eq!(shown(&"long ".repeat(900)).len(), MESSAGE_CHARS_MAX);
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
