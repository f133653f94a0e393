//! An organisation's clusters on the wire.

use serde_json::{Value, json};

use crate::api::kind_api::Call;
use crate::api::public::catalogue;
use crate::model::cluster::{Cluster, limit};
use crate::model::kind::InstanceType;

fn href(call: &Call, cluster: &Cluster) -> String {
    format!("{}/v1/clusters/{}", call.kind.prefix, cluster.id)
}

pub fn one(call: &Call, cluster: &Cluster) -> Value {
    let spec = &cluster.spec;
    let types: Vec<&InstanceType> =
        call.kind.file.types.iter().filter(|of| spec.takes(call.kind.name(), &of.id)).collect();
    let mut shown = json!({
        "id": cluster.id,
        "kind": "Cluster",
        "href": href(call, cluster),
        "access_kafkas_via_private_network": spec.private_network,
        "cluster_id": cluster.id,
        "status": cluster.phase.label(),
    });
    // Unknown values are left out.
    for (name, value) in [("cloud_provider", &spec.cloud_provider), ("region", &spec.region)] {
        if !value.is_empty() {
            shown[name] = json!(value);
        }
    }
    shown["multi_az"] = json!(spec.multi_az);
    let offered: Vec<Value> = types.iter().map(|of| catalogue::instance_type(call, of)).collect();
    shown["supported_instance_types"] = json!({ "instance_types": offered });
    let max: i64 = types.iter().filter_map(|of| limit(cluster, &of.id)).sum();
    let used: i64 = types.iter().map(|of| call.fleet.index.used(&cluster.id, &of.id)).sum();
    shown["capacity_information"] = json!({
        "kafka_machine_pool_node_count": spec.node_count,
        "maximum_kafka_streaming_units": max,
        "remaining_kafka_streaming_units": (max - used).max(0),
        "consumed_kafka_streaming_units": used,
    });
    shown
}

pub fn registration(call: &Call, cluster: &Cluster) -> Value {
    let mut shown = one(call, cluster);
    shown["fleetshard_parameters"] = parameters(call, cluster);
    shown
}

pub fn addon_parameters(call: &Call, cluster: &Cluster) -> Value {
    json!({
        "id": cluster.id,
        "kind": "ClusterAddonParameters",
        "href": format!("{}/addon_parameters", href(call, cluster)),
        "fleetshard_parameters": parameters(call, cluster),
    })
}

/// Returns the parameters with which the agent finds the control plane and authenticates.
fn parameters(call: &Call, cluster: &Cluster) -> Value {
    let parameters = call.fleet.agent_parameters(cluster).into_iter();
    parameters.map(|(id, value)| json!({ "id": id, "value": value })).collect()
}

/// Returns the response to a deletion, which every generated client can parse.
pub fn deleted(call: &Call, cluster: &Cluster) -> Value {
    json!({
        "reason": "Cluster is being deleted",
        "operation_id": call.context.request_id,
        "id": cluster.id,
        "kind": "Cluster",
        "href": href(call, cluster),
        "code": format!("{}-0", call.kind.file.codes),
    })
}
