//! Every route and every kind of caller: exactly what each is answered.

use std::collections::BTreeMap;

use fleet::api::router::{Route, TABLE};
use fleet::model::kind::Kind;
use serde_json::{Value, json};

use crate::callers::{CALLERS, CLUSTER};
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
/// organisation, or is on the agent's cluster. A kind without a route answers as if it had never
/// been there.
const EXPECTED: &str = "
route            forged  alice   bob     carol   mallory account no-org  read    write   full    agent   other
Root             200     200     200     200     200     200     200     200     200     200     200     200
Version          200     200     200     200     200     200     200     200     200     200     200     200
Openapi          200     200     200     200     200     200     200     200     200     200     200     200
Errors           200     200     200     200     200     200     200     200     200     200     200     200
OneError         200     200     200     200     200     200     200     200     200     200     200     200
SsoProviders     200     200     200     200     200     200     200     200     200     200     200     200
Status           401/15  200     200     200     200     200     200     200     200     200     200     200
List             401/15  200     200     200     200     401/15  401/15  401/15  401/15  401/15  401/15  401/15
Create           401/15  202     202     202     202     401/15  401/15  401/15  401/15  401/15  401/15  401/15
Get              401/15  200     200     200     404/7   401/15  401/15  401/15  401/15  401/15  401/15  401/15
Patch            401/15  200     403/11  200     404/7   401/15  401/15  401/15  401/15  401/15  401/15  401/15
Delete           401/15  202     404/7   202     404/7   401/15  401/15  401/15  401/15  401/15  401/15  401/15
Promote          401/15  202     403/11  202     404/7   401/15  401/15  401/15  401/15  401/15  401/15  401/15
Query            401/15  200     200     200     404/7   401/15  401/15  401/15  401/15  401/15  401/15  401/15
QueryRange       401/15  200     200     200     404/7   401/15  401/15  401/15  401/15  401/15  401/15  401/15
Federate         401/15  200     200     200     404/7   200     401/15  401/15  401/15  401/15  401/15  401/15
Providers        401/15  200     200     200     200     200     200     200     200     200     200     200
Regions          401/15  200     200     200     200     200     200     200     200     200     200     200
InstanceTypes    401/15  200     200     200     200     401/15  401/15  401/15  401/15  401/15  401/15  401/15
Accounts         401/15  200     200     200     200     401/15  401/15  401/15  401/15  401/15  401/15  401/15
AccountCreate    401/15  202     202     202     202     401/15  401/15  401/15  401/15  401/15  401/15  401/15
AccountGet       401/15  200     200     200     404/113 401/15  401/15  401/15  401/15  401/15  401/15  401/15
AccountDelete    401/15  204     403/4   204     403/4   401/15  401/15  401/15  401/15  401/15  401/15  401/15
AccountReset     401/15  200     403/4   200     403/4   401/15  401/15  401/15  401/15  401/15  401/15  401/15
Clusters         401/15  200     200     200     403/120 401/15  401/15  401/15  401/15  401/15  401/15  401/15
ClusterCreate    401/15  403/11  403/11  200     403/120 401/15  401/15  401/15  401/15  401/15  401/15  401/15
ClusterGet       401/15  200     200     200     403/120 401/15  401/15  401/15  401/15  401/15  401/15  401/15
ClusterDelete    401/15  403/11  403/11  202     403/120 401/15  401/15  401/15  401/15  401/15  401/15  401/15
AddonParameters  401/15  403/11  403/11  200     403/120 401/15  401/15  401/15  401/15  401/15  401/15  401/15
AgentConfig      401/15  404/7   404/7   404/7   404/7   404/7   404/7   404/7   404/7   404/7   200     404/7
AgentStatus      401/15  404/7   404/7   404/7   404/7   404/7   404/7   404/7   404/7   404/7   204     404/7
AgentList        401/15  404/7   404/7   404/7   404/7   404/7   404/7   404/7   404/7   404/7   200     404/7
AgentReport      401/15  404/7   404/7   404/7   404/7   404/7   404/7   404/7   404/7   404/7   200     404/7
ObsProxy         401/15  404/7   404/7   404/7   404/7   404/7   404/7   404/7   404/7   404/7   200     403/4
AdminList        401/15  404/7   404/7   404/7   404/7   404/7   404/7   200     200     200     404/7   404/7
AdminGet         401/15  404/7   404/7   404/7   404/7   404/7   404/7   200     200     200     404/7   404/7
AdminPatch       401/15  404/7   404/7   404/7   404/7   404/7   404/7   404/7   200     200     404/7   404/7
AdminDelete      401/15  404/7   404/7   404/7   404/7   404/7   404/7   404/7   404/7   202     404/7   404/7
AdminRevoke      401/15  404/7   404/7   404/7   404/7   404/7   404/7   404/7   404/7   204     404/7   404/7
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
    /// use up is made anew for it.
    async fn request(&mut self, route: Route) -> (String, Value) {
        let plural = self.api.plural;
        let (instance, account, own) =
            (self.instance.clone(), self.account.clone(), self.cluster.clone());
        let none = Value::Null;
        let kafka = self.api == KAFKA;
        let asked = |path: &str| (path.to_owned(), Value::Null);
        match route {
            // The only one above the version.
            Route::Root => asked("/.."),
            Route::Version => asked(""),
            Route::Openapi => asked("/openapi"),
            Route::Errors => asked("/errors"),
            Route::OneError => asked("/errors/7"),
            Route::SsoProviders => asked("/sso_providers"),
            Route::Status => asked("/status"),
            Route::List => asked(&format!("/{plural}")),
            Route::Create => (format!("/{plural}?async=true"), json!({ "name": self.name() })),
            Route::Get => asked(&format!("/{plural}/{instance}")),
            Route::Patch => (format!("/{plural}/{instance}"), json!({ "owner": "alice" })),
            Route::Delete => {
                let id = self.new_instance(none, false).await;
                asked(&format!("/{plural}/{id}?async=true"))
            }
            Route::Promote => {
                let id = if kafka {
                    self.new_instance(json!({ "billing_model": "eval" }), true).await
                } else {
                    instance
                };
                let to = json!({ "desired_kafka_billing_model": "standard" });
                (format!("/{plural}/{id}/promote?async=true"), to)
            }
            Route::Query => asked(&format!("/{plural}/{instance}/metrics/query")),
            Route::QueryRange => {
                asked(&format!("/{plural}/{instance}/metrics/query_range?duration=5&interval=30"))
            }
            Route::Federate => asked(&format!("/{plural}/{instance}/metrics/federate")),
            Route::Providers => asked("/cloud_providers"),
            Route::Regions => asked("/cloud_providers/aws/regions"),
            Route::InstanceTypes => asked("/instance_types/aws/us-east-1"),
            Route::Accounts => asked("/service_accounts"),
            Route::AccountCreate => ("/service_accounts".into(), json!({ "name": self.name() })),
            Route::AccountGet => asked(&format!("/service_accounts/{account}")),
            Route::AccountDelete if kafka => {
                asked(&format!("/service_accounts/{}", self.new_account().await))
            }
            Route::AccountDelete => asked("/service_accounts/x"),
            Route::AccountReset => asked(&format!("/service_accounts/{account}/reset_credentials")),
            Route::Clusters => asked("/clusters"),
            Route::ClusterCreate => ("/clusters".into(), self.cluster_body()),
            Route::ClusterGet => asked(&format!("/clusters/{own}")),
            Route::ClusterDelete if kafka => {
                asked(&format!("/clusters/{}?async=true", self.new_cluster().await))
            }
            Route::ClusterDelete => asked("/clusters/x?async=true"),
            Route::AddonParameters => asked(&format!("/clusters/{own}/addon_parameters")),
            Route::AgentConfig => asked(&format!("/agent-clusters/{CLUSTER}")),
            Route::AgentStatus => (format!("/agent-clusters/{CLUSTER}/status"), json!({})),
            Route::AgentList => asked(&format!("/agent-clusters/{CLUSTER}/{plural}")),
            Route::AgentReport => (format!("/agent-clusters/{CLUSTER}/{plural}/status"), json!({})),
            Route::ObsProxy => asked(&format!("/obs-proxy-verification/{EXTERNAL_ID}")),
            Route::AdminList => asked(&format!("/admin/{plural}")),
            Route::AdminGet => asked(&format!("/admin/{plural}/{instance}")),
            Route::AdminPatch => {
                let id = self.new_instance(none, true).await;
                let body = if kafka {
                    json!({ "max_data_retention_size": "1100Gi" })
                } else {
                    json!({ "dinosaur_version": "1.1.0" })
                };
                (format!("/admin/{plural}/{id}"), body)
            }
            Route::AdminDelete => {
                let id = self.new_instance(none, false).await;
                asked(&format!("/admin/{plural}/{id}?async=true"))
            }
            Route::AdminRevoke => {
                let path = format!("/admin/{plural}/{instance}/revoke_tls_certificate");
                (path, json!({ "revocation_reason": 1 }))
            }
        }
    }

    async fn cell(&mut self, method: &str, route: Route, who: &str) -> String {
        let (path, body) = self.request(route).await;
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

    async fn row(&mut self, method: &str, route: Route) -> Vec<String> {
        let forged = self.cell(method, route, FORGED[0]).await;
        for who in &FORGED[1..] {
            let answer = self.cell(method, route, who).await;
            assert_eq!(answer, forged, "{route:?} as {who:?}, who is nobody");
        }
        let mut row = vec![forged];
        for who in COLUMNS {
            row.push(self.cell(method, route, who).await);
        }
        row
    }
}

