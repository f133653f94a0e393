//! Reconciles one instance as far as possible without waiting, and reports its status.

use kernel::{Error, Result};
use serde_json::{Value, json};

use super::desired::{DesiredInstance, PLACEMENT};
use super::health::{Health, assess};
use super::object_cache::ObjectCache;
use crate::dataplane::ready_condition;
use crate::ports::kubernetes::{KubeClient, ObjectRef, covers};

/// Returns the report; none while the instance is being deleted.
pub async fn reconcile(
    desired: &DesiredInstance,
    cluster: &KubeClient,
    cache: &ObjectCache,
) -> Result<Option<Value>> {
    if desired.deleted {
        return remove(desired, cluster, cache).await;
    }
    match apply(desired, cluster, cache).await {
        // A retry of an invalid manifest would have the same result.
        Err(Error::Invalid { message, .. }) => {
            Ok(Some(ready_condition("False", "Error", &message)))
        }
        done => done.map(Some),
    }
}

async fn apply(
    desired: &DesiredInstance,
    cluster: &KubeClient,
    cache: &ObjectCache,
) -> Result<Value> {
    let pods = ObjectRef::new("v1", "Pod", "", "");
    cache.watch(&pods).await?;
    let namespace = ObjectRef::new("v1", "Namespace", "", &desired.namespace);
    cache.watch(&namespace).await?;
    if let Some(found) = cache.get(&namespace) {
        let going = !found["metadata"]["deletionTimestamp"].is_null();
        let other = found["metadata"]["annotations"][PLACEMENT] != desired.placement;
        if other && !going {
            // Of another placement of the same instance: it is deleted first.
            cluster.delete(&namespace).await?;
        }
        if other || going {
            return Ok(ready_condition(
                "False",
                "Installing",
                "what was there before is being removed",
            ));
        }
    }
    let mut names = Vec::new();
    for object in &desired.objects {
        let name = ObjectRef::from_manifest(object)?;
        cache.watch(&name).await?;
        let matches = cache.get(&name).is_some_and(|found| {
            found["metadata"]["deletionTimestamp"].is_null() && covers(&found, object)
        });
        if !matches {
            let applied = cluster.apply(object).await?;
            cache.insert_applied(name.clone(), applied);
        }
        names.push(name);
    }
    let found: Vec<Value> = names.iter().filter_map(|name| cache.get(name)).collect();
    let complete = found.len() == names.len();
    let health = if complete {
        assess(&found, &cache.pods(&desired.id), desired.suspended)
    } else {
        Health::Installing(String::new())
    };
    let mut report = match health {
        Health::Ready => ready_condition("True", "", ""),
        Health::Suspended => ready_condition("False", "Suspended", ""),
        Health::Installing(what) => ready_condition("False", "Installing", &what),
        Health::Broken(why) => ready_condition("False", "Error", &why),
    };
    report["versions"] = desired.versions.clone();
    report["routes"] = routes(desired, &found).into();
    Ok(report)
}

/// Deletes everything, the namespace last. It is deleted when the API server has none of it.
async fn remove(
    desired: &DesiredInstance,
    cluster: &KubeClient,
    cache: &ObjectCache,
) -> Result<Option<Value>> {
    cache.watch(&ObjectRef::new("v1", "Namespace", "", &desired.namespace)).await?;
    let mut left = false;
    for object in desired.objects.iter().rev() {
        let name = ObjectRef::from_manifest(object)?;
        match cluster.get(&name).await? {
            Some(found) if found["metadata"]["deletionTimestamp"].is_null() => {
                cluster.delete(&name).await?;
                left = true;
            }
            Some(_) => left = true,
            None => {}
        }
    }
    Ok((!left).then(|| ready_condition("False", "Deleted", "")))
}

/// The targets of its DNS names: the load balancers of its objects, or else the cluster's router.
fn routes(desired: &DesiredInstance, found: &[Value]) -> Vec<Value> {
    let given = found.iter().filter_map(|object| {
        let host = object["status"]["loadBalancer"]["ingress"][0]["hostname"].as_str()?;
        let prefix = object["metadata"]["annotations"]["mainstay.io/route"].as_str();
        Some(json!({
            "name": object["metadata"]["name"],
            "prefix": prefix.unwrap_or_default(),
            "router": host,
        }))
    });
    let routes: Vec<Value> = given.collect();
    if routes.is_empty() && !desired.router.is_empty() {
        vec![json!({ "name": "router", "prefix": "", "router": desired.router })]
    } else {
        routes
    }
}
