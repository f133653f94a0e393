//! Every operation of both contracts is called, with success and with an error, and each answer
//! fits the contract's schema for it.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::callers::CLUSTER;
use crate::contract::{Contract, PARTS};
use crate::prometheus;
use crate::stage::{Answer, Api, DINOSAUR, EXTERNAL_ID, KAFKA, Stage};

/// Operations that anyone may call and that cannot go wrong.
const NEVER_WRONG: [&str; 3] = ["getVersionMetadata", "getErrors", "getSsoProviders"];

/// Where an answer has another status than the contract says: operation, contract, ours.
const OTHER_STATUS: [(&str, &str, u16, u16); 5] = [
    ("public", "createServiceAccount", 200, 202),
    ("private_agent", "updateAgentClusterStatus", 200, 204),
    ("private_admin", "deleteKafkaById", 200, 202),
    ("private_admin", "deleteDinosaurById", 200, 202),
    ("public", "deleteServiceAccountById", 204, 204),
];

/// What our answers have beyond a contract: API, schema's place, and why.
const MORE: [(Api, &str, &str); 1] =
    [(DINOSAUR, ".server_version: the contract has no such field", "useful to clients")];

struct Run {
    stage: Stage,
    api: Api,
    contract: Contract,
    /// Statuses that each operation was answered with.
    answered: BTreeMap<(&'static str, String), Vec<u16>>,
    wrong: Vec<String>,
}

impl Run {
    async fn new(api: Api) -> Option<Run> {
        let contract = Contract::of(api)?;
        let url = prometheus::start().await;
        let stage = Stage::configured(|config| config.prometheus.url = url).await;
        Some(Run { stage, api, contract, answered: BTreeMap::new(), wrong: Vec::new() })
    }

