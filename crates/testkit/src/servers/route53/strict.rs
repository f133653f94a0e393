//! A strict Route 53 over HTTP, in the test's own process: name conflicts and wrong deletes are
//! refused, batches are atomic, changes are PENDING until the test lets them settle, and it can be
//! set to throttle. Only what Mainstay calls: zones, their records, and changes.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use parking_lot::Mutex;
use roxmltree::{Document, Node};
use tokio_util::sync::CancellationToken;

use super::records::{Action, RecordSet, Zone, normal};

const NAMESPACE: &str = "https://route53.amazonaws.com/doc/2013-04-01/";
const PAGE_MAX: usize = 300;

/// Stops when it is dropped.
pub struct Strict {
    endpoint: String,
    world: Arc<Mutex<World>>,
    stop: CancellationToken,
}

#[derive(Default)]
struct World {
    zones: BTreeMap<String, Zone>,
    /// Caller references of zones, each good for one.
    references: Vec<String>,
    changes: u32,
    /// Changes up to this one are everywhere.
    settled: u32,
    throttled: u32,
    requests: u32,
}

impl Strict {
    pub async fn start() -> Strict {
        let world = Arc::new(Mutex::new(World::default()));
        let routes = Router::new()
            .route("/2013-04-01/hostedzone", get(list_zones).post(create_zone))
            .route("/2013-04-01/hostedzone/{id}", get(get_zone).delete(delete_zone))
            .route("/2013-04-01/hostedzone/{id}/rrset", get(list_records).post(change))
            // The client writes a slash at its end.
            .route("/2013-04-01/hostedzone/{id}/rrset/", post(change))
            .route("/2013-04-01/change/{id}", get(get_change))
            .layer(axum::middleware::from_fn_with_state(world.clone(), gate))
            .with_state(world.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let endpoint = format!("http://{}", listener.local_addr().expect("it is bound"));
        let stop = CancellationToken::new();
        let stopped = stop.clone().cancelled_owned();
        tokio::spawn(
            async move { axum::serve(listener, routes).with_graceful_shutdown(stopped).await },
        );
        Strict { endpoint, world, stop }
    }

    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// All changes so far are INSYNC from now on.
    pub fn settle(&self) {
        let mut world = self.world.lock();
        world.settled = world.changes;
    }

    /// The next requests are refused, as the real one does with more than five in a second.
    pub fn throttle(&self, requests: u32) {
        self.world.lock().throttled = requests;
    }

    /// How many requests there were, those that were throttled included.
    pub fn requests(&self) -> u32 {
        self.world.lock().requests
    }

    /// Name, type and values of every record but a zone's own NS and SOA.
    pub fn records(&self) -> Vec<(String, String, Vec<String>)> {
        let world = self.world.lock();
        let all = world.zones.values().flat_map(|zone| zone.records());
        let ours = all.filter(|set| set.kind != "NS" && set.kind != "SOA");
        ours.map(|set| (set.name.clone(), set.kind.clone(), set.values.clone())).collect()
    }
}

impl Drop for Strict {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

type Shared = State<Arc<Mutex<World>>>;

async fn gate(
    State(world): Shared,
    headers: HeaderMap,
    request: axum::extract::Request,
    next: axum::middleware::Next,
) -> Response {
    {
        let mut world = world.lock();
        world.requests += 1;
        if world.throttled > 0 {
            world.throttled -= 1;
            return refuse(StatusCode::BAD_REQUEST, "Throttling", "Rate exceeded");
        }
    }
    let signed = headers.get("authorization").and_then(|value| value.to_str().ok());
    if !signed.is_some_and(|value| value.starts_with("AWS4-HMAC-SHA256 ")) {
        let message = "Request is missing Authentication Token";
        return refuse(StatusCode::FORBIDDEN, "MissingAuthenticationToken", message);
    }
    next.run(request).await
}

async fn create_zone(State(world): Shared, body: String) -> Response {
    let Some((name, reference)) = parse(&body, |root| {
        Some((text(root, "Name")?.to_owned(), text(root, "CallerReference")?.to_owned()))
    }) else {
        return refuse(StatusCode::BAD_REQUEST, "InvalidInput", "Name and CallerReference");
    };
    let mut world = world.lock();
    if world.references.contains(&reference) {
        let message = "A hosted zone has already been created with the specified caller reference.";
        return refuse(StatusCode::CONFLICT, "HostedZoneAlreadyExists", message);
    }
    world.references.push(reference);
    let id = format!("Z{:08}", world.references.len());
    world.zones.insert(id.clone(), Zone::new(&name));
    let (zone, change) = (hosted_zone(&id, &world.zones[&id]), world.begin_change());
    let servers = "<DelegationSet><NameServers><NameServer>ns.example</NameServer></NameServers></DelegationSet>";
    answer(StatusCode::CREATED, "CreateHostedZoneResponse", &format!("{zone}{change}{servers}"))
}

async fn list_zones(State(world): Shared) -> Response {
    let world = world.lock();
    let zones: String = world.zones.iter().map(|(id, zone)| hosted_zone(id, zone)).collect();
    let rest = "<Marker></Marker><IsTruncated>false</IsTruncated><MaxItems>100</MaxItems>";
    let body = format!("<HostedZones>{zones}</HostedZones>{rest}");
    answer(StatusCode::OK, "ListHostedZonesResponse", &body)
}

async fn get_zone(State(world): Shared, Path(id): Path<String>) -> Response {
    match world.lock().zones.get(&id) {
        Some(zone) => answer(StatusCode::OK, "GetHostedZoneResponse", &hosted_zone(&id, zone)),
        None => no_such_zone(&id),
    }
}

async fn delete_zone(State(world): Shared, Path(id): Path<String>) -> Response {
    let mut world = world.lock();
    let Some(zone) = world.zones.get(&id) else { return no_such_zone(&id) };
    if !zone.has_only_its_own() {
        let message = "The specified hosted zone contains non-required resource record sets and so cannot be deleted.";
        return refuse(StatusCode::BAD_REQUEST, "HostedZoneNotEmpty", message);
    }
    world.zones.remove(&id);
    answer(StatusCode::OK, "DeleteHostedZoneResponse", &world.begin_change())
}

async fn list_records(
    State(world): Shared,
    Path(id): Path<String>,
    Query(query): Query<BTreeMap<String, String>>,
) -> Response {
    let world = world.lock();
    let Some(zone) = world.zones.get(&id) else { return no_such_zone(&id) };
    let from = query.get("name").map(|name| normal(name));
    let labels = |name: &str| -> Vec<String> {
        name.trim_end_matches('.').rsplit('.').map(str::to_owned).collect()
    };
    let kind = query.get("type").cloned().unwrap_or_default();
    let after = |set: &&RecordSet| {
        let start = from.as_deref().map(|name| (labels(name), kind.clone()));
        start.is_none_or(|start| (labels(&set.name), set.kind.clone()) >= start)
    };
    let asked = query.get("maxitems").and_then(|text| text.parse().ok());
    let most = asked.unwrap_or(PAGE_MAX).clamp(1, PAGE_MAX);
    let found: Vec<&RecordSet> = zone.records().filter(after).take(most + 1).collect();
    let page: String = found.iter().take(most).map(|set| record_set(set)).collect();
    let mut body = format!("<ResourceRecordSets>{page}</ResourceRecordSets>");
    let _ = write!(
        body,
        "<IsTruncated>{}</IsTruncated><MaxItems>{most}</MaxItems>",
        found.len() > most
    );
    if let Some(next) = found.get(most) {
        let (name, kind) = (&next.name, &next.kind);
        let _ = write!(
            body,
            "<NextRecordName>{name}</NextRecordName><NextRecordType>{kind}</NextRecordType>"
        );
    }
    answer(StatusCode::OK, "ListResourceRecordSetsResponse", &body)
}

async fn change(State(world): Shared, Path(id): Path<String>, body: String) -> Response {
    let Some(changes) = parse(&body, changes) else {
        return refuse(StatusCode::BAD_REQUEST, "InvalidInput", "the change batch cannot be read");
    };
    let mut world = world.lock();
    let Some(zone) = world.zones.get_mut(&id) else { return no_such_zone(&id) };
    if let Err(refused) = zone.change(changes) {
        let message = format!("[{}]", refused.join(", "));
        return refuse(StatusCode::BAD_REQUEST, "InvalidChangeBatch", &message);
    }
    answer(StatusCode::OK, "ChangeResourceRecordSetsResponse", &world.begin_change())
}

async fn get_change(State(world): Shared, Path(id): Path<String>) -> Response {
    let world = world.lock();
    match id.trim_start_matches('C').parse::<u32>() {
        Ok(number) if (1..=world.changes).contains(&number) => {
            answer(StatusCode::OK, "GetChangeResponse", &world.change_info(number))
        }
        _ => refuse(StatusCode::NOT_FOUND, "NoSuchChange", &format!("There is no change {id}")),
    }
}

impl World {
    fn begin_change(&mut self) -> String {
        self.changes += 1;
        self.change_info(self.changes)
    }

