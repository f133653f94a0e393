//! Every route and every kind of caller: exactly what each is answered.

use std::collections::BTreeMap;

use kernel::http::Rule;
use kernel::identity::Action;
use serde_json::{Value, json};

use crate::callers::{CALLERS, CLUSTER, principal};
use crate::prometheus;
use crate::stage::{Api, DINOSAUR, EXTERNAL_ID, KAFKA, Stage};

/// Whose tokens are worth nothing: all of them are answered as if they had none.
const FORGED: [&str; 5] = ["", "bad-signature", "expired", "wrong-issuer", "garbage"];
/// The columns of the table after the first, which is for all of the forged.
const COLUMNS: [&str; 11] = [
    "alice",
    "bob",
    "carol",
    "mallory",
    "service-account",
    "no-org",
    "admin-read",
    "admin-write",
    "admin-full",
    "agent",
    "other-agent",
];
/// Callers of other tests, who are one of the columns in other clothes.
const ELSEWHERE: [&str; 2] = ["alice-as-admin", "race"];

/// Status and code for each route and caller. What is asked for belongs to alice, or to her
/// organisation, or is on the agent's cluster.
const EXPECTED: &str = "
method path                                                forged  alice   bob     carol   mallory account no-org  read    write   full    agent   other
GET    /                                                   200     200     200     200     200     200     200     200     200     200     200     200
GET    /v1                                                 200     200     200     200     200     200     200     200     200     200     200     200
GET    /v1/openapi                                         200     200     200     200     200     200     200     200     200     200     200     200
GET    /v1/errors                                          200     200     200     200     200     200     200     200     200     200     200     200
GET    /v1/errors/{id}                                     200     200     200     200     200     200     200     200     200     200     200     200
GET    /v1/sso_providers                                   200     200     200     200     200     200     200     200     200     200     200     200
GET    /v1/status                                          401/15  200     200     200     200     200     200     200     200     200     200     200
GET    /v1/{plural}                                        401/15  200     200     200     200     401/15  401/15  401/15  401/15  401/15  401/15  401/15
POST   /v1/{plural}                                        401/15  202     202     202     202     401/15  401/15  401/15  401/15  401/15  401/15  401/15
GET    /v1/{plural}/{id}                                   401/15  200     200     200     404/7   401/15  401/15  401/15  401/15  401/15  401/15  401/15
PATCH  /v1/{plural}/{id}                                   401/15  200     403/11  200     404/7   401/15  401/15  401/15  401/15  401/15  401/15  401/15
DELETE /v1/{plural}/{id}                                   401/15  202     404/7   202     404/7   401/15  401/15  401/15  401/15  401/15  401/15  401/15
POST   /v1/{plural}/{id}/promote                           401/15  202     403/11  202     404/7   401/15  401/15  401/15  401/15  401/15  401/15  401/15
GET    /v1/{plural}/{id}/metrics/query                     401/15  200     200     200     404/7   401/15  401/15  401/15  401/15  401/15  401/15  401/15
GET    /v1/{plural}/{id}/metrics/query_range               401/15  200     200     200     404/7   401/15  401/15  401/15  401/15  401/15  401/15  401/15
GET    /v1/{plural}/{id}/metrics/federate                  401/15  200     200     200     404/7   200     401/15  401/15  401/15  401/15  401/15  401/15
GET    /v1/cloud_providers                                 401/15  200     200     200     200     200     200     200     200     200     200     200
GET    /v1/cloud_providers/{id}/regions                    401/15  200     200     200     200     200     200     200     200     200     200     200
GET    /v1/instance_types/{cloud_provider}/{cloud_region}  401/15  200     200     200     200     401/15  401/15  401/15  401/15  401/15  401/15  401/15
GET    /v1/service_accounts                                401/15  200     200     200     200     401/15  401/15  401/15  401/15  401/15  401/15  401/15
POST   /v1/service_accounts                                401/15  202     202     202     202     401/15  401/15  401/15  401/15  401/15  401/15  401/15
GET    /v1/service_accounts/{id}                           401/15  200     200     200     404/113 401/15  401/15  401/15  401/15  401/15  401/15  401/15
DELETE /v1/service_accounts/{id}                           401/15  204     403/4   204     403/4   401/15  401/15  401/15  401/15  401/15  401/15  401/15
POST   /v1/service_accounts/{id}/reset_credentials         401/15  200     403/4   200     403/4   401/15  401/15  401/15  401/15  401/15  401/15  401/15
GET    /v1/clusters                                        401/15  200     200     200     403/120 401/15  401/15  401/15  401/15  401/15  401/15  401/15
POST   /v1/clusters                                        401/15  403/11  403/11  200     403/120 401/15  401/15  401/15  401/15  401/15  401/15  401/15
GET    /v1/clusters/{id}                                   401/15  200     200     200     403/120 401/15  401/15  401/15  401/15  401/15  401/15  401/15
DELETE /v1/clusters/{id}                                   401/15  403/11  403/11  202     403/120 401/15  401/15  401/15  401/15  401/15  401/15  401/15
GET    /v1/clusters/{id}/addon_parameters                  401/15  403/11  403/11  200     403/120 401/15  401/15  401/15  401/15  401/15  401/15  401/15
GET    /v1/agent-clusters/{cluster}                        401/15  404/7   404/7   404/7   404/7   404/7   404/7   404/7   404/7   404/7   200     404/7
PUT    /v1/agent-clusters/{cluster}/status                 401/15  404/7   404/7   404/7   404/7   404/7   404/7   404/7   404/7   404/7   204     404/7
GET    /v1/agent-clusters/{cluster}/{plural}               401/15  404/7   404/7   404/7   404/7   404/7   404/7   404/7   404/7   404/7   200     404/7
PUT    /v1/agent-clusters/{cluster}/{plural}/status        401/15  404/7   404/7   404/7   404/7   404/7   404/7   404/7   404/7   404/7   200     404/7
POST   /v1/obs-proxy-verification/{id}                     401/15  404/7   404/7   404/7   404/7   404/7   404/7   404/7   404/7   404/7   200     403/4
GET    /v1/admin/{plural}                                  401/15  404/7   404/7   404/7   404/7   404/7   404/7   200     200     200     404/7   404/7
GET    /v1/admin/{plural}/{id}                             401/15  404/7   404/7   404/7   404/7   404/7   404/7   200     200     200     404/7   404/7
PATCH  /v1/admin/{plural}/{id}                             401/15  404/7   404/7   404/7   404/7   404/7   404/7   404/7   200     200     404/7   404/7
DELETE /v1/admin/{plural}/{id}                             401/15  404/7   404/7   404/7   404/7   404/7   404/7   404/7   404/7   202     404/7   404/7
POST   /v1/admin/{plural}/{id}/revoke_tls_certificate      401/15  404/7   404/7   404/7   404/7   404/7   404/7   404/7   404/7   204     404/7   404/7
";

