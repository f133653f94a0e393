//! The server's side: an operator reports its cluster, and its streams appear beside everything
//! else that the server knows: in lists, searches, events and the graph.

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

use crate::report::{Report, Whole};
use change::{Author, STREAM, STREAM_CLASS};

/// Streams as a domain of the server. It only writes down what operators say: what is wanted of a
/// stream is written in its cluster.
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

/// What became of a report.
#[derive(Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct Taken {
    /// How many objects were written.
    written: usize,
    /// Uids that belong to another cluster or organisation.
    refused: Vec<String>,
}

/// Takes an operator's report. What is known already is not written again.
#[utoipa::path(put, path = "/api/v1/streams/report", tag = "streams", request_body = Report,
    responses((status = 200, body = Taken)))]
async fn report(
    State(app): State<App>,
    Caller(who): Caller,
    sent: Sent<Report>,
) -> Result<Body<Taken>> {
    Ok(Body(take(app.store.as_ref(), &who, &sent.value, app.ambient.now()).await?))
}

/// How often a report is taken again because someone else wrote at the same time.
const ATTEMPTS_MAX: usize = 5;

async fn take(
    store: &dyn Store,
    who: &Principal,
    report: &Report,
    now: Timestamp,
) -> Result<Taken> {
    let author = Author::of(who)?;
    let mut taken = Taken::default();
    for _ in 0..ATTEMPTS_MAX {
        taken.refused.clear();
        let changes = changes(store, &author, report, &mut taken.refused, now).await?;
        if changes.is_empty() {
            return Ok(taken);
        }
        let verdicts = store.commit_all(changes, now).await?;
        taken.written += verdicts.iter().filter(|verdict| verdict.is_ok()).count();
        let again = |refusal: &Refusal| {
            matches!(refusal, Refusal::Stale { .. } | Refusal::Exists(_) | Refusal::Missing(_))
        };
        match verdicts.into_iter().filter_map(Result::err).find(|refusal| !again(refusal)) {
            Some(refusal) => return Err(refusal.into()),
            // What was refused is looked at again, what was taken changes nothing any more.
            None => continue,
        }
    }
    Err(Error::Conflict("another report of this cluster is being taken".into()))
}

/// What a report changes of what is stored.
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
    let mut wanted = |key: &Key, uid: &str, change: Change| match at(key) {
        Some(object) if !author.owns(object) => refused.push(uid.to_owned()),
        _ if change.write.is_some() => changes.push(change),
        _ => {}
    };
    for (class, key) in report.classes.iter().zip(&keys) {
        wanted(key, &class.uid, author.class(key, class, at(key), now));
    }
    for (stream, key) in report.streams.iter().zip(&keys[report.classes.len()..]) {
        wanted(key, &stream.uid, author.stream(key, stream, at(key), now)?);
    }
    let mut ended = store.get(&gone).await?;
    for whole in &report.whole {
        ended.extend(beside(store, author, whole).await?);
    }
    let ended = ended.iter().filter(|object| author.owns(object) && object.deleted_at.is_none());
    changes.extend(ended.map(|object| author.end(object, now)));
    Ok(changes)
}

/// What is stored of this cluster in a range, and is not there any more.
async fn beside(store: &dyn Store, author: &Author, whole: &Whole) -> Result<Vec<Object>> {
    let there: HashSet<&str> = whole.uids.iter().map(String::as_str).collect();
    let within =
        |uid: &str| uid >= whole.from.as_str() && (whole.to.is_empty() || uid < whole.to.as_str());
    let spoken_of = |object: &Object| {
        let namespace = object.labels.get("namespace");
        let named = |wanted: &String| namespace == Some(wanted);
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
    let mut beside = Vec::new();
    loop {
        let page = store.find(&find).await?;
        let unknown = |object: &Object| {
            let uid = object.key.id();
            within(uid) && spoken_of(object) && !there.contains(uid)
        };
        beside.extend(page.objects.into_iter().filter(unknown));
        match page.next {
            Some(next) => find.after = Some(next),
            None => return Ok(beside),
        }
    }
}
