//! Turns serde's messages about bad input into errors that a person can act on: the field, what
//! was expected, the nearest valid name.

use axum::extract::rejection::QueryRejection;
use serde::de::DeserializeOwned;
use serde_json::error::Category;

use crate::{Error, Result};

/// Of a name or a message that quotes the input, which may be large.
const TEXT_BYTES_MAX: usize = 1 << 10;

/// Parses a JSON body.
pub fn json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    let body = |message: String| Error::invalid("body", message);
    let text = std::str::from_utf8(bytes)
        .map_err(|e| body(format!("is not UTF-8 from byte {}", e.valid_up_to())))?;
    if text.trim().is_empty() {
        return Err(body("is empty, a JSON object was expected".into()));
    }
    if escapes_nul(text) {
        return Err(body(r"must not contain NUL (\u0000)".into()));
    }
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let value = serde_path_to_error::deserialize(&mut deserializer).map_err(|e| {
        let path = e.path().to_string();
        let inner = e.into_inner();
        match inner.classify() {
            Category::Data => field_error(&path, "body", &inner.to_string()),
            Category::Eof => body(format!("is cut off: {inner}")),
            Category::Syntax | Category::Io => body(format!("is not JSON: {inner}")),
        }
    })?;
    deserializer.end().map_err(|e| body(format!("has more after the JSON value: {e}")))?;
    Ok(value)
}

/// Not every store can hold NUL in text; here the error can still name it.
fn escapes_nul(text: &str) -> bool {
    text.match_indices(r"\u0000").any(|(at, _)| {
        let slashes = text[..at].bytes().rev().take_while(|b| *b == b'\\').count();
        slashes % 2 == 0
    })
}

/// Returns the error for an invalid query.
pub(super) fn query(rejection: &QueryRejection) -> Error {
    let text = rejection.body_text();
    let text = text.strip_prefix("Failed to deserialize query string: ").unwrap_or(&text);
    match text.split_once(": ") {
        Some((path, message)) if !path.contains(' ') => field_error(path, "query", message),
        _ => field_error(".", "query", text),
    }
}

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(TEXT_BYTES_MAX)]
}

fn field_error(path: &str, whole: &str, message: &str) -> Error {
    // serde_json appends line and column; the path says more.
    let message = match message.rfind(" at line ") {
        Some(at) => &message[..at],
        None => message,
    };
    let path = if path == "." || path.is_empty() { whole } else { cut(path) };
    for (start, what) in [("unknown field `", "field"), ("unknown variant `", "value")] {
        if let Some(rest) = message.strip_prefix(start) {
            let (unknown, rest) = rest.split_once('`').unwrap_or((rest, ""));
            let unknown = cut(unknown);
            let field = match (what, path == whole) {
                ("field", true) => unknown.to_owned(),
                ("field", false) if !path.ends_with(unknown) => format!("{path}.{unknown}"),
                _ => path.to_owned(),
            };
            return Error::invalid(field, unknown_message(unknown, what, rest));
        }
    }
    for (start, problem) in
        [("missing field `", "is missing"), ("duplicate field `", "is there twice")]
    {
        if let Some(name) = message.strip_prefix(start) {
            let name = name.trim_end_matches('`');
            let field = if path == whole { name.to_owned() } else { format!("{path}.{name}") };
            return Error::invalid(field, problem);
        }
    }
    Error::invalid(path, plain(cut(message)))
}

/// "is not a field; did you mean `name`? There are: name, size".
fn unknown_message(unknown: &str, what: &str, rest: &str) -> String {
    let valid: Vec<&str> = rest.split('`').skip(1).step_by(2).collect();
    if valid.is_empty() {
        return format!("is not a {what} here; there are none");
    }
    let near = valid
        .iter()
        .map(|name| (strsim::damerau_levenshtein(unknown, name), name))
        .filter(|(distance, name)| *distance <= 1 + name.len() / 3)
        .min();
    let hint = near.map(|(_, name)| format!("; did you mean `{name}`?")).unwrap_or_default();
    let there = valid.join(", ");
    let end = if hint.is_empty() { "; there" } else { " There" };
    format!("`{unknown}` is not a {what} here{hint}{end} are: {there}")
}