struct Matrix {
    stage: Stage,
    api: Api,
    count: usize,
    /// Things that are only looked at.
    instance: String,
    account: String,
    cluster: String,
}

impl Matrix {
    async fn new(api: Api) -> Matrix {
        let url = prometheus::start().await;
        let stage = Stage::configured(|config| config.prometheus.url = url).await;
        let instance = stage.create_ready(api, "alice", "seen").await;
        let mut matrix = Matrix {
            stage,
            api,
            count: 0,
            instance,
            account: String::new(),
            cluster: String::new(),
        };
        if api == KAFKA {
            matrix.account = matrix.new_account().await;
            matrix.cluster = matrix.new_cluster().await;
        }
        matrix
    }

    fn name(&mut self) -> String {
        self.count += 1;
        format!("n{}", self.count)
    }

    async fn new_instance(&mut self, more: Value, ready: bool) -> String {
        let mut body = json!({ "name": self.name() });
        for (key, value) in more.as_object().into_iter().flatten() {
            body[key] = value.clone();
        }
        let id = self.stage.create_with(self.api, "alice", body).await;
        if ready {
            self.stage.agent(self.api).make_ready(&id).await;
        }
        id
    }

    async fn new_account(&mut self) -> String {
        let body = json!({ "name": self.name() });
        let path = format!("{}/service_accounts", self.api.prefix);
        let made = self.stage.call("alice", "POST", &path, &body).await;
        assert_eq!(made.status, 202, "{}", made.text);
        made.body["id"].as_str().unwrap().to_owned()
    }

