//! Kubernetes through kube.

use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::wait::{Condition, await_condition, conditions};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, CustomResource, ResourceExt};
use serde::{Deserialize, Serialize};
use serde_json::json;
use testkit::chaos::Proxy;

#[derive(CustomResource, Clone, Debug, Serialize, Deserialize)]
#[kube(group = "mainstay.test", version = "v1", kind = "Widget", namespaced)]
#[kube(status = "WidgetStatus", schema = "disabled")]
struct WidgetSpec {
    size: i64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct WidgetStatus {
    phase: String,
}

const TIMEOUT: Duration = Duration::from_secs(60);

async fn wait_for<K>(api: &Api<K>, name: &str, condition: impl Condition<K>) -> Option<K>
where
    K: kube::Resource + Clone + std::fmt::Debug + Send + for<'a> Deserialize<'a> + 'static,
{
    let met = await_condition(api.clone(), name, condition);
    tokio::time::timeout(TIMEOUT, met).await.unwrap_or_else(|_| panic!("{name}: in vain")).unwrap()
}

fn job(name: &str, image: &str) -> Job {
    let container = json!({"name": "main", "image": image});
    let pod = json!({"spec": {"restartPolicy": "Never", "containers": [container]}});
    let spec = json!({"backoffLimit": 0, "template": pod});
    serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap()
}

fn config_map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}, "data": {"n": "7"}})).unwrap()
}

