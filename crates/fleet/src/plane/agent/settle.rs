//! Makes one instance so, as far as that goes at once, and says how it is.

use kernel::{Error, Result};
use serde_json::{Value, json};

use super::eyes::Eyes;
use super::health::{Health, judge};
use super::told::{PLACEMENT, Told};
use crate::ports::kubernetes::{Cluster, Name, covers};

/// Returns what to report; nothing while it is on its way out.
pub async fn settle(told: &Told, cluster: &Cluster, eyes: &Eyes) -> Result<Option<Value>> {
    if told.deleted {
        return remove(told, cluster, eyes).await;
    }
    match make(told, cluster, eyes).await {
        // What the API server refuses for good will not become better by itself.
        Err(Error::Invalid { message, .. }) => Ok(Some(condition("False", "Error", &message))),
        done => done.map(Some),
    }
}

async fn make(told: &Told, cluster: &Cluster, eyes: &Eyes) -> Result<Value> {
    let pods = Name::new("v1", "Pod", "", "");
    eyes.watch(&pods).await?;
    let namespace = Name::new("v1", "Namespace", "", &told.namespace);
    eyes.watch(&namespace).await?;
    if let Some(found) = eyes.get(&namespace) {
        let going = !found["metadata"]["deletionTimestamp"].is_null();
        let other = found["metadata"]["annotations"][PLACEMENT] != told.placement;
        if other && !going {
            // Another placement of the same instance: it has to go first.
            cluster.delete(&namespace).await?;
        }
        if other || going {
            return Ok(condition("False", "Installing", "what was there before is being removed"));
        }
    }
    let mut names = Vec::new();
    for object in &told.objects {
        let name = Name::of(object)?;
        eyes.watch(&name).await?;
        let is_so = eyes.get(&name).is_some_and(|found| {
            found["metadata"]["deletionTimestamp"].is_null() && covers(&found, object)
        });
        if !is_so {
            let applied = cluster.apply(object).await?;
            eyes.wrote(name.clone(), applied);
        }
        names.push(name);
    }
    let found: Vec<Value> = names.iter().filter_map(|name| eyes.get(name)).collect();
    let complete = found.len() == names.len();
    let health = match complete {
        true => judge(&found, &eyes.pods(&told.id), told.suspended),
        false => Health::Installing(String::new()),
    };
    let mut report = match health {
        Health::Ready => condition("True", "", ""),
        Health::Suspended => condition("False", "Suspended", ""),
        Health::Installing(what) => condition("False", "Installing", &what),
        Health::Broken(why) => condition("False", "Error", &why),
    };
    report["versions"] = told.versions.clone();
    report["routes"] = routes(told, &found).into();
    Ok(report)
}

/// Everything goes, the namespace last. Gone is only what the API server does not know any more.
async fn remove(told: &Told, cluster: &Cluster, eyes: &Eyes) -> Result<Option<Value>> {
    eyes.watch(&Name::new("v1", "Namespace", "", &told.namespace)).await?;
    let mut left = false;
    for object in told.objects.iter().rev() {
        let name = Name::of(object)?;
        match cluster.get(&name).await? {
            Some(found) if found["metadata"]["deletionTimestamp"].is_null() => {
                cluster.delete(&name).await?;
                left = true;
            }
            Some(_) => left = true,
            None => {}
        }
    }
    Ok((!left).then(|| condition("False", "Deleted", "")))
}

/// Where its names should lead: what its objects were given by the cluster, or the cluster's own
/// router.
fn routes(told: &Told, found: &[Value]) -> Vec<Value> {
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
    match routes.is_empty() && !told.router.is_empty() {
        true => vec![json!({ "name": "router", "prefix": "", "router": told.router })],
        false => routes,
    }
}

fn condition(status: &str, reason: &str, message: &str) -> Value {
    let ready = json!({ "type": "Ready", "status": status, "reason": reason, "message": message });
    json!({ "conditions": [ready] })
}
