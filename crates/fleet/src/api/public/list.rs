//! Lists: pages, order, search.

use axum::response::Response;
use kernel::identity::Principal;
use kernel::{Error, Result};

use crate::api::kind_api::Call;
use crate::api::wire::reply::{self, ListEtag};
use crate::model::error_code::{ErrorCode, code_of};
use crate::model::order::Order;
use crate::model::search::Filter;
use crate::model::template::Template;
use crate::store::index::{FeedKey, Scope};

const SIZE_DEFAULT: i64 = 100;
const SIZE_MAX: i64 = 65_500;

/// Returns the page and its size. Parses both as leniently as the existing service: anything but a
/// number is 0.
fn paging(call: &Call) -> Result<(i64, i64), &'static str> {
    let number = |name: &str, default: i64| {
        let text = call.query(name).filter(|text| !text.is_empty());
        text.map_or(default, |text| text.trim().parse().unwrap_or(0))
    };
    let page = number("page", 1);
    let size = number("size", SIZE_DEFAULT);
    let size = if !(0..=SIZE_MAX).contains(&size) { SIZE_MAX } else { size };
    if page < 0 {
        return Err("page must be equal or greater than 0");
    }
    if size < 1 {
        return Err("size must be equal or greater than 1");
    }
    Ok((page, size))
}

pub async fn for_user(call: &Call, who: &Principal) -> Result<Response> {
    call.fleet.index.catch_up().await?;
    let tag = ListEtag::new(&call.fleet, &FeedKey::org(call.kind.name(), &who.org));
    if tag.is_known(&call.parts.headers) {
        return Ok(tag.unchanged());
    }
    // Without an organisation, a caller sees only their own.
    let scope = if who.org.is_empty() { Scope::Owner(&who.subject) } else { Scope::Org(&who.org) };
    render(call, &scope, &call.kind.file.list, &call.kind.response).map(|r| tag.on(r))
}

/// Renders the list of a scope with a template of the kind.
pub fn render(call: &Call, scope: &Scope<'_>, name: &str, template: &Template) -> Result<Response> {
    let kind = &call.kind;
    let what = format!("unable to list {} requests", kind.name());
    let named = |error: Error| code_of(&error).error(format!("{what}: {error}"));
    let (page, size) =
        paging(call).map_err(|why| ErrorCode::Malformed.error(format!("{what}: {why}")))?;
    let order = Order::parse(&call.query("orderBy").unwrap_or_default()).map_err(named)?;
    let search = call.query("search").filter(|text| !text.trim().is_empty());
    let filter = search.as_deref().map(Filter::parse).transpose().map_err(named)?;
    let skip = (page.max(1) - 1).saturating_mul(size);
    let [skip, take] = [skip, size].map(|number| usize::try_from(number).unwrap_or(usize::MAX));
    let found = call.fleet.index.list(kind.name(), scope, filter.as_ref(), &order, (skip, take));
    let total = i64::try_from(found.total).unwrap_or(i64::MAX);
    let head = format!(
        r#"{{"kind":"{name}","page":{page},"size":{},"total":{total},"items":["#,
        size.min(total)
    );
    Ok(reply::list(&head, &found.rows, "]}", |row, out| {
        template.render_into(&call.fleet.scope(kind, &row.instance, None), out);
    }))
}