    fn cluster_body(&mut self) -> Value {
        self.count += 1;
        json!({
            "cluster_id": format!("{:032}", self.count),
            "cluster_ingress_dns_name": "apps.example.com",
            "kafka_machine_pool_node_count": 3,
            "access_kafkas_via_private_network": false,
        })
    }

    async fn new_cluster(&mut self) -> String {
        let body = self.cluster_body();
        let path = format!("{}/clusters", self.api.prefix);
        let made = self.stage.call("carol", "POST", &path, &body).await;
        assert_eq!(made.status, 200, "{}", made.text);
        body["cluster_id"].as_str().unwrap().to_owned()
    }

    /// What is sent to a route: the path after the prefix, and the body. What the request would
    /// use up is created for it.
    async fn request(&mut self, method: &str, path: &str) -> (String, Value) {
        let plural = self.api.plural;
        let (instance, account, own) =
            (self.instance.clone(), self.account.clone(), self.cluster.clone());
        let none = Value::Null;
        let kafka = self.api == KAFKA;
        let asked = |path: &str| (path.to_owned(), Value::Null);
        match (method, path) {
            // The only one above the version.
            ("GET", "/") => asked("/.."),
            ("GET", "/v1") => asked(""),
            ("GET", "/v1/openapi") => asked("/openapi"),
            ("GET", "/v1/errors") => asked("/errors"),
            ("GET", "/v1/errors/{id}") => asked("/errors/7"),
            ("GET", "/v1/sso_providers") => asked("/sso_providers"),
            ("GET", "/v1/status") => asked("/status"),
            ("GET", "/v1/{plural}") => asked(&format!("/{plural}")),
            ("POST", "/v1/{plural}") => {
                (format!("/{plural}?async=true"), json!({ "name": self.name() }))
            }
            ("GET", "/v1/{plural}/{id}") => asked(&format!("/{plural}/{instance}")),
            ("PATCH", "/v1/{plural}/{id}") => {
                (format!("/{plural}/{instance}"), json!({ "owner": "alice" }))
            }
            ("DELETE", "/v1/{plural}/{id}") => {
                let id = self.new_instance(none, false).await;
                asked(&format!("/{plural}/{id}?async=true"))
            }
            ("POST", "/v1/{plural}/{id}/promote") => {
                let id = if kafka {
                    self.new_instance(json!({ "billing_model": "eval" }), true).await
                } else {
                    instance
                };
                let to = json!({ "desired_kafka_billing_model": "standard" });
                (format!("/{plural}/{id}/promote?async=true"), to)
            }
            ("GET", "/v1/{plural}/{id}/metrics/query") => {
                asked(&format!("/{plural}/{instance}/metrics/query"))
            }
            ("GET", "/v1/{plural}/{id}/metrics/query_range") => {
                asked(&format!("/{plural}/{instance}/metrics/query_range?duration=5&interval=30"))
            }
            ("GET", "/v1/{plural}/{id}/metrics/federate") => {
                asked(&format!("/{plural}/{instance}/metrics/federate"))
            }
            ("GET", "/v1/cloud_providers") => asked("/cloud_providers"),
            ("GET", "/v1/cloud_providers/{id}/regions") => asked("/cloud_providers/aws/regions"),
            ("GET", "/v1/instance_types/{cloud_provider}/{cloud_region}") => {
                asked("/instance_types/aws/us-east-1")
            }
            ("GET", "/v1/service_accounts") => asked("/service_accounts"),
            ("POST", "/v1/service_accounts") => {
                ("/service_accounts".into(), json!({ "name": self.name() }))
            }
            ("GET", "/v1/service_accounts/{id}") => asked(&format!("/service_accounts/{account}")),
            ("DELETE", "/v1/service_accounts/{id}") if kafka => {
                asked(&format!("/service_accounts/{}", self.new_account().await))
            }
            ("DELETE", "/v1/service_accounts/{id}") => asked("/service_accounts/x"),
            ("POST", "/v1/service_accounts/{id}/reset_credentials") => {
                asked(&format!("/service_accounts/{account}/reset_credentials"))
            }
            ("GET", "/v1/clusters") => asked("/clusters"),
            ("POST", "/v1/clusters") => ("/clusters".into(), self.cluster_body()),
            ("GET", "/v1/clusters/{id}") => asked(&format!("/clusters/{own}")),
            ("DELETE", "/v1/clusters/{id}") if kafka => {
                asked(&format!("/clusters/{}?async=true", self.new_cluster().await))
            }
            ("DELETE", "/v1/clusters/{id}") => asked("/clusters/x?async=true"),
            ("GET", "/v1/clusters/{id}/addon_parameters") => {
                asked(&format!("/clusters/{own}/addon_parameters"))
            }
            ("GET", "/v1/agent-clusters/{cluster}") => asked(&format!("/agent-clusters/{CLUSTER}")),
            ("PUT", "/v1/agent-clusters/{cluster}/status") => {
                (format!("/agent-clusters/{CLUSTER}/status"), json!({}))
            }
            ("GET", "/v1/agent-clusters/{cluster}/{plural}") => {
                asked(&format!("/agent-clusters/{CLUSTER}/{plural}"))
            }
            ("PUT", "/v1/agent-clusters/{cluster}/{plural}/status") => {
                (format!("/agent-clusters/{CLUSTER}/{plural}/status"), json!({}))
            }
            ("POST", "/v1/obs-proxy-verification/{id}") => {
                asked(&format!("/obs-proxy-verification/{EXTERNAL_ID}"))
            }
            ("GET", "/v1/admin/{plural}") => asked(&format!("/admin/{plural}")),
            ("GET", "/v1/admin/{plural}/{id}") => asked(&format!("/admin/{plural}/{instance}")),
            ("PATCH", "/v1/admin/{plural}/{id}") => {
                let id = self.new_instance(none, true).await;
                let body = if kafka {
                    json!({ "max_data_retention_size": "1100Gi" })
                } else {
                    json!({ "dinosaur_version": "1.1.0" })
                };
                (format!("/admin/{plural}/{id}"), body)
            }
            ("DELETE", "/v1/admin/{plural}/{id}") => {
                let id = self.new_instance(none, false).await;
                asked(&format!("/admin/{plural}/{id}?async=true"))
            }
            ("POST", "/v1/admin/{plural}/{id}/revoke_tls_certificate") => {
                let path = format!("/admin/{plural}/{instance}/revoke_tls_certificate");
                (path, json!({ "revocation_reason": 1 }))
            }
            _ => panic!("{method} {path} has no request here"),
        }
    }

