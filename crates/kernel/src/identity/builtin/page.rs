//! The pages where a person approves a device or a program. No scripts, no cookies: the person signs in with a
//! pasted token, so no other site can act for them.

use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};

/// Whether the caller is a person with a browser.
pub fn is_wanted(headers: &HeaderMap) -> bool {
    let accept = headers.get("accept").and_then(|value| value.to_str().ok());
    accept.is_some_and(|accept| accept.contains("text/html"))
}

/// The form, with the code filled in if the link had it.
pub fn form(user_code: Option<&str>) -> Response {
    let code = escape(user_code.unwrap_or_default());
    html(
        StatusCode::OK,
        &format!(
            r#"<p>A device asks to act for you. Approve only if you started it, and the code is the one it shows.</p>
<form method="post">
<label>Code <input name="user_code" value="{code}" placeholder="BCDF-GHJK" required autocomplete="off"></label>
<label>Your access token (<code>mainstay token</code>) <input name="token" type="password" required autocomplete="off"></label>
<button name="decision" value="approve">Approve</button> <button name="decision" value="deny">Deny</button>
</form>"#
        ),
    )
}

/// The form to let a program act for oneself. `fields` are the request's, and come back with it;
/// `origin` is where the answer goes.
pub fn authorize(client: &str, fields: &[(&str, &str)], origin: &str) -> Response {
    let hidden: String = fields
        .iter()
        .map(|(name, value)| {
            format!(r#"<input type="hidden" name="{name}" value="{}">"#, escape(value))
        })
        .collect();
    let (client, shown) = (escape(client), escape(origin));
    let body = format!(
        r#"<p><b>{client}</b> asks to act for you. The answer goes to <b>{shown}</b>.</p>
<form method="post">{hidden}
<label>Your access token (<code>mainstay token</code>) <input name="token" type="password" autocomplete="off"></label>
<button name="decision" value="approve">Approve</button> <button name="decision" value="deny">Deny</button>
</form>"#
    );
    // Browsers apply `form-action` to the redirect that follows the form, too.
    html_for(StatusCode::OK, &body, &format!("'self' {origin}"))
}

pub fn message(status: StatusCode, text: &str) -> Response {
    html(status, &format!("<p>{}</p>", escape(text)))
}

fn html(status: StatusCode, body: &str) -> Response {
    html_for(status, body, "'self'")
}

fn html_for(status: StatusCode, body: &str, form_action: &str) -> Response {
    let page = format!(
        r#"<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Mainstay: sign-in</title>
<style>body{{font:16px/1.5 system-ui,sans-serif;max-width:32rem;margin:3rem auto;padding:0 1rem}}label{{display:block;margin:1rem 0}}input{{display:block;width:100%;font:inherit;padding:.4rem}}button{{font:inherit;padding:.4rem 1rem}}</style>
<h1>Sign-in</h1>
{body}
</html>"#
    );
    let policy = format!(
        "default-src 'none'; style-src 'unsafe-inline'; form-action {form_action}; frame-ancestors 'none'"
    );
    let headers = [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CACHE_CONTROL, "no-store"),
        (REFERRER_POLICY, "no-referrer"),
        (CONTENT_SECURITY_POLICY, policy.as_str()),
    ];
    (status, headers, page).into_response()
}

fn escape(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut out, c| {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_become_markup() {
        assert_eq!(escape(r#"<a b="c" d='&'>"#), "&lt;a b=&quot;c&quot; d=&#39;&amp;&#39;&gt;");
    }
}
