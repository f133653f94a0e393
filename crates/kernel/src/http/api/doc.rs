//! `/api/v1/doc`: the OpenAPI document, and a page that shows it and those of mounted APIs. The page
//! needs no other server.

use std::sync::Arc;

use axum::extract::Path;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use utoipa_axum::routes;
use utoipa_swagger_ui::{Config, Url};

use super::super::{Context, Routes};
use crate::identity::Action;
use crate::{Error, Result};

const DOCUMENT: &str = "/api/v1/doc/openapi.json";

pub(super) fn routes() -> Routes {
    Routes::new()
        .route(Action::Public, routes!(page))
        .route(Action::Public, routes!(document))
        .route(Action::Public, routes!(file))
}

/// The documentation page.
#[utoipa::path(get, path = "/api/v1/doc", tag = "doc",
    responses((status = 200, body = String, content_type = "text/html")))]
async fn page() -> Result<Response> {
    let html = part("index.html", &[])?.2;
    // The page's relative links would depend on whether its path ends in a slash.
    let html = String::from_utf8_lossy(&html).replace("\"./", "\"/api/v1/doc/");
    let html = html.replace("\"index.css\"", "\"/api/v1/doc/index.css\"");
    Ok(([(header::CONTENT_TYPE, "text/html; charset=utf-8")], html).into_response())
}

/// The OpenAPI document of this server.
#[utoipa::path(get, path = "/api/v1/doc/openapi.json", tag = "doc",
    responses((status = 200, body = serde_json::Value)))]
async fn document(Context(context): Context) -> Response {
    let document = context.server.document.clone();
    ([(header::CONTENT_TYPE, "application/json")], document).into_response()
}

/// A file of the documentation page.
#[utoipa::path(get, path = "/api/v1/doc/{file}", tag = "doc",
    params(("file" = String, Path)), responses((status = 200, body = Vec<u8>)))]
async fn file(Context(context): Context, Path(file): Path<String>) -> Result<Response> {
    let mounted = context.server.mounts.iter().flat_map(|mount| mount.apis());
    let links: Vec<_> = mounted.map(|mounted| mounted.api().document_link()).collect();
    let (kind, gzipped, bytes) = part(&file, &links)?;
    let mut response = ([(header::CONTENT_TYPE, kind)], bytes).into_response();
    if gzipped {
        let gzip = header::HeaderValue::from_static("gzip");
        response.headers_mut().insert(header::CONTENT_ENCODING, gzip);
    }
    Ok(response)
}

fn part(file: &str, others: &[(String, String)]) -> Result<(String, bool, Vec<u8>)> {
    let page = match others {
        // Without the bar that offers other documents: there are none.
        [] => Config::from(DOCUMENT).use_base_layout(),
        others => {
            let others = others.iter().map(|(name, path)| Url::new(name, path));
            Config::new([Url::new("Mainstay", DOCUMENT)].into_iter().chain(others))
        }
    };
    let page = page.display_request_duration(true);
    let part = utoipa_swagger_ui::serve(file, Arc::new(page))
        .map_err(|e| Error::internal("the documentation page", e.to_string()))?
        .ok_or_else(|| Error::NotFound(format!("/api/v1/doc/{file}")))?;
    Ok((part.content_type, part.gzpipped, part.bytes.into_owned()))
}
