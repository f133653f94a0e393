//! The agents' API: what a cluster should run, and what it says of it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use axum::http::HeaderName;
use axum::response::Response;
use kernel::identity::Principal;
use kernel::{Change, Key, Object, Refusal, Result};
use serde_json::{Value, json};

use super::payload::parse_object;
use super::reply::{self, Tag};
use super::router::Call;
use super::watch;
use crate::Fleet;
use crate::decide::instance::{transition, written};
use crate::decide::report::{Report, Verdict, judge};
use crate::index::Row;
use crate::model::cluster::Cluster;
use crate::model::code::Code;
use crate::model::instance::{Instance, Status};
use crate::model::kind::{Extra, Kind};

/// What the cluster's agent is configured with.
pub async fn config(call: &Call) -> Result<Response> {
    let cluster = cluster(call).await?;
    let agent = &call.fleet.config.agent;
    let mut spec = serde_json::Map::new();
    // Agents of kinds without clusters of one's own do not know of networks and nodes.
    if call.kind.has(Extra::Clusters) {
        spec.insert("net".into(), json!({ "private": cluster.spec.private_network }));
        if !cluster.spec.max_nodes.is_empty() {
            let nodes = |(of, max): (&String, &i64)| (of.clone(), json!({ "maxNodes": max }));
            spec.insert("capacity".into(), cluster.spec.max_nodes.iter().map(nodes).collect());
        }
    }
    let observability = json!({
        "accessToken": agent.observability_access_token.expose(),
        "channel": agent.observability_channel,
        "repository": agent.observability_repository,
        "tag": agent.observability_tag,
    });
    spec.insert("observability".into(), observability);
    Ok(call.json(200, &json!({ "spec": spec })))
}

pub async fn cluster(call: &Call) -> Result<Arc<Cluster>> {
    call.fleet.index.catch_up().await?;
    call.fleet.index.cluster(&call.args[0]).ok_or_else(|| Code::NotFound.plain())
}

/// All instances of the cluster, or those that changed after `?after=`. A client that knows the
/// ETag of the list is told when it is still the same.
pub async fn list(call: &Call) -> Result<Response> {
    let cluster = cluster(call).await?;
    let kind = &call.kind;
    call.fleet.heard(&cluster.id);
    let after = watch::after(call)?;
    let tag = Tag::new(&call.fleet, call.fleet.index.agent_seq(kind.name(), &cluster.id));
    if after.is_none() && tag.is_known(&call.parts.headers) {
        return Ok(tag.unchanged(&call.context));
    }
    let delta = call.fleet.index.for_agent(kind.name(), &cluster.id, after);
    let list = format!("Managed{}List", kind.file.title);
    let mut out = format!(r#"{{"kind":"{list}","items":["#).into_bytes();
    for (i, row) in delta.changed.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        told(&call.fleet, kind, row, wants_manifests(call), &mut out);
    }
    match after {
        Some(_) => out.extend_from_slice(watch::tail(&delta).as_bytes()),
        None => out.extend_from_slice(b"]}"),
    }
    let mut response = reply::bytes_of(&call.context, 200, out);
    response.headers_mut().insert(REVISION, delta.seq.into());
    Ok(tag.on(response))
}

/// The number to give as `after` next time.
pub const REVISION: HeaderName = HeaderName::from_static("x-revision");

/// Whether the agent is our own: it is told what to apply, too.
pub fn wants_manifests(call: &Call) -> bool {
    call.query("manifests").as_deref() == Some("true")
}