fn expected() -> BTreeMap<String, Vec<String>> {
    let mut rows = EXPECTED.trim().lines();
    assert_eq!(rows.next().map(|head| head.split_whitespace().count()), Some(COLUMNS.len() + 2));
    rows.map(|row| {
        let mut cells = row.split_whitespace().map(str::to_owned);
        (cells.next().expect("a route"), cells.collect())
    })
    .collect()
}

#[test]
fn every_caller_has_a_column_and_every_route_a_row() {
    for who in CALLERS {
        let known = [&FORGED[..], &COLUMNS[..], &ELSEWHERE[..]].concat().contains(&who);
        assert!(known, "{who} is in no column");
    }
    let rows = expected();
    let routes: Vec<String> = TABLE.iter().map(|line| format!("{:?}", line.3)).collect();
    for route in &routes {
        assert_eq!(rows.get(route).map(Vec::len), Some(COLUMNS.len() + 1), "{route}");
    }
    for row in rows.keys() {
        assert!(routes.contains(row), "{row} is no route");
    }
}

async fn check(api: Api, kind: &Kind) {
    let mut matrix = Matrix::new(api).await;
    let rows = expected();
    let mut wrong = Vec::new();
    for (method, _, _, route, extra) in TABLE {
        let name = format!("{route:?}");
        let wanted = match extra {
            Some(extra) if !kind.has(*extra) => {
                let mut row = vec!["401/15".to_owned()];
                row.resize(COLUMNS.len() + 1, "404/7".into());
                row
            }
            _ => rows.get(&name).cloned().unwrap_or_default(),
        };
        let found = matrix.row(method, *route).await;
        if found != wanted {
            let cells: String = found.iter().map(|cell| format!("{cell:<8}")).collect();
            wrong.push(format!("{name:<17}{cells}"));
        }
    }
    assert!(wrong.is_empty(), "{}: rows that are otherwise:\n{}", api.name, wrong.join("\n"));
}

fn kind(api: Api) -> Kind {
    let (file, text) = match api {
        KAFKA => ("kafka.yaml", include_str!("../../../../kinds/kafka.yaml")),
        _ => ("dinosaur.yaml", include_str!("../../../../kinds/dinosaur.yaml")),
    };
    Kind::read(file, text).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn everyone_is_answered_as_the_table_says_about_kafkas() {
    check(KAFKA, &kind(KAFKA)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn everyone_is_answered_as_the_table_says_about_dinosaurs() {
    check(DINOSAUR, &kind(DINOSAUR)).await;
}
