//! The external systems, each real and behind a network that a test can cut; and their content,
//! compared with what live instances need.

use std::collections::{BTreeMap, BTreeSet};

use aws_sdk_route53::types::{Change, ChangeAction, ChangeBatch, ResourceRecordSet, RrType};
use fleet::Config;
use fleet::model::sso::{agent_client_id, canary_client_id};
use fleet::ports::sso;
use kernel::store::WorkFilter;
use kernel::{Key, ObjectQuery, Store};
use reqwest::Method;
use serde_json::Value;
use testkit::chaos::Proxy;
use testkit::keycloak::Realm;
use testkit::route53::Zone;
use testkit::servers::http::answer;

use crate::ledger;
use crate::stage::{KAFKA, Stage, eventually};

/// A Keycloak realm and a Route 53 zone of this test's own.
pub struct Outside {
    pub realm: Realm,
    pub sso: Proxy,
    pub dns: Proxy,
    zone: Zone,
    route53: aws_sdk_route53::Client,
    /// The clients that existed before.
    others: BTreeSet<String>,
}

/// The host and port of a URL.
fn address(url: &str) -> String {
    url.trim_start_matches("http://").trim_end_matches('/').to_owned()
}

impl Outside {
    /// None without the servers.
    pub async fn open() -> Option<Outside> {
        let (keycloak, moto) = (testkit::keycloak()?, testkit::route53()?);
        let realm = keycloak.own_realm().await;
        let others = clients(&realm).await;
        Some(Outside {
            sso: Proxy::to(&address(keycloak.server.get(""))).await,
            dns: Proxy::to(&address(moto.endpoint())).await,
            zone: moto.zone().await,
            route53: moto.client(),
            realm,
            others,
        })
    }

    /// The systems are compared every second.
    pub fn configure(&self, config: &mut Config) {
        config.timeouts.recheck_s = 1;
        config.domain = self.zone.name.trim_end_matches('.').into();
        config.keycloak = sso::Config {
            url: format!("http://{}", self.sso.address()),
            realm: self.realm.name.clone(),
            client_id: "fleet-manager".into(),
            client_secret: "fleet-manager-secret".into(),
            ..sso::Config::default()
        };
        config.dns.zone_id = self.zone.id.clone();
        config.dns.endpoint = format!("http://{}", self.dns.address());
        config.dns.access_key_id = "test".into();
        config.dns.secret_access_key = "test".into();
    }

    /// The clients that did not exist before.
    pub async fn clients(&self) -> BTreeSet<String> {
        clients(&self.realm).await.difference(&self.others).cloned().collect()
    }

    pub async fn delete_client_by_hand(&self, client: &str) {
        let path = format!("clients?clientId={client}");
        let found = answer(self.realm.admin(Method::GET, &path).await).await;
        let id = found[0]["id"].as_str().expect("it is there");
        answer(self.realm.admin(Method::DELETE, &format!("clients/{id}")).await).await;
    }

    async fn sets(&self) -> Vec<ResourceRecordSet> {
        let list = self.route53.list_resource_record_sets().hosted_zone_id(&self.zone.id);
        let sets = list.send().await.unwrap().resource_record_sets;
        sets.into_iter().filter(|set| set.r#type == RrType::Cname).collect()
    }

    /// Every name of the zone, and its target.
    pub async fn records(&self) -> BTreeMap<String, String> {
        let record = |set: ResourceRecordSet| {
            let plain = |name: &str| name.trim_end_matches('.').to_owned();
            (plain(set.name()), plain(set.resource_records()[0].value()))
        };
        self.sets().await.into_iter().map(record).collect()
    }

    pub async fn delete_records_by_hand(&self) {
        let delete = |set| {
            let change = Change::builder().action(ChangeAction::Delete).resource_record_set(set);
            change.build().unwrap()
        };
        let changes = self.sets().await.into_iter().map(delete).collect();
        let batch = ChangeBatch::builder().set_changes(Some(changes)).build().unwrap();
        let request = self.route53.change_resource_record_sets().hosted_zone_id(&self.zone.id);
        request.change_batch(batch).send().await.unwrap();
    }

    /// Waits until exactly what live instances and clusters need exists outside, and checks the counters.
    pub async fn until_consistent(&self, stage: &Stage) {
        let live = ledger::live(&*stage.store, "kafka").await;
        let query =
            ObjectQuery { kind: Some("cluster".into()), limit: 100, ..ObjectQuery::default() };
        let clusters = stage.store.find(&query).await.unwrap().objects;
        let agents = clusters.iter().map(|cluster| agent_client_id(cluster.key.id()));
        let needed: BTreeSet<String> =
            live.iter().map(|instance| canary_client_id(&instance.id)).chain(agents).collect();
        eventually("exactly the clients that are needed", async || self.clients().await == needed)
            .await;
        let routes = live.iter().flat_map(|instance| instance.status.routes.iter().flatten());
        let needed: BTreeMap<String, String> =
            routes.map(|route| (route.domain.clone(), route.router.clone())).collect();
        eventually("exactly the names that are needed", async || self.records().await == needed)
            .await;
        ledger::check(&*stage.store, &["kafka"]).await;
    }
}

async fn clients(realm: &Realm) -> BTreeSet<String> {
    let all = answer(realm.admin(Method::GET, "clients?max=1000").await).await;
    let id = |client: &Value| client["clientId"].as_str().unwrap().to_owned();
    all.as_array().unwrap().iter().map(id).collect()
}

/// Waits until a step for an instance has failed.
pub async fn until_failing(store: &dyn Store, id: &str) {
    let key = Some(Key::new(KAFKA.name, id));
    let filter = WorkFilter { key, failing: true, ..WorkFilter::default() };
    eventually("a step failed", async || !store.work(&filter, 1).await.unwrap().is_empty()).await;
}