/// Writes an instance as the agent of its cluster is told of it.
pub fn told(fleet: &Fleet, kind: &Kind, row: &Row, manifests: bool, out: &mut Vec<u8>) {
    let instance = &row.instance;
    let secrets = fleet.for_agent(instance);
    let view = fleet.view(kind, instance, Some(&secrets));
    kind.agent.render_into(&view, out);
    if !manifests || out.pop() != Some(b'}') {
        return;
    }
    let cluster = fleet.index.cluster(&instance.seen.cluster_id);
    let rendered = kind.manifests.iter().map(|template| {
        serde_json::from_slice::<Value>(&template.render(&view)).unwrap_or_default()
    });
    let suspended = matches!(instance.status, Status::Suspending | Status::Suspended);
    let more = json!({
        "namespace": instance.seen.namespace,
        "placement": instance.seen.placement_id,
        "deleted": instance.status.is_going(),
        "suspended": suspended,
        "versions": instance.spec.versions,
        "router": cluster.map(|cluster| cluster.spec.dns_name.clone()).unwrap_or_default(),
        "manifests": rendered.collect::<Vec<Value>>(),
    });
    out.extend_from_slice(format!(r#","mainstay":{more}}}"#).as_bytes());
}

/// What the agent says of its instances: all that is new is written in one go.
pub async fn report(mut call: Call) -> Result<Response> {
    let bytes = call.bytes().await?;
    let body = parse_object(&bytes)?;
    let cluster = cluster(&call).await?;
    call.fleet.heard(&cluster.id);
    let results = take_in(&call.fleet, &call.kind, &cluster, &body).await?;
    match call.query("results").as_deref() {
        Some("true") => Ok(call.json(200, &json!({ "results": results }))),
        _ => Ok(reply::empty(&call.context, 200)),
    }
}

/// How often what someone else wrote meanwhile is read again.
const TRIES: usize = 5;

/// Takes in an agent's reports. Says for each what came of it; only what is new is written.
pub async fn take_in(
    fleet: &Fleet,
    kind: &Kind,
    cluster: &Cluster,
    reports: &serde_json::Map<String, Value>,
) -> Result<BTreeMap<String, &'static str>> {
    let names = fleet.dns.is_some() && kind.file.dns.is_some();
    let mut results = BTreeMap::new();
    let mut open = Vec::new();
    for (id, value) in reports {
        let report = Report::read(kind, value);
        let verdict = match fleet.index.get(kind.name(), id) {
            Some(row) => judge(&row.instance, kind, cluster, &report, names, ""),
            None => Verdict::Refused("it does not exist"),
        };
        match verdict {
            Verdict::Nothing => drop(results.insert(id.clone(), "unchanged")),
            Verdict::Refused(why) => drop(results.insert(id.clone(), why)),
            Verdict::Changed { .. } => open.push((id.clone(), report)),
        }
    }
    for _ in 0..TRIES {
        if open.is_empty() {
            break;
        }
        open = write(fleet, kind, cluster, open, names, &mut results).await?;
    }
    results.extend(open.into_iter().map(|(id, _)| (id, "it is being changed; say it again")));
    Ok(results)
}

/// Writes what is new; returns what someone else wrote meanwhile.
async fn write(
    fleet: &Fleet,
    kind: &Kind,
    cluster: &Cluster,
    open: Vec<(String, Report)>,
    names: bool,
    results: &mut BTreeMap<String, &'static str>,
) -> Result<Vec<(String, Report)>> {
    let keys: Vec<Key> = open.iter().map(|(id, _)| Key::new(kind.name(), id)).collect();
    let objects = fleet.store.get(&keys).await?;
    let objects: HashMap<&str, &Object> =
        objects.iter().map(|object| (object.key.id(), object)).collect();
    let now = fleet.ambient.now();
    let (mut changes, mut written_of) = (Vec::new(), Vec::new());
    for (id, report) in open {
        let object = objects.get(id.as_str()).copied();
        let Some(object) = object.filter(|object| object.deleted_at.is_none()) else {
            results.insert(id, "it does not exist");
            continue;
        };
        let instance = Instance::of(object)?;
        let fresh = fleet.ambient.id();
        match judge(&instance, kind, cluster, &report, names, &fresh) {
            Verdict::Nothing => drop(results.insert(id, "unchanged")),
            Verdict::Refused(why) => drop(results.insert(id, why)),
            Verdict::Changed { next, event, wake } => {
                let mut change: Change = match event {
                    Some(event) => transition(object, &next, event, now).0,
                    None => written(object, &next, "reported", now),
                };
                if next.seen.cluster_id.is_empty() {
                    let counter = instance.seen.capacity_counter.clone();
                    change.releases = instance.releases([counter]);
                }
                if wake {
                    change.wakes.push(super::instances::wake(&instance, now));
                }
                changes.push(change);
                written_of.push((id, report));
            }
        }
    }
    let verdicts = fleet.store.commit_all(changes, now).await?;
    let mut again = Vec::new();
    for ((id, report), verdict) in written_of.into_iter().zip(verdicts) {
        match verdict {
            Ok(_) => drop(results.insert(id, "updated")),
            Err(Refusal::Stale { .. }) => again.push((id, report)),
            Err(refusal) => {
                tracing::warn!(%id, %refusal, "an agent's report could not be written");
                results.insert(id, "it could not be written; say it again");
            }
        }
    }
    Ok(again)
}

/// What the agent says of its cluster.
pub async fn status(mut call: Call) -> Result<Response> {
    let bytes = call.bytes().await?;
    let body = Value::Object(parse_object(&bytes)?);
    let cluster = cluster(&call).await?;
    crate::decide::cluster::check(&call.kind, &body)?;
    call.fleet.report_cluster(&call.kind, &cluster.id, &body).await?;
    Ok(reply::empty(&call.context, 204))
}

/// Whether the agent's cluster has this external id.
pub async fn verify(call: &Call, who: &Principal) -> Result<Response> {
    let id = &call.args[0];
    if !super::is_uuid(id) {
        let why = format!("external cluster id does not match {}", super::UUID_PATTERN);
        return Err(Code::ExternalClusterId.error(why));
    }
    call.fleet.index.catch_up().await?;
    let clusters = call.fleet.index.clusters();
    let found = clusters.iter().find(|cluster| cluster.spec.external_id == *id);
    let Some(cluster) = found else { return Err(Code::NotFound.plain()) };
    if who.agent_of.as_deref() != Some(cluster.id.as_str()) {
        return Err(Code::Forbidden.plain());
    }
    Ok(reply::empty(&call.context, 200))
}