    /// Calls an operation, and holds the answer against the contract.
    async fn call(
        &mut self,
        (part, operation): (&'static str, &str),
        who: &str,
        request: &str,
        body: Value,
        status: u16,
    ) -> Answer {
        let (method, path) = request.split_once(' ').expect("a method and a path");
        let path = format!("{}{path}", self.api.prefix);
        let answer = self.stage.call(who, method, &path, &body).await;
        let what = format!("{operation} as {who}: {method} {path}");
        if answer.status != status {
            let problem = format!("{what}: {}, not {status}: {}", answer.status, answer.text);
            self.wrong.push(problem);
        }
        let operations = self.contract.operations(part);
        let found = operations.iter().find(|(_, _, of)| of["operationId"] == operation);
        let (template, of_method, of) = found.unwrap_or_else(|| panic!("{operation} in {part}"));
        assert!(fits(template, of_method, &path, method), "{what} is not {of_method} {template}");
        self.answered.entry((part, operation.to_owned())).or_default().push(answer.status);
        for problem in self.check(part, operation, of, &answer) {
            self.wrong.push(format!("{what}: {problem}"));
        }
        answer
    }

    fn check(&self, part: &str, operation: &str, of: &Value, answer: &Answer) -> Vec<String> {
        let other = OTHER_STATUS.iter().find(|(in_part, name, _, ours)| {
            (*in_part, *name, *ours) == (part, operation, answer.status)
        });
        let status = other.map_or(answer.status, |(_, _, contract, _)| *contract).to_string();
        let response = of["responses"].get(&status);
        let error = json!({ "$ref": "#/components/schemas/Error" });
        let schema = match response {
            // A deletion is answered with the shape of an error, also where the contract names
            // the instance, which then would have to be made up.
            Some(_) if answer.status == 202 && operation.starts_with("delete") => Some(&error),
            Some(response) => response.get("application/json"),
            None if answer.status >= 400 => Some(&error),
            None => return vec![format!("the contract has no {status}")],
        };
        let plain = response.and_then(|response| response.get("text/plain"));
        match schema {
            Some(_) if answer.text.is_empty() && answer.status == 204 => Vec::new(),
            Some(schema) => {
                let found = self.contract.problems(part, schema, &answer.body).into_iter();
                let more = |problem: &String| {
                    MORE.iter().any(|(api, what, _)| *api == self.api && problem == what)
                };
                found.filter(|problem| !more(problem)).collect()
            }
            None if plain.is_some() && answer.header("content-type").starts_with("text/plain") => {
                Vec::new()
            }
            None if answer.text.is_empty() => Vec::new(),
            None => vec![format!("a body that the contract does not have: {}", answer.text)],
        }
    }

    fn finish(self) {
        let mut wrong = self.wrong;
        for part in PARTS {
            for (path, method, of) in self.contract.operations(part) {
                let id = of["operationId"].as_str().expect("an id").to_owned();
                let statuses = self.answered.get(&(part, id.clone()));
                let statuses = statuses.map(Vec::as_slice).unwrap_or_default();
                if !statuses.iter().any(|status| *status < 400) {
                    wrong.push(format!("{part} {id} ({method} {path}) never succeeded"));
                }
                let never = NEVER_WRONG.contains(&id.as_str());
                if !never && !statuses.iter().any(|status| *status >= 400) {
                    wrong.push(format!("{part} {id} ({method} {path}) never failed"));
                }
            }
        }
        assert!(wrong.is_empty(), "{} problems:\n{}", wrong.len(), wrong.join("\n"));
    }
}

fn fits(template: &str, of_method: &str, path: &str, method: &str) -> bool {
    let path = path.split('?').next().unwrap_or(path);
    let (want, has): (Vec<&str>, Vec<&str>) =
        (template.split('/').collect(), path.split('/').collect());
    let same = |(want, has): (&&str, &&str)| want.starts_with('{') || want == has;
    of_method == method && want.len() == has.len() && want.iter().zip(&has).all(same)
}

const NOBODY: &str = "aaaaaaaaaaaaaaaaaaaa";

/// What both APIs have.
async fn both(run: &mut Run) -> String {
    let api = run.api;
    let title = if api == KAFKA { "Kafka" } else { "Dinosaur" };
    let plural = api.plural;
    let public = |id: &'static str| ("public", id);
    let of = |verb: &str, rest: &str| format!("{verb}{title}{rest}");
    let none = Value::Null;

    run.call(public("getVersionMetadata"), "", "GET ", none.clone(), 200).await;
    run.call(public("getErrors"), "", "GET /errors", none.clone(), 200).await;
    run.call(public("getErrorById"), "", "GET /errors/7", none.clone(), 200).await;
    run.call(public("getErrorById"), "", "GET /errors/9999", none.clone(), 404).await;

    let create = of("create", "");
    let path = format!("POST /{plural}?async=true");
    let made = run.call(("public", &create), "alice", &path, json!({ "name": "demo" }), 202).await;
    let id = made.body["id"].as_str().expect("an id").to_owned();
    run.call(("public", &create), "alice", &path, json!({ "name": "demo" }), 409).await;
    run.call(("public", &create), "alice", &path, json!({ "name": "" }), 400).await;
    run.call(("public", &create), "", &path, json!({ "name": "x" }), 401).await;
    let get = of("get", "ById");
    run.call(("public", &get), "alice", &format!("GET /{plural}/{id}"), none.clone(), 200).await;
    run.stage.agent(api).make_ready(&id).await;
    run.call(("public", &get), "alice", &format!("GET /{plural}/{id}"), none.clone(), 200).await;
    run.call(("public", &get), "alice", &format!("GET /{plural}/{NOBODY}"), none.clone(), 404)
        .await;
    let list = format!("get{title}s");
    run.call(("public", &list), "alice", &format!("GET /{plural}"), none.clone(), 200).await;
    let bad = format!("GET /{plural}?search=nope");
    run.call(("public", &list), "alice", &bad, none.clone(), 400).await;
    let patch = of("update", "ById");
    let path = format!("PATCH /{plural}/{id}");
    run.call(("public", &patch), "alice", &path, json!({ "owner": "bob" }), 200).await;
    run.call(("public", &patch), "alice", &path, json!({ "owner": "alice" }), 403).await;

    for (operation, query, wrong) in [
        ("getMetricsByInstantQuery", "query", format!("{NOBODY}/metrics/query")),
        (
            "getMetricsByRangeQuery",
            "query_range?duration=5&interval=30",
            format!("{id}/metrics/query_range"),
        ),
        ("federateMetrics", "federate", format!("{NOBODY}/metrics/federate")),
    ] {
        let path = format!("GET /{plural}/{id}/metrics/{query}");
        run.call(public(operation), "alice", &path, none.clone(), 200).await;
        let status = if operation == "getMetricsByRangeQuery" { 400 } else { 404 };
        let path = format!("GET /{plural}/{wrong}");
        run.call(public(operation), "alice", &path, none.clone(), status).await;
    }
    let providers = "GET /cloud_providers";
    run.call(public("getCloudProviders"), "alice", providers, none.clone(), 200).await;
    run.call(public("getCloudProviders"), "", providers, none.clone(), 401).await;
    let regions = "GET /cloud_providers/aws/regions";
    run.call(public("getCloudProviderRegions"), "alice", regions, none.clone(), 200).await;
    run.call(public("getCloudProviderRegions"), "", regions, none.clone(), 401).await;
    id
}

/// What agents and admins call.
async fn private(run: &mut Run, id: &str, status: Value, version: Value) {
    let api = run.api;
    let (title, config) = match api {
        KAFKA => ("Kafka", "getKafkaAgent"),
        _ => ("Dinosaur", "getDataPlaneClusterAgentConfig"),
    };
    let plural = api.plural;
    let none = Value::Null;
    let agent = |id: &'static str| ("private_agent", id);
    let cluster = format!("/agent-clusters/{CLUSTER}");
    run.call(agent(config), "agent", &format!("GET {cluster}"), none.clone(), 200).await;
    run.call(agent(config), "alice", &format!("GET {cluster}"), none.clone(), 404).await;
    let path = format!("PUT {cluster}/status");
    let update = agent("updateAgentClusterStatus");
    run.call(update, "agent", &path, status, 204).await;
    run.call(update, "agent", &path, json!([]), 400).await;
    let list = format!("get{title}s");
    let path = format!("GET {cluster}/{plural}");
    run.call(("private_agent", &list), "agent", &path, none.clone(), 200).await;
    run.call(("private_agent", &list), "other-agent", &path, none.clone(), 404).await;
    let report = format!("update{title}ClusterStatus");
    let path = format!("PUT {cluster}/{plural}/status");
    run.call(("private_agent", &report), "agent", &path, json!({}), 200).await;
    run.call(("private_agent", &report), "agent", &path, json!([]), 400).await;

    let admin = format!("/admin/{plural}");
    run.call(("private_admin", &list), "admin-read", &format!("GET {admin}"), none.clone(), 200)
        .await;
    run.call(("private_admin", &list), "alice", &format!("GET {admin}"), none.clone(), 404).await;
    let get = format!("get{title}ById");
    let path = format!("GET {admin}/{id}");
    run.call(("private_admin", &get), "admin-read", &path, none.clone(), 200).await;
    let missing = format!("GET {admin}/{NOBODY}");
    run.call(("private_admin", &get), "admin-read", &missing, none.clone(), 404).await;
    let patch = format!("update{title}ById");
    let path = format!("PATCH {admin}/{id}");
    run.call(("private_admin", &patch), "admin-write", &path, version, 200).await;
    run.call(("private_admin", &patch), "admin-write", &path, json!({}), 400).await;
    let delete = format!("delete{title}ById");
    let path = format!("DELETE {admin}/{id}");
    run.call(("private_admin", &delete), "admin-full", &path, none.clone(), 400).await;
    let path = format!("DELETE {admin}/{id}?async=true");
    run.call(("private_admin", &delete), "admin-full", &path, none.clone(), 202).await;
    let path = format!("DELETE /{plural}/{id}?async=true");
    run.call(("public", &delete), "carol", &path, none.clone(), 202).await;
    run.call(("public", &delete), "mallory", &path, none.clone(), 404).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_of_the_kafka_api_fits_its_contract() {
    let Some(mut run) = Run::new(KAFKA).await else { return };
    let id = both(&mut run).await;
    let public = |id: &'static str| ("public", id);
    let none = Value::Null;
    run.call(public("getSsoProviders"), "", "GET /sso_providers", none.clone(), 200).await;
    let types = "getInstanceTypesByCloudProviderAndRegion";
    run.call(public(types), "alice", "GET /instance_types/aws/us-east-1", none.clone(), 200).await;
    run.call(public(types), "alice", "GET /instance_types/aws/mars", none.clone(), 400).await;

    let eval = json!({ "name": "eval", "billing_model": "eval" });
    let made = run.call(public("createKafka"), "alice", "POST /kafkas?async=true", eval, 202).await;
    let eval = made.body["id"].as_str().unwrap().to_owned();
    run.stage.agent(KAFKA).make_ready(&eval).await;
    let path = format!("POST /kafkas/{eval}/promote?async=true");
    let to = json!({ "desired_kafka_billing_model": "standard" });
    run.call(public("promoteKafka"), "alice", &path, json!({}), 400).await;
    run.call(public("promoteKafka"), "alice", &path, to, 202).await;

    accounts(&mut run).await;
    clusters(&mut run).await;
    let verify = ("private_agent", "verifyObservatoriumProxyRequestValid");
    let path = format!("POST /obs-proxy-verification/{EXTERNAL_ID}");
    run.call(verify, "agent", &path, none.clone(), 200).await;
    run.call(verify, "other-agent", &path, none.clone(), 403).await;
    let revoke = ("private_admin", "revokeKafkaTLSCertificateBKafkaID");
    let path = format!("POST /admin/kafkas/{id}/revoke_tls_certificate");
    run.call(revoke, "admin-full", &path, json!({ "revocation_reason": 1 }), 204).await;
    run.call(revoke, "admin-full", &path, json!({ "revocation_reason": 7 }), 400).await;
    let status = json!({
        "conditions": [{ "type": "Ready", "status": "True" }],
        "capacity": { "standard": { "maxUnits": 1000, "remainingUnits": 999 } },
        "strimzi": [{ "ready": true, "version": "strimzi-cluster-operator.v0.26.0-0",
            "kafkaVersions": ["2.8.1", "2.8.2"], "kafkaIbpVersions": ["2.7", "2.8"] }],
    });
    private(&mut run, &id, status, json!({ "max_data_retention_size": "1100Gi" })).await;
    run.finish();
}

async fn accounts(run: &mut Run) {
    let public = |id: &'static str| ("public", id);
    let none = Value::Null;
    let all = "/service_accounts";
    let create = public("createServiceAccount");
    let body = json!({ "name": "robot", "description": "of use" });
    let made = run.call(create, "alice", &format!("POST {all}"), body, 202).await;
    let id = made.body["id"].as_str().expect("an id").to_owned();
    run.call(create, "alice", &format!("POST {all}"), json!({ "name": "Bad Name" }), 400).await;
    run.call(public("getServiceAccounts"), "alice", &format!("GET {all}"), none.clone(), 200).await;
    let bad = format!("GET {all}?client_id=zzz");
    run.call(public("getServiceAccounts"), "alice", &bad, none.clone(), 400).await;
    let get = public("getServiceAccountById");
    run.call(get, "alice", &format!("GET {all}/{id}"), none.clone(), 200).await;
    run.call(get, "alice", &format!("GET {all}/zzz"), none.clone(), 400).await;
    let reset = public("resetServiceAccountCreds");
    run.call(reset, "alice", &format!("POST {all}/{id}/reset_credentials"), none.clone(), 200)
        .await;
    run.call(reset, "alice", &format!("POST {all}/zzz/reset_credentials"), none.clone(), 400).await;
    let delete = public("deleteServiceAccountById");
    run.call(delete, "bob", &format!("DELETE {all}/{id}"), none.clone(), 403).await;
    run.call(delete, "alice", &format!("DELETE {all}/{id}"), none.clone(), 204).await;
}

async fn clusters(run: &mut Run) {
    let public = |id: &'static str| ("public", id);
    let none = Value::Null;
    let id = "0123456789abcdefghijklmnopqrstuv";
    let register = public("registerEnterpriseOsdCluster");
    let body = json!({
        "cluster_id": id, "cluster_ingress_dns_name": "apps.example.com",
        "kafka_machine_pool_node_count": 3, "access_kafkas_via_private_network": false,
    });
    run.call(register, "bob", "POST /clusters", body.clone(), 403).await;
    run.call(register, "carol", "POST /clusters", body.clone(), 200).await;
    run.call(register, "carol", "POST /clusters", body, 409).await;
    let list = public("getEnterpriseOsdClusters");
    run.call(list, "alice", "GET /clusters", none.clone(), 200).await;
    run.call(list, "", "GET /clusters", none.clone(), 401).await;
    let get = public("getEnterpriseClusterById");
    run.call(get, "alice", &format!("GET /clusters/{id}"), none.clone(), 200).await;
    run.call(get, "alice", "GET /clusters/abc", none.clone(), 404).await;
    let addon = public("getEnterpriseClusterAddonParameters");
    let path = format!("GET /clusters/{id}/addon_parameters");
    run.call(addon, "carol", &path, none.clone(), 200).await;
    run.call(addon, "bob", &path, none.clone(), 403).await;
    let delete = public("deleteEnterpriseClusterById");
    run.call(delete, "carol", &format!("DELETE /clusters/{id}"), none.clone(), 400).await;
    let path = format!("DELETE /clusters/{id}?async=true");
    run.call(delete, "carol", &path, none.clone(), 202).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_of_the_dinosaur_api_fits_its_contract() {
    let Some(mut run) = Run::new(DINOSAUR).await else { return };
    let id = both(&mut run).await;
    let status = ("public", "getServiceStatus");
    run.call(status, "alice", "GET /status", Value::Null, 200).await;
    run.call(status, "", "GET /status", Value::Null, 401).await;
    let of_cluster = json!({
        "conditions": [{ "type": "Ready", "status": "True" }],
        "dinosaurOperator": [{ "ready": true, "version": "dinosaur-operator.v0.1.0-0",
            "dinosaurVersions": ["1.0.0", "1.1.0"] }],
    });
    let version = json!({ "dinosaur_operator_version": "dinosaur-operator.v0.1.0-0" });
    private(&mut run, &id, of_cluster, version).await;
    run.finish();
}
