//! The server's side of reports: operators report their streams, which appear in lists, searches,
//! events and the graph.

mod change;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};

use async_trait::async_trait;
use axum::response::Response;
use kernel::command::{Command, CommandContext, Decided};
use kernel::http::{CommandRequest, REPORT_BYTES_MAX, Routes};
use kernel::identity::{Action, Principal};
use kernel::kind::{KindInfo, Presenter};
use kernel::query::{ObjectQuery, PAGE_MAX};
use kernel::{App, Change, Domain, Key, Object, Refusal, Result, Running, Store, Timestamp};
use serde::Serialize;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
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

    fn kinds(&self) -> Vec<KindInfo> {
        vec![
            KindInfo::new(STREAM, "streams", Presenter::Whole),
            KindInfo::new(STREAM_CLASS, "stream-classes", Presenter::Whole),
        ]
    }

    async fn start(&self, _: &App, _: &TaskTracker, _: &CancellationToken) -> Result<Running> {
        let routes = Routes::new().command(ReportStreams, routes!(report));
        let routes = routes.body_bytes_max(REPORT_BYTES_MAX);
        Ok(Running { routes, ..Running::default() })
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
async fn report(command: CommandRequest) -> Result<Response> {
    command.execute(ReportStreams::NAME, None).await
}

struct ReportStreams;

#[async_trait]
impl Command for ReportStreams {
    const NAME: &'static str = "streams.report";
    const ACTION: Action = Action::Agent;
    type Body = Report;
    type Reply = ReportResult;

    async fn decide(
        &self,
        cx: &CommandContext<'_>,
        report: Report,
    ) -> Result<Decided<ReportResult>> {
        decide_report(cx.app.store.as_ref(), cx.principal, &report, cx.now).await
    }
}

async fn decide_report(
    store: &dyn Store,
    who: &Principal,
    report: &Report,
    now: Timestamp,
) -> Result<Decided<ReportResult>> {
    let author = Author::of(who)?;
    let mut refused = Vec::new();
    let changes = changes(store, &author, report, &mut refused, now).await?;
    let result = ReportResult { written: changes.len(), refused };
    let mut decided = Decided::new(200, result, None).on_refused(|refusal| match refusal {
        Refusal::Exists(_) | Refusal::Missing(_) => Ok(()),
        other => Err(other.into()),
    });
    decided.changes = changes;
    Ok(decided)
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
