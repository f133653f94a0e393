//! `/api/v1/search`: words and filters over all objects that are visible to the caller.

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::routes;

use super::super::{Caller, Params, Routes};
use super::limit;
use super::objects;
use crate::identity::Action;
use crate::query::{ObjectQuery, PAGE_MAX, QueryPage};
use crate::{App, Error, Result};

const QUERY_CHARS_MAX: usize = 1000;

pub(super) fn routes() -> Routes {
    Routes::new().route(Action::Read, routes!(search))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct SearchParams {
    /// Prefixes of words in the name, the description or the labels, and filters: `kind:`, `phase:`,
    /// `owner:`, `name:`, `label:KEY=VALUE`, `depends-on:kind/id`, `used-by:kind/id`.
    q: String,
    #[param(minimum = 1, maximum = 500, default = 50)]
    limit: Option<usize>,
    /// `next` of the previous page.
    after: Option<i64>,
}

/// Searches all objects that are visible to the caller.
#[utoipa::path(get, path = "/api/v1/search", tag = "objects", params(SearchParams),
    responses((status = 200, body = QueryPage)))]
async fn search(
    State(app): State<App>,
    Caller(who): Caller,
    Params(params): Params<SearchParams>,
) -> Result<Json<QueryPage>> {
    if params.q.chars().count() > QUERY_CHARS_MAX {
        return Err(Error::invalid("q", format!("must have at most {QUERY_CHARS_MAX} characters")));
    }
    let limit = limit(params.limit, PAGE_MAX)?;
    let find = ObjectQuery { limit, after: params.after, ..ObjectQuery::parse(&params.q)? };
    objects::find(&app, &who, find).await
}