    fn change_info(&self, number: u32) -> String {
        let status = if number <= self.settled { "INSYNC" } else { "PENDING" };
        let at = "<SubmittedAt>2026-01-01T00:00:00Z</SubmittedAt>";
        format!("<ChangeInfo><Id>/change/C{number}</Id><Status>{status}</Status>{at}</ChangeInfo>")
    }
}

fn changes(root: Node) -> Option<Vec<(Action, RecordSet)>> {
    let all = root.descendants().filter(|node| node.has_tag_name((NAMESPACE, "Change")));
    all.map(|node| {
        let action = match text(node, "Action")? {
            "CREATE" => Action::Create,
            "UPSERT" => Action::Upsert,
            "DELETE" => Action::Delete,
            _ => return None,
        };
        let set = child(node, "ResourceRecordSet")?;
        let values = set.descendants().filter(|node| node.has_tag_name((NAMESPACE, "Value")));
        let alias =
            child(set, "AliasTarget").map(|alias| &root.document().input_text()[alias.range()]);
        let ttl = text(set, "TTL").unwrap_or_default();
        // A record that is not an alias has a time to live and values.
        (alias.is_some() || !ttl.is_empty()).then_some(())?;
        Some((
            action,
            RecordSet {
                name: normal(text(set, "Name")?),
                kind: text(set, "Type")?.to_owned(),
                identifier: text(set, "SetIdentifier").unwrap_or_default().to_owned(),
                ttl: ttl.to_owned(),
                values: values.filter_map(|value| value.text()).map(str::to_owned).collect(),
                xml: alias.unwrap_or_default().to_owned(),
            },
        ))
    })
    .collect()
}

fn parse<T>(body: &str, read: impl Fn(Node) -> Option<T>) -> Option<T> {
    read(Document::parse(body).ok()?.root_element())
}

fn child<'a, 'b>(node: Node<'a, 'b>, name: &str) -> Option<Node<'a, 'b>> {
    node.children().find(|node| node.has_tag_name((NAMESPACE, name)))
}

fn text<'a>(node: Node<'a, '_>, name: &str) -> Option<&'a str> {
    child(node, name)?.text()
}

fn hosted_zone(id: &str, zone: &Zone) -> String {
    let count = zone.records().count();
    let name = &zone.name;
    format!(
        "<HostedZone><Id>/hostedzone/{id}</Id><Name>{name}</Name><CallerReference>{id}</CallerReference>\
         <ResourceRecordSetCount>{count}</ResourceRecordSetCount></HostedZone>"
    )
}

fn record_set(set: &RecordSet) -> String {
    let mut out = format!("<ResourceRecordSet><Name>{}</Name><Type>{}</Type>", set.name, set.kind);
    if !set.identifier.is_empty() {
        let _ = write!(out, "<SetIdentifier>{}</SetIdentifier>", escape(&set.identifier));
    }
    if !set.ttl.is_empty() {
        let _ = write!(out, "<TTL>{}</TTL>", set.ttl);
    }
    if !set.values.is_empty() {
        out.push_str("<ResourceRecords>");
        for value in &set.values {
            let _ =
                write!(out, "<ResourceRecord><Value>{}</Value></ResourceRecord>", escape(value));
        }
        out.push_str("</ResourceRecords>");
    }
    format!("{out}{}</ResourceRecordSet>", set.xml)
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn answer(status: StatusCode, name: &str, body: &str) -> Response {
    let xml = format!("<?xml version=\"1.0\"?>\n<{name} xmlns=\"{NAMESPACE}\">{body}</{name}>");
    (status, [("content-type", "text/xml")], xml).into_response()
}

fn no_such_zone(id: &str) -> Response {
    refuse(
        StatusCode::NOT_FOUND,
        "NoSuchHostedZone",
        &format!("No hosted zone found with ID: {id}"),
    )
}

fn refuse(status: StatusCode, code: &str, message: &str) -> Response {
    let error = format!(
        "<Error><Type>Sender</Type><Code>{code}</Code><Message>{}</Message></Error>",
        escape(message)
    );
    answer(status, "ErrorResponse", &format!("{error}<RequestId>1</RequestId>"))
}
