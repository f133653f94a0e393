//! The client of a cluster's agent in a real Keycloak.

use std::sync::Arc;

use fleet::model::cluster::Phase;
use fleet::ports::sso::{Config, Keycloak, Sso as _};
use kernel::Ambient;
use kernel::outbound::Outbound;

use crate::kubernetes::unique;
use crate::stage::{Stage, agent_secret, clusters_file, eventually};

#[tokio::test(flavor = "multi_thread")]
async fn an_agents_client_is_repaired_and_deleted_with_its_cluster() {
    let Some(keycloak) = testkit::keycloak() else { return };
    let realm = keycloak.own_realm().await;
    let (dir, id) = (tempfile::tempdir().unwrap(), unique());
    let entry = format!("clusters:\n- {{name: {id}, cluster_id: {id}, provider_type: agent}}\n");
    let file = clusters_file(dir.path(), &entry);
    let issuer = realm.issuer();
    let config = Config {
        url: issuer.strip_suffix(&format!("/realms/{}", realm.name)).unwrap().into(),
        realm: realm.name.clone(),
        client_id: "fleet-manager".into(),
        client_secret: "fleet-manager-secret".into(),
        ..Config::default()
    };
    let stage = Stage::start(dir.path(), |fleet| {
        fleet.clusters_file = file;
        fleet.keycloak = config.clone();
        fleet.timeouts.recheck_s = 1;
    })
    .await;
    stage.until_cluster(&id, Phase::Waiting).await;
    let (client, secret) = agent_secret(dir.path(), &id);
    let signs_in = async || realm.sign_in_program(&client, &secret).await.0 == 200;
    eventually("it signs in", signs_in).await;
    let outbound = Outbound::new(Default::default(), Ambient::system(), Arc::new(|_| ())).unwrap();
    let admin = Keycloak::new(&config, &outbound).unwrap();
    admin.remove(&client).await.unwrap();
    eventually("it signs in again", signs_in).await;
    stage.delete_cluster(&id, false).await;
    stage.until_gone(&id).await;
    assert!(!signs_in().await, "its client is deleted with it");
}
