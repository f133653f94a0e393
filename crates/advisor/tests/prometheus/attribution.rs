//! Pods that change their owner, in a real Prometheus: two workloads have had a pod of one name.

use advisor::model::datasource::Datasource;
use advisor::model::recommendation::Term;
use jiff::Timestamp;
use serde_json::json;
use testkit::prometheus::cluster::{Container, Kind, Load, Namespace, Workload};
use testkit::prometheus::{Cluster, History};

use super::{checked, client, names, request};

const MIB: f64 = 1024.0 * 1024.0;

/// The pod `agent-x0`, of a daemon set or of a replica set, with one container.
fn cluster(kind: Kind, container: &str, cores: f64) -> Cluster {
    let plain = Container::new(container, Load::steady(cores), Load::steady(64.0 * MIB));
    let other = Container::new("app", Load::steady(0.25), Load::steady(MIB));
    let workloads = vec![
        Workload::new(kind, "agent", 1, vec![plain]),
        Workload::new(Kind::StatefulSet, "db", 1, vec![other]),
    ];
    let namespaces = vec![Namespace { name: "shop".into(), quota: None, workloads }];
    Cluster { seed: 3, namespaces }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_changed_its_owner_counts_for_the_one_that_it_has() {
    let Some(shared) = testkit::prometheus() else { return };
    // Within the range of the discovery the pod has had both; or long enough ago for two buckets.
    for (container, ago_s) in [("agent", 600), ("app", 2_400)] {
        let own = shared.private().await;
        let now_s = Timestamp::now().as_second();
        let change_s = now_s - ago_s;
        let before = History { end_s: change_s, length_s: 7_200, step_s: 60 };
        own.write(&cluster(Kind::DaemonSet, container, 0.5), before).await;
        let since = History { end_s: now_s, length_s: ago_s - 60, step_s: 60 };
        own.write(&cluster(Kind::ReplicaSet, container, 0.5), since).await;

        let client = client(&Datasource::at(own.server.get("")));
        let now = Timestamp::from_second(now_s).unwrap();
        let found = checked(&client, &request(json!({})), now).await.unwrap();
        let expected = [
            format!("p|default|shop|agent(replicaset)|{container}"),
            "p|default|shop|db(statefulset)|app".to_owned(),
        ];
        assert_eq!(names(&found), expected);
        let cores: Vec<f64> = found
            .advice
            .iter()
            .map(|advice| {
                let latest = advice.outcome.as_ref().unwrap().latest.as_ref().unwrap();
                let cost = &latest.term(Term::Short).available.as_ref().unwrap().cost;
                assert_eq!(cost.pods_count, 1);
                cost.config.requests.cpu.unwrap()
            })
            .collect();
        // Where names are shared, each is measured by its own pods.
        assert_eq!(cores, [0.5, 0.25]);
    }
}
