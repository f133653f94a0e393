//! The systems outside, each real and behind a network that a test can cut; and what is left in
//! them, held against what live instances need.

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

/// A Keycloak's realm and a Route 53's zone of this test's own.
pub struct Outside {
    pub realm: Realm,
    pub sso: Proxy,
    pub dns: Proxy,
    zone: Zone,
    route53: aws_sdk_route53::Client,
    /// The clients that were there before.
    others: BTreeSet<String>,
}

/// Where a URL leads.
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

    /// What is outside is compared every second.
    pub fn configure(&self, config: &mut Config) {
        config.timeouts.recheck_s = 1;
        config.domain = self.zone.name.trim_end_matches('.').into();
        config.keycloak = sso::Config {
            url: format!("http://{}", self.sso.address()),
            realm: self.realm.name.clone(),
            client_id: "fleet-manager".into(),
            client_secret: "fleet-manager-secret".into(),
        };
        config.dns.zone_id = self.zone.id.clone();
        config.dns.endpoint = format!("http://{}", self.dns.address());
        config.dns.access_key_id = "test".into();
        config.dns.secret_access_key = "test".into();
    }

    /// The clients that were not there before.
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

    /// Every name of the zone, and where it leads.
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

    /// Exactly what live instances and clusters need is there, comes to be there, and is counted.
    pub async fn comes_right(&self, stage: &Stage) {
        let live = ledger::live(&*stage.store, "kafka").await;
        let find =
            ObjectQuery { kind: Some("cluster".into()), limit: 100, ..ObjectQuery::default() };
        let clusters = stage.store.find(&find).await.unwrap().objects;
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
        ledger::is_right(&*stage.store, &["kafka"]).await;
    }
}

async fn clients(realm: &Realm) -> BTreeSet<String> {
    let all = answer(realm.admin(Method::GET, "clients?max=1000").await).await;
    let id = |client: &Value| client["clientId"].as_str().unwrap().to_owned();
    all.as_array().unwrap().iter().map(id).collect()
}

/// Waits until someone has tried to do something for an instance, and could not.
pub async fn until_it_fails(store: &dyn Store, id: &str) {
    let key = Some(Key::new(KAFKA.name, id));
    let filter = WorkFilter { key, failing: true, ..WorkFilter::default() };
    eventually("it was tried in vain", async || !store.work(&filter, 1).await.unwrap().is_empty())
        .await;
}