/// Rewrites messages of number parsers and serde in terms of the API.
fn plain(message: &str) -> String {
    match message {
        "invalid digit found in string" => "must be a whole number, 0 or more".into(),
        "cannot parse integer from empty string" => "must be a number, it is empty".into(),
        "number too large to fit in target type" => "is too large a number".into(),
        "number too small to fit in target type" => "is too small a number".into(),
        "provided string was not `true` or `false`" => "must be true or false".into(),
        other => other.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::extract::Query;
    use serde::Deserialize;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "read by serde only")]
    struct Widget {
        name: String,
        #[serde(default)]
        parts: Vec<Part>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "read by serde only")]
    struct Part {
        size: u8,
        color: Option<Color>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Color {
        Red,
        Green,
    }

    fn refused(body: &[u8]) -> String {
        json::<Widget>(body).expect_err("refused").to_string()
    }

    #[test]
    fn each_bad_body_gets_its_own_clear_error() {
        let table: [(&[u8], &str); 15] = [
            (b"", "body: is empty, a JSON object was expected"),
            (b" \n", "body: is empty, a JSON object was expected"),
            (b"\xff\xfe", "body: is not UTF-8 from byte 0"),
            (b"hello", "body: is not JSON: expected value at line 1 column 1"),
            (
                br#"{"name": "a""#,
                "body: is cut off: EOF while parsing an object at line 1 column 12",
            ),
            (
                br#"{"name":"a"} {}"#,
                "body: has more after the JSON value: trailing characters at line 1 column 14",
            ),
            (br#"{}"#, "name: is missing"),
            (br#"{"name":"a","name":"b"}"#, "name: is there twice"),
            (br#"[]"#, "body: invalid length 0, expected struct Widget with 2 elements"),
            (br#"{"name":7}"#, "name: invalid type: integer `7`, expected a string"),
            (
                br#"{"nmae":"a"}"#,
                "nmae: `nmae` is not a field here; did you mean `name`? There are: name, parts",
            ),
            (br#"{"zzz":"a"}"#, "zzz: `zzz` is not a field here; there are: name, parts"),
            (
                br#"{"name":"a","parts":[{"size":1},{"size":900}]}"#,
                "parts[1].size: invalid value: integer `900`, expected u8",
            ),
            (
                br#"{"name":"a","parts":[{"size":1,"color":"gren"}]}"#,
                "parts[0].color: `gren` is not a value here; did you mean `green`? There are: red, green",
            ),
            (br#"{"name":"a\u0000"}"#, r"body: must not contain NUL (\u0000)"),
        ];
        for (body, expected) in table {
            assert_eq!(refused(body), expected);
        }
        json::<Widget>(br#"{"name":"a \\u0000"}"#).expect("a backslash before the u makes it text");
    }

    #[test]
    fn an_error_is_short_however_long_the_input_is() {
        let long = "é".repeat(350_000);
        for body in [
            format!(r#"{{"{long}":1}}"#),
            format!(r#"{{"name":"a","parts":[{{"{long}":1}}]}}"#),
            format!(r#"{{"name":"a","parts":"{long}"}}"#),
        ] {
            let message = refused(body.as_bytes());
            assert!(message.len() < 4_000, "{} bytes", message.len());
        }
    }

    #[test]
    fn a_nested_unknown_field_is_named_with_its_path() {
        let message = refused(br#"{"name":"a","parts":[{"sise":1}]}"#);
        assert!(message.starts_with("parts[0].sise: `sise` is not a field here"), "{message}");
        let message = refused(br#"{"name":"a","parts":[{}]}"#);
        assert_eq!(message, "parts[0].size: is missing");
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "read by serde only")]
    struct Params {
        page: Option<u32>,
        #[serde(default)]
        deleted: bool,
    }

    #[test]
    fn each_bad_query_gets_its_own_clear_error() {
        let table = [
            ("page=-1", "page: must be a whole number, 0 or more"),
            ("page=", "page: must be a number, it is empty"),
            ("page=99999999999", "page: is too large a number"),
            ("deleted=perhaps", "deleted: must be true or false"),
            (
                "pgae=1",
                "pgae: `pgae` is not a field here; did you mean `page`? There are: page, deleted",
            ),
        ];
        for (text, expected) in table {
            let uri: axum::http::Uri = format!("/x?{text}").parse().unwrap();
            let rejection = Query::<Params>::try_from_uri(&uri).expect_err(text);
            assert_eq!(query(&rejection).to_string(), expected);
        }
    }
}