    async fn cell(&mut self, (method, path): (&str, &str), who: &str) -> String {
        let (path, body) = self.request(method, path).await;
        let path = match path.as_str() {
            "/.." => self.api.prefix.trim_end_matches("/v1").to_owned(),
            path => format!("{}{path}", self.api.prefix),
        };
        let answer = self.stage.call(who, method, &path, &body).await;
        match answer.code() {
            0 => answer.status.to_string(),
            code => format!("{}/{code}", answer.status),
        }
    }

    async fn row(&mut self, route: (&str, &str)) -> Vec<String> {
        let forged = self.cell(route, FORGED[0]).await;
        for who in &FORGED[1..] {
            let answer = self.cell(route, who).await;
            assert_eq!(answer, forged, "{route:?} as {who:?}, who is nobody");
        }
        let mut row = vec![forged];
        for who in COLUMNS {
            row.push(self.cell(route, who).await);
        }
        row
    }

    /// The actions of the routes that an API has, by method and path below the prefix.
    fn actions(&self, api: Api) -> BTreeMap<(String, String), Action> {
        let prefix = api.prefix.trim_end_matches("/v1");
        let rules = self.stage.routes().rules().into_iter();
        let below = rules.filter_map(|Rule { method, path, action }| {
            let path = path.strip_prefix(prefix)?.replace(api.plural, "{plural}");
            Some(((method, if path.is_empty() { "/".into() } else { path }), action))
        });
        below.collect()
    }
}

