//! The server's side of reports: operators report their streams, which appear in lists, searches,
//! events and the graph.

mod change;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};

use async_trait::async_trait;
use axum::Json as Body;
use axum::extract::State;
use kernel::driver::Workers;
use kernel::http::{Body as Sent, Caller, Routes};
use kernel::identity::{Action, Principal};
use kernel::query::{ObjectQuery, PAGE_MAX};
use kernel::{App, Change, Domain, Error, Key, Object, Refusal, Result, Store, Timestamp};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::routes;

use crate::reporting::report::{Report, Snapshot};
use change::{Author, STREAM, STREAM_CLASS};

/// The streams domain of the server. It stores what operators report; the desired state of a stream
/// is in its cluster.
pub struct StreamsDomain;

#[async_trait]
impl Domain for StreamsDomain {
    fn name(&self) -> &'static str {
        "streams"
    }

    fn routes(&self) -> Routes {
        Routes::new().route(Action::Agent, routes!(report))
    }

    fn workers(&self, _: &App) -> Workers {
        Workers::new()
    }
}

/// The result of a report.
#[derive(Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Taken)]
pub struct ReportResult {
    /// The number of objects that were written.
    written: usize,
    /// Uids that belong to another cluster or organisation.
    refused: Vec<String>,
}

/// Stores an operator's report. Objects that are current are not written.
#[utoipa::path(put, path = "/api/v1/streams/report", tag = "streams", request_body = Report,
    responses((status = 200, body = ReportResult)))]
async fn report(
    State(app): State<App>,
    Caller(who): Caller,
    sent: Sent<Report>,
) -> Result<Body<ReportResult>> {
    Ok(Body(apply_report(app.store.as_ref(), &who, &sent.value, app.ambient.now()).await?))
}

/// Attempts when another report writes at the same time.
const ATTEMPTS_MAX: usize = 5;

async fn apply_report(
    store: &dyn Store,
    who: &Principal,
    report: &Report,
    now: Timestamp,
) -> Result<ReportResult> {
    let author = Author::of(who)?;
    let mut result = ReportResult::default();
    for _ in 0..ATTEMPTS_MAX {
        result.refused.clear();
        let changes = changes(store, &author, report, &mut result.refused, now).await?;
        if changes.is_empty() {
            return Ok(result);
        }
        let verdicts = store.commit_all(changes, now).await?;
        result.written += verdicts.iter().filter(|verdict| verdict.is_ok()).count();
        let again = |refusal: &Refusal| {
            matches!(refusal, Refusal::Stale { .. } | Refusal::Exists(_) | Refusal::Missing(_))
        };
        match verdicts.into_iter().filter_map(Result::err).find(|refusal| !again(refusal)) {
            Some(refusal) => return Err(refusal.into()),
            // Refused changes are computed again; accepted ones have no effect any more.
            None => continue,
        }
    }
    Err(Error::Conflict("concurrent reports of this cluster; retry".into()))
}

/// The changes of the store that a report requires.
async fn changes(
    store: &dyn Store,
    author: &Author,
    report: &Report,
    refused: &mut Vec<String>,
    now: Timestamp,
) -> Result<Vec<Change>> {
    let key = |kind: &str, uid: &str| Key::parse(&format!("{kind}/{uid}"));
    let mut keys = Vec::new();
    for class in &report.classes {
        keys.push(key(STREAM_CLASS, &class.uid)?);
    }
    for stream in &report.streams {
        keys.push(key(STREAM, &stream.uid)?);
    }
    let mut gone = Vec::new();
    for uid in &report.gone {
        gone.extend([key(STREAM, uid)?, key(STREAM_CLASS, uid)?]);
    }
    let stored = store.get(&keys).await?;
    let stored: HashMap<&Key, &Object> =
        stored.iter().map(|object| (&object.key, object)).collect();
    let at = |key: &Key| stored.get(key).copied();
    let mut changes = Vec::new();
    let mut desired = |key: &Key, uid: &str, change: Change| match at(key) {
        Some(object) if !author.owns(object) => refused.push(uid.to_owned()),
        _ if change.write.is_some() => changes.push(change),
        _ => {}
    };
    for (class, key) in report.classes.iter().zip(&keys) {
        desired(key, &class.uid, author.class(key, class, at(key), now));
    }
    for (stream, key) in report.streams.iter().zip(&keys[report.classes.len()..]) {
        desired(key, &stream.uid, author.stream(key, stream, at(key), now)?);
    }
    let mut ended = store.get(&gone).await?;
    for whole in &report.whole {
        ended.extend(stale_objects(store, author, whole).await?);
    }
    let ended = ended.iter().filter(|object| author.owns(object) && object.deleted_at.is_none());
    changes.extend(ended.map(|object| author.end(object, now)));
    Ok(changes)
}

/// The stored objects of this cluster in a range that no longer exist.
async fn stale_objects(
    store: &dyn Store,
    author: &Author,
    whole: &Snapshot,
) -> Result<Vec<Object>> {
    let there: HashSet<&str> = whole.uids.iter().map(String::as_str).collect();
    let within =
        |uid: &str| uid >= whole.from.as_str() && (whole.to.is_empty() || uid < whole.to.as_str());
    let in_scope = |object: &Object| {
        let namespace = object.labels.get("namespace");
        let named = |desired: &String| namespace == Some(desired);
        whole.namespaces.is_empty() || whole.namespaces.iter().any(named)
    };
    let kind = if whole.classes { STREAM_CLASS } else { STREAM };
    let mut find = ObjectQuery {
        org: Some(author.org.clone()),
        kind: Some(kind.into()),
        labels: vec![("cluster".into(), author.cluster.clone())],
        limit: PAGE_MAX,
        ..ObjectQuery::default()
    };
    let mut stale_objects = Vec::new();
    loop {
        let page = store.find(&find).await?;
        let unknown = |object: &Object| {
            let uid = object.key.id();
            within(uid) && in_scope(object) && !there.contains(uid)
        };
        stale_objects.extend(page.objects.into_iter().filter(unknown));
        match page.next {
            Some(next) => find.after = Some(next),
            None => return Ok(stale_objects),
        }
    }
}
