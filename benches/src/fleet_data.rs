//! A fleet to measure with: clusters and instances that are there before the server starts.

use std::collections::BTreeMap;
use std::path::Path;

use fleet::model::cluster::{self, Capacity, Operator, Provider};
use fleet::model::instance::{Instance, Phase, Spec, Status, name_counter};
use kernel::change::Write;
use kernel::{Ambient, Change, Json, Object, Store, Timestamp};

pub const ORG: &str = "bench";

/// The server's quota file: generous.
pub fn quota_file(dir: &Path) -> anyhow::Result<String> {
    let path = dir.join("quota.yaml");
    let text = format!(
        "registered_users_per_organisation:\n  - id: {ORG}\n    any_user: true\n    \
         max_allowed_instances: 100000000\n"
    );
    std::fs::write(&path, text)?;
    Ok(path.display().to_string())
}

fn cluster_object(n: usize, now: Timestamp) -> Object {
    let id = format!("c{n:04}");
    let mut object =
        Object::new(cluster::key(&id), "", "bench", &id, cluster::Phase::Ready.label(), now);
    object.spec = Json::encode(&cluster::Spec {
        provider: Provider::Agent,
        multi_az: true,
        schedulable: true,
        ..cluster::Spec::default()
    });
    let versions = |names: &[&str]| names.iter().map(|v| (*v).to_owned()).collect();
    let operator = Operator {
        version: "strimzi-cluster-operator.v0.26.0-0".into(),
        ready: true,
        components: BTreeMap::from([
            ("kafka".to_owned(), versions(&["2.8.1", "2.8.2"])),
            ("kafkaIbp".to_owned(), versions(&["2.7", "2.8"])),
        ]),
    };
    object.status = Json::encode(&cluster::Status {
        since: now,
        agent_seen_at: Some(now),
        capacity: [("standard".to_owned(), Capacity { max: 100_000_000, remaining: 100_000_000 })]
            .into(),
        operators: [("kafka".to_owned(), vec![operator])].into(),
        ..cluster::Status::default()
    });
    object
}

fn instance(n: usize, clusters: usize, now: Timestamp) -> Instance {
    let id = format!("bench{n:015}");
    let fields = [("reauthentication_enabled".to_owned(), true.into())];
    let versions = [
        ("kafka", "2.8.2"),
        ("kafkaIbp", "2.8"),
        ("strimzi", "strimzi-cluster-operator.v0.26.0-0"),
    ];
    let versions: BTreeMap<String, String> =
        versions.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    let cluster = format!("c{:04}", n % clusters);
    Instance {
        kind: "kafka".into(),
        org: ORG.into(),
        owner: format!("user{}", n % 97),
        name: format!("kafka-{n:06}"),
        phase: Phase::Ready,
        created_at: now,
        updated_at: now,
        revision: 1,
        spec: Spec {
            cloud_provider: "aws".into(),
            region: "us-east-1".into(),
            multi_az: true,
            instance_type: "standard".into(),
            size_id: "x1".into(),
            units: 1,
            billing_model: "standard".into(),
            quota_type: "quota-management-list".into(),
            quota_counter: format!("fleet/quota/kafka/org/{ORG}/standard/standard"),
            fields: BTreeMap::from(fields).into(),
            versions: versions.clone().into(),
            ..Spec::default()
        },
        status: Status {
            since: now,
            capacity_counter: format!("fleet/capacity/{cluster}/standard"),
            cluster_id: cluster,
            placement_id: format!("place{n:015}"),
            namespace: format!("kafka-{id}"),
            host: format!("kafka-{n:06}-{id}.mainstay.localhost"),
            routes_created: true,
            agent_ready: true,
            versions: versions.into(),
            ..Status::default()
        },
        id,
    }
}

/// Fills a store with clusters and ready instances on them.
pub async fn fill(
    store: &dyn Store,
    clusters: usize,
    instances: std::ops::Range<usize>,
) -> anyhow::Result<()> {
    let now = Ambient::system().now();
    let create = |object: Object| Change::from(Write::create(object, "created"));
    if instances.start == 0 {
        for chunk in (0..clusters).collect::<Vec<_>>().chunks(500) {
            let changes = chunk.iter().map(|n| create(cluster_object(*n, now))).collect();
            store.commit_all(changes, now).await?;
        }
    }
    for chunk in instances.collect::<Vec<_>>().chunks(500) {
        let changes = chunk.iter().map(|n| {
            let instance = instance(*n, clusters, now);
            let take = |counter: String, limit| instance.take(counter, 1, limit);
            let takes = vec![
                take(name_counter("kafka", ORG, &instance.name), 1),
                take(instance.spec.quota_counter.clone(), i64::MAX),
                take(instance.status.capacity_counter.clone(), i64::MAX),
            ];
            let write = instance.new_draft().transition("created", now);
            Change { takes, ..Change::from(write) }
        });
        for verdict in store.commit_all(changes.collect(), now).await? {
            verdict?;
        }
    }
    Ok(())
}