fn expected() -> BTreeMap<(String, String), Vec<String>> {
    let mut rows = EXPECTED.trim().lines();
    assert_eq!(rows.next().map(|head| head.split_whitespace().count()), Some(COLUMNS.len() + 3));
    rows.map(|row| {
        let mut cells = row.split_whitespace().map(str::to_owned);
        let mut next = || cells.next().expect("a method and a path");
        ((next(), next()), cells.collect())
    })
    .collect()
}

#[test]
fn every_caller_has_a_column() {
    for who in CALLERS {
        let known = [&FORGED[..], &COLUMNS[..], &ELSEWHERE[..]].concat().contains(&who);
        assert!(known, "{who} is in no column");
    }
}

/// What the role × action table denies is answered as the existing service does.
fn denied(action: Action, who: &str) -> Option<&'static str> {
    let hidden = [Action::Agent, Action::AdminRead, Action::AdminWrite, Action::AdminFull];
    let answer = if hidden.contains(&action) { "404/7" } else { "401/15" };
    (!action.allows(&principal(who))).then_some(answer)
}

async fn check(api: Api) {
    let mut matrix = Matrix::new(api).await;
    let (rows, actions) = (expected(), matrix.actions(api));
    for (route, action) in &actions {
        let row = rows.get(route).unwrap_or_else(|| panic!("{route:?} has no row"));
        assert_eq!(row.len(), COLUMNS.len() + 1, "{route:?}");
        assert_eq!(row[0] == "200", *action == Action::Public, "{route:?} for the forged");
        for (who, cell) in COLUMNS.iter().zip(&row[1..]) {
            let denied = denied(*action, who);
            assert!(denied.is_none_or(|denied| denied == cell), "{route:?} {who}: {cell}");
        }
    }
    let of_any = [matrix.actions(KAFKA), matrix.actions(DINOSAUR)];
    let mut wrong = Vec::new();
    for (route @ (method, path), row) in &rows {
        let exists = actions.contains_key(route);
        assert!(of_any.iter().any(|of| of.contains_key(route)), "{route:?} is not a route");
        // A kind without a route answers as if there were no such path.
        let missing = || {
            let mut row = vec!["401/15".to_owned()];
            row.resize(COLUMNS.len() + 1, "404/7".into());
            row
        };
        let wanted = if exists { row.clone() } else { missing() };
        let found = matrix.row((method, path)).await;
        if found != wanted {
            let cells: String = found.iter().map(|cell| format!("{cell:<8}")).collect();
            wrong.push(format!("{method:<6} {path:<51} {cells}"));
        }
    }
    assert!(wrong.is_empty(), "{}: rows that are otherwise:\n{}", api.name, wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn everyone_is_answered_as_the_table_says_about_kafkas() {
    check(KAFKA).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn everyone_is_answered_as_the_table_says_about_dinosaurs() {
    check(DINOSAUR).await;
}

/// Also those of the fleet's own API and of the compatible services.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_token_every_route_of_the_domain_that_is_not_public_answers_401() {
    let stage = Stage::new().await;
    let rules = stage.routes().rules();
    assert!(rules.len() > 75, "{}", rules.len());
    for rule in rules {
        for token in ["", "garbage"] {
            let answer = stage.call(token, &rule.method, &rule.path, &Value::Null).await;
            let denied = answer.status == 401;
            assert_eq!(denied, rule.action != Action::Public, "{rule:?}: {}", answer.text);
        }
    }
}

/// The action that a route of the fleet's own API declares is all that decides about admins.
#[tokio::test(flavor = "multi_thread")]
async fn an_admin_is_denied_exactly_what_the_declared_action_denies() {
    let stage = Stage::new().await;
    let rules = stage.routes().rules().into_iter();
    let own = rules.filter(|rule| rule.path.starts_with("/api/v1/fleet/"));
    let admins = [Action::AdminRead, Action::AdminWrite, Action::AdminFull];
    let own: Vec<Rule> = own.filter(|rule| admins.contains(&rule.action)).collect();
    assert!(own.len() >= 6, "{own:?}");
    for rule in own {
        for who in ["admin-read", "admin-write", "admin-full"] {
            let answer = stage.call(who, &rule.method, &rule.path, &Value::Null).await;
            let denied = answer.status == 403;
            assert_eq!(denied, !rule.action.allows(&principal(who)), "{who}: {rule:?}");
        }
    }
}

/// Those that write nothing but an audit entry, or that are the same however often they are sent.
const NO_COMMAND: [(&str, &str); 2] = [
    ("POST", "/v1/obs-proxy-verification/{id}"),
    ("POST", "/v1/admin/{plural}/{id}/revoke_tls_certificate"),
];

async fn send_with_key(
    stage: &Stage,
    (who, method, path): (&str, &str, &str),
    key: &str,
    body: &Value,
) -> crate::stage::Answer {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let request = stage.request(who, method, path).header("content-type", "application/json");
    stage.send(request.header("idempotency-key", key).body(body.into()).unwrap()).await
}

/// Sends a request twice: the second time it is answered as the first time, and changes nothing.
async fn is_carried_out_once(stage: &Stage, call: (&str, &str, &str), key: &str, body: &Value) {
    let first = send_with_key(stage, call, key, body).await;
    assert!((200..300).contains(&first.status), "{call:?}: {}", first.text);
    let changes = || async {
        let audit = stage.store.audit(&Default::default(), 10_000).await.unwrap();
        // Those of requests, not of workers.
        let entries = audit.into_iter().map(|entry| entry.entry);
        entries.filter(|it| it.outcome == "done" && !it.request_id.is_empty()).count()
    };
    let before = changes().await;
    let again = send_with_key(stage, call, key, body).await;
    // The id of an operation is that of its request.
    let shown = |answer: &crate::stage::Answer| {
        let mut body = answer.body.clone();
        body.as_object_mut().map(|body| body.remove("operation_id"));
        (answer.status, body)
    };
    assert_eq!(shown(&again), shown(&first), "{call:?}");
    assert_eq!(changes().await, before, "{call:?} was carried out twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idempotency_key_holds_on_every_route_that_writes() {
    let mut matrix = Matrix::new(KAFKA).await;
    let (rows, mut count) = (expected(), 0);
    let writes = |method: &str| ["POST", "PATCH", "DELETE"].contains(&method);
    for (route, action) in matrix.actions(KAFKA) {
        let (method, path) = (route.0.as_str(), route.1.as_str());
        if !writes(method) || NO_COMMAND.contains(&(method, path)) {
            continue;
        }
        let allowed =
            COLUMNS.iter().zip(&rows[&route][1..]).find(|(_, cell)| cell.starts_with('2'));
        let who = allowed.unwrap_or_else(|| panic!("nobody may {action:?}")).0;
        let (path, body) = matrix.request(method, path).await;
        let path = format!("{}{path}", KAFKA.prefix);
        count += 1;
        let key = format!("key-{count}");
        is_carried_out_once(&matrix.stage, (*who, method, &path), &key, &body).await;
    }
    assert!(count >= 10, "{count}");
    // The fleet's own API, and the compatible ones.
    let stage = &matrix.stage;
    let accounts = "/auth/realms/mainstay/apis/service_accounts/v1";
    let made = stage.call("alice", "POST", accounts, &json!({ "name": "x" })).await;
    let account = format!("{accounts}/{}", made.body["id"].as_str().unwrap());
    let clusters = "/api/v1/fleet/clusters";
    for (n, (who, method, path, body)) in [
        ("admin-full", "POST", clusters.to_owned(), json!({ "id": "once" })),
        ("admin-full", "PATCH", format!("{clusters}/once"), json!({ "schedulable": false })),
        ("admin-full", "DELETE", format!("{clusters}/once"), Value::Null),
        ("admin-full", "POST", "/api/v1/fleet/reload".to_owned(), Value::Null),
        ("alice", "POST", accounts.to_owned(), json!({ "name": "once" })),
        ("alice", "POST", format!("{account}/resetSecret"), Value::Null),
        ("alice", "DELETE", account.clone(), Value::Null),
    ]
    .into_iter()
    .enumerate()
    {
        is_carried_out_once(stage, (who, method, &path), &format!("own-{n}"), &body).await;
    }
}
