//! Parses a token and checks its times and purpose. Nothing is trusted
//! before its signature is verified.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::{Error, Result, Timestamp};

/// Tokens with hundreds of roles fit, and so does the header limit of web servers.
pub const TOKEN_BYTES_MAX: usize = 16 * 1024;

pub type Claims = Map<String, Value>;

/// A token before its signature is verified.
pub struct Unverified<'a> {
    /// What was signed.
    pub message: &'a str,
    pub signature: &'a str,
    pub header: Header,
    pub claims: Claims,
}

#[derive(Debug, Deserialize)]
pub struct Header {
    pub alg: String,
    pub kid: Option<String>,
    pub typ: Option<String>,
    crit: Option<Value>,
}

/// What is wrong with the token of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenProblem {
    /// Neither header nor cookie has one.
    Missing,
    /// The header has something that is not for a bearer.
    OtherScheme,
    Malformed,
    Expired,
    /// Signature, issuer, audience, purpose or claims.
    Untrusted,
}

pub fn refused(why: impl Into<String>) -> Error {
    Error::Unauthenticated { problem: TokenProblem::Untrusted, message: why.into() }
}

impl Unverified<'_> {
    pub fn parse(token: &str) -> Result<Unverified<'_>> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(refused(format!(
                "the token is larger than {TOKEN_BYTES_MAX} bytes; ask the issuer for fewer claims"
            )));
        }
        let malformed = |what: &str| Error::Unauthenticated {
            problem: TokenProblem::Malformed,
            message: format!("the token is malformed: {what}; send `Authorization: Bearer TOKEN`"),
        };
        let (message, signature) =
            token.rsplit_once('.').ok_or_else(|| malformed("it is not a JWT"))?;
        let (header, claims) =
            message.split_once('.').ok_or_else(|| malformed("it does not have three parts"))?;
        if claims.contains('.') {
            return Err(malformed("it has more than three parts"));
        }
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).ok();
        let header: Header = decode(header)
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .ok_or_else(|| malformed("its header is unreadable"))?;
        let claims: Claims = decode(claims)
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .ok_or_else(|| malformed("its claims are unreadable"))?;
        // An extension that must be understood.
        if header.crit.is_some() {
            return Err(malformed("its header has `crit`, which is not supported"));
        }
        Ok(Unverified { message, signature, header, claims })
    }

    pub fn issuer(&self) -> Result<&str> {
        text(&self.claims, "iss")
            .ok_or_else(|| refused("the token does not name its issuer (`iss`)"))
    }
}

pub fn text<'a>(claims: &'a Claims, name: &str) -> Option<&'a str> {
    claims.get(name).and_then(Value::as_str).filter(|text| !text.is_empty())
}

/// When the token was issued; the beginning of time if it does not say.
pub fn issued_at(claims: &Claims) -> Timestamp {
    Timestamp(claims.get("iat").and_then(Value::as_i64).unwrap_or(0).saturating_mul(1000))
}

/// When the token expires, if it is valid now.
pub fn check_times(claims: &Claims, now: Timestamp, skew_s: i64) -> Result<Timestamp> {
    let now_s = now.seconds();
    let at = |name: &str| match claims.get(name) {
        None => Ok(None),
        // Fractional seconds are legal; out-of-range values saturate.
        Some(value) => match value.as_i64().or_else(|| value.as_f64().map(|s| s as i64)) {
            Some(seconds) => Ok(Some(seconds)),
            None => Err(refused(format!("the token's `{name}` is not a number of seconds"))),
        },
    };
    let show = |seconds: i64| Timestamp(seconds.saturating_mul(1000));
    let expires = at("exp")?.ok_or_else(|| refused("the token has no expiry (`exp`)"))?;
    if now_s >= expires.saturating_add(skew_s) {
        let message = format!("the token expired at {}; get a new one", show(expires));
        return Err(Error::Unauthenticated { problem: TokenProblem::Expired, message });
    }
    for name in ["iat", "nbf"] {
        if let Some(begins) = at(name)?
            && begins.saturating_sub(skew_s) > now_s
        {
            return Err(refused(format!(
                "the token is not yet valid: its `{name}` is {}, and it is {now} here; check the clocks",
                show(begins)
            )));
        }
    }
    Ok(show(expires))
}