async fn widget(client: &Client, name: &str, size: i64) -> Result<Widget, kube::Error> {
    let widgets: Api<Widget> = Api::default_namespaced(client.clone());
    let by = PatchParams::apply("mainstay");
    widgets.patch(name, &by, &Patch::Apply(Widget::new(name, WidgetSpec { size }))).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_custom_resource_has_rules_and_a_status_of_its_own() {
    let Some(shared) = testkit::kubernetes() else { return };
    let namespace = shared.namespace().await;
    let client = namespace.account.client().await;
    let widgets: Api<Widget> = Api::default_namespaced(client.clone());
    let refused = widget(&client, "first", 0).await.unwrap_err();
    assert!(refused.to_string().contains("size must be above 0"), "{refused}");
    widget(&client, "first", 3).await.unwrap();
    let status = json!({"status": {"phase": "Ready"}, "spec": {"size": 9}});
    widgets.patch_status("first", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    let read = widgets.get("first").await.unwrap();
    assert_eq!((read.spec.size, read.status.unwrap().phase), (3, "Ready".into()));

    // Another owner of the same field gets a conflict.
    let other = Patch::Apply(Widget::new("first", WidgetSpec { size: 4 }));
    let conflict = widgets.patch("first", &PatchParams::apply("other"), &other).await.unwrap_err();
    assert!(matches!(conflict, kube::Error::Api(status) if status.code == 409));
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_end_well_or_badly_or_not_at_all_as_their_image_says() {
    let Some(shared) = testkit::kubernetes() else { return };
    let namespace = shared.namespace().await;
    let client = namespace.account.client().await;
    let jobs: Api<Job> = Api::default_namespaced(client.clone());
    let create = PostParams::default();
    for outcome in ["ok", "fail", "hang"] {
        jobs.create(&create, &job(outcome, &format!("mock:{outcome}"))).await.unwrap();
    }
    let mut steered = job("steered", "any");
    let annotations = json!({"test.kwok/outcome": "fail", "test.kwok/exit-code": "120"});
    let template = &mut steered.spec.as_mut().unwrap().template;
    template.metadata = serde_json::from_value(json!({"annotations": annotations})).unwrap();
    jobs.create(&create, &steered).await.unwrap();

    wait_for(&jobs, "ok", conditions::is_job_completed()).await;
    for failing in ["fail", "steered"] {
        wait_for(&jobs, failing, has("Failed")).await;
    }
    let pods: Api<Pod> = Api::default_namespaced(client);
    let pod_of = async |job: &str| {
        let mut list = pods.list(&Default::default()).await.unwrap().items;
        list.retain(|pod| pod.labels().get("job-name").is_some_and(|name| name == job));
        list.remove(0)
    };
    let status = pod_of("steered").await.status.unwrap().container_statuses.unwrap().remove(0);
    assert_eq!(status.state.unwrap().terminated.unwrap().exit_code, 120);
    let hanging = pod_of("hang").await;
    wait_for(&pods, &hanging.name_any(), conditions::is_pod_running()).await;
    assert!(
        !conditions::is_job_completed()
            .matches_object(jobs.get_opt("hang").await.unwrap().as_ref())
    );
}

fn has(kind: &'static str) -> impl Condition<Job> {
    move |job: Option<&Job>| {
        let conditions = job.and_then(|job| job.status.as_ref()?.conditions.as_ref());
        conditions.is_some_and(|all| all.iter().any(|one| one.type_ == kind))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_object_owns_goes_with_it() {
    let Some(shared) = testkit::kubernetes() else { return };
    let namespace = shared.namespace().await;
    let client = namespace.account.client().await;
    let owner = widget(&client, "owner", 1).await.unwrap();
    let jobs: Api<Job> = Api::default_namespaced(client.clone());
    let mut owned = job("owned", "mock:hang");
    owned.metadata.owner_references =
        Some(vec![kube::Resource::controller_owner_ref(&owner, &()).unwrap()]);
    let uid = jobs.create(&PostParams::default(), &owned).await.unwrap().uid().unwrap();
    let widgets: Api<Widget> = Api::default_namespaced(client);
    widgets.delete("owner", &DeleteParams::default()).await.unwrap();
    wait_for(&jobs, "owned", conditions::is_deleted(&uid)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_limited_account_is_refused_everywhere_else() {
    let Some(shared) = testkit::kubernetes() else { return };
    let (own, other) = (shared.namespace().await, shared.namespace().await);
    let client = own.account.client().await;
    let here: Api<ConfigMap> = Api::default_namespaced(client.clone());
    here.create(&PostParams::default(), &config_map("mine")).await.unwrap();
    let there: Api<ConfigMap> = Api::namespaced(client.clone(), &other.name);
    let refused = there.create(&PostParams::default(), &config_map("mine")).await.unwrap_err();
    assert!(matches!(refused, kube::Error::Api(status) if status.code == 403));
    let everywhere: Api<Pod> = Api::all(client);
    let refused = everywhere.list(&Default::default()).await.unwrap_err();
    assert!(matches!(refused, kube::Error::Api(status) if status.code == 403));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_watch_continues_when_the_connection_is_back() {
    let Some(shared) = testkit::kubernetes() else { return };
    let namespace = shared.namespace().await;
    let proxy = Proxy::to(shared.address()).await;
    let watched = namespace.account.via(proxy.address()).client().await;
    let seen = watcher(Api::<Widget>::default_namespaced(watched), watcher::Config::default());
    let mut seen = std::pin::pin!(seen.default_backoff().applied_objects());
    let client = namespace.account.client().await;
    widget(&client, "before", 1).await.unwrap();
    // What cannot be reached is an item of the stream as well.
    let mut next = async |name: &str| {
        let is_it =
            |object: &Result<Widget, _>| object.as_ref().is_ok_and(|it| it.name_any() == name);
        let until = async { while !is_it(&seen.next().await.unwrap()) {} };
        tokio::time::timeout(TIMEOUT, until).await.unwrap_or_else(|_| panic!("{name} is unseen"));
    };
    next("before").await;
    proxy.cut();
    widget(&client, "meanwhile", 1).await.unwrap();
    proxy.mend();
    next("meanwhile").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_written_is_there_after_a_kill_and_controllers_go_on() {
    let Some(shared) = testkit::kubernetes() else { return };
    let crds = tempfile::tempdir().unwrap();
    let gadget = include_str!("../../../servers/assets/kubernetes/widget.yaml")
        .replace("widget", "gadget")
        .replace("Widget", "Gadget")
        .replace("wdg", "gdg");
    std::fs::write(crds.path().join("gadget.yaml"), gadget).unwrap();
    let own = shared.private(&[("crds", crds.path().to_str().unwrap())]).await;
    let namespace = own.namespace().await;
    let client = namespace.account.client().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    maps.create(&PostParams::default(), &config_map("kept")).await.unwrap();
    let jobs: Api<Job> = Api::default_namespaced(client.clone());
    jobs.create(&PostParams::default(), &job("begun", "mock:ok")).await.unwrap();

    own.server.kill().await;
    maps.get("kept").await.unwrap_err();
    own.server.start().await;
    let kept = maps.get("kept").await.unwrap();
    assert_eq!(kept.data.unwrap()["n"], "7");
    wait_for(&jobs, "begun", conditions::is_job_completed()).await;

    let group = kube::core::GroupVersionKind::gvk("mainstay.test", "v1", "Gadget");
    let (gadgets, _) = kube::discovery::pinned_kind(&client, &group).await.unwrap();
    assert_eq!(gadgets.plural, "gadgets");

    own.server.pause().await;
    let ask = tokio::time::timeout(Duration::from_millis(300), maps.get("kept")).await;
    assert!(ask.is_err(), "it answers although it stands still");
    own.server.resume().await;
    maps.get("kept").await.unwrap();
}