/// Refuses tokens that are not access tokens.
pub fn check_purpose(header: &Header, claims: &Claims) -> Result<()> {
    let header_typ = header.typ.as_deref().unwrap_or("JWT").to_ascii_lowercase();
    if !["jwt", "at+jwt", "application/at+jwt"].contains(&header_typ.as_str()) {
        return Err(refused(format!("a token of type {header_typ:?} is not an access token")));
    }
    match claims.get("typ").map(|typ| typ.as_str().unwrap_or_default()) {
        Some("Bearer" | "bearer") => Ok(()),
        Some("Refresh" | "Offline") => Err(refused(
            "this is a refresh token; trade it for an access token at the issuer's token endpoint",
        )),
        Some("ID") => Err(refused("this is an ID token; send the access token")),
        Some(other) => Err(refused(format!("a token of type {other:?} is not an access token"))),
        None if claims.contains_key("at_hash") || claims.contains_key("c_hash") => {
            Err(refused("this is an ID token; send the access token"))
        }
        None => Ok(()),
    }
}

/// Refuses tokens for another audience.
pub fn check_audience(claims: &Claims, wanted: Option<&[String]>) -> Result<()> {
    let Some(wanted) = wanted else { return Ok(()) };
    let named: Vec<&str> = match claims.get("aud") {
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(many)) => many.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    if wanted.iter().any(|wanted| named.contains(&wanted.as_str())) {
        return Ok(());
    }
    Err(refused(format!(
        "the token is not for this server: its `aud` must be {}",
        wanted.join(" or ")
    )))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn claims(value: Value) -> Claims {
        value.as_object().unwrap().clone()
    }

    const NOW: Timestamp = Timestamp(1_700_000_000_000);

    #[test]
    fn times_hold_to_the_second_with_the_skew_on_both_sides() {
        let now = NOW.seconds();
        let check = |value: Value| check_times(&claims(value), NOW, 60).map_err(|e| e.to_string());
        assert_eq!(check(json!({"exp": now + 1})), Ok(Timestamp((now + 1) * 1000)));
        assert!(check(json!({"exp": now - 59})).is_ok());
        assert!(check(json!({"exp": now - 60})).unwrap_err().contains("expired at 2023-11-14"));
        let expired = check_times(&claims(json!({"exp": 0})), NOW, 60).unwrap_err();
        assert!(matches!(expired, Error::Unauthenticated { problem: TokenProblem::Expired, .. }));
        assert!(check(json!({"exp": now + 9, "iat": now + 60, "nbf": now + 60})).is_ok());
        for name in ["iat", "nbf"] {
            let message = check(json!({"exp": now + 99, name: now + 61})).unwrap_err();
            assert!(message.contains("not yet valid") && message.contains(name), "{message}");
        }
        assert!(check(json!({})).unwrap_err().contains("exp"));
        assert!(check(json!({"exp": "soon"})).unwrap_err().contains("exp"));
        assert!(check(json!({"exp": null})).is_err());
        assert!(check(json!({"exp": 1e300})).is_ok());
        assert!(check(json!({"exp": i64::MIN})).is_err());
        assert!(check(json!({"exp": u64::MAX, "iat": i64::MIN})).is_ok());
    }

    #[test]
    fn only_access_tokens_are_for_calling() {
        let check = |typ: Option<&str>, value: Value| {
            let header =
                Header { alg: "ES256".into(), kid: None, typ: typ.map(Into::into), crit: None };
            check_purpose(&header, &claims(value)).is_ok()
        };
        assert!(check(None, json!({})) && check(Some("JWT"), json!({"typ": "Bearer"})));
        assert!(check(Some("at+jwt"), json!({})) && check(Some("AT+JWT"), json!({})));
        for typ in ["Refresh", "Offline", "ID", "Logout", ""] {
            assert!(!check(None, json!({"typ": typ})), "{typ}");
        }
        assert!(!check(None, json!({"typ": 7})) && !check(None, json!({"at_hash": "x"})));
        assert!(!check(Some("dpop+jwt"), json!({})) && !check(Some("logout+jwt"), json!({})));
    }

    #[test]
    fn an_audience_is_one_of_those_wanted() {
        let wanted = ["api".to_owned(), "cli".to_owned()];
        let check = |value: Value| check_audience(&claims(value), Some(&wanted)).is_ok();
        assert!(check(json!({"aud": "api"})) && check(json!({"aud": ["x", "cli"]})));
        assert!(!check(json!({"aud": "apix"})) && !check(json!({"aud": []})) && !check(json!({})));
        assert!(check_audience(&Claims::new(), None).is_ok());
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_fail_badly(text in ".{0,200}", a in "[a-zA-Z0-9_-]{0,40}") {
            let _ = Unverified::parse(&text);
            let _ = Unverified::parse(&format!("{a}.{a}.{text}"));
        }
    }
}
