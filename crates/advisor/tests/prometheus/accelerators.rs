//! GPUs and Java virtual machines: detected with three queries for a whole shard, and measured only
//! where they are.

use advisor::model::advice::Advice;
use advisor::model::datasource::Datasource;
use advisor::model::notice::Notice;
use advisor::model::recommendation::{EngineResult, Runtime, Term};
use advisor::model::wire::Element;
use jiff::Timestamp;
use serde_json::{Value, json};
use testkit::prometheus::cluster::{self, Container, Gpu, Jvm, Kind, Load, Workload};
use testkit::prometheus::{Cluster, History};
use testkit::stores;

use super::{by_name, checked, client, request};
use crate::support::server::{Server, config};
use crate::support::small::Small;
use crate::support::stand_in::{Reply, Seen, StandIn};

/// A GPU of a container, and its use: of cores and of bandwidth in percent, and of memory in MiB.
#[derive(Debug, Clone)]
struct Used {
    container: String,
    model: &'static str,
    core: f64,
    memory: f64,
    frame_buffer: f64,
    /// How long after a bucket each sample is.
    late_s: i64,
}

impl Used {
    fn new(container: &str, model: &'static str, core: f64, memory: f64) -> Used {
        let container = container.to_owned();
        Used { container, model, core, memory, frame_buffer: 0.0, late_s: 0 }
    }

    fn series(&self, number: usize, seen: &Seen) -> Option<Value> {
        let query = seen.query();
        let mut labels = json!({ "Hostname": "n", "device": "nvidia0", "modelName": self.model,
            "UUID": format!("GPU-{number}") });
        let value = if query.contains("DCGM_FI_DEV_FB_USED") {
            if !query.contains(&format!("GPU-{number}")) {
                return None;
            }
            labels["GPU_I_PROFILE"] = "".into();
            self.frame_buffer
        } else {
            labels["exported_container"] = self.container.as_str().into();
            labels["exported_namespace"] = "shop".into();
            if query.contains("DCGM_FI_DEV_GPU_UTIL") { self.core } else { self.memory }
        };
        let end_s: i64 = seen.form["end"].parse().unwrap();
        let at = |back: i64| json!([end_s - back * 900 + self.late_s, value.to_string()]);
        let values: Vec<Value> = (0..=16).rev().map(at).collect();
        Some(json!({ "metric": labels, "values": values }))
    }
}

/// A cluster whose containers use these GPUs; `c0` runs Java.
fn reply(small: &Small, gpus: &[Used], seen: &Seen) -> Reply {
    let query = seen.query();
    let series: Vec<Value> = if query.contains("DCGM") {
        gpus.iter().enumerate().filter_map(|(number, gpu)| gpu.series(number, seen)).collect()
    } else if query.contains("(jvm_info{") {
        let labels = json!({ "container": "c0", "namespace": "shop", "version": "21.0.2+13",
            "runtime": "OpenJDK Runtime Environment", "vendor": "Eclipse Adoptium" });
        vec![
            json!({ "metric": labels, "values": [[seen.form["end"].parse::<i64>().unwrap(), "1"]] }),
        ]
    } else {
        return small.reply(seen);
    };
    let data = json!({ "resultType": "matrix", "result": series });
    Reply::Json(json!({ "status": "success", "data": data }))
}

async fn cluster(containers: usize, gpus: Vec<Used>) -> StandIn {
    let small = Small::of(containers);
    StandIn::new(move |seen| reply(&small, &gpus, seen)).await
}

fn cost(advice: &Advice) -> &EngineResult {
    let latest = advice.outcome.as_ref().unwrap().latest.as_ref().unwrap();
    &latest.term(Term::Short).available.as_ref().unwrap().cost
}

fn profile(advice: &Advice) -> Option<String> {
    cost(advice).accelerator.as_ref().map(|profile| profile.resource())
}

#[tokio::test]
async fn of_every_model_the_smallest_profile_that_covers_the_use_is_recommended() {
    const MODELS: [(&str, [&str; 3]); 6] = [
        ("NVIDIA A100-SXM4-40GB", ["1g.5gb", "4g.20gb", "7g.40gb"]),
        ("NVIDIA A100 80GB PCIe", ["1g.10gb", "4g.40gb", "7g.80gb"]),
        ("NVIDIA H100 80GB HBM3", ["1g.10gb", "4g.40gb", "7g.80gb"]),
        ("NVIDIA H100 NVL", ["1g.12gb", "4g.47gb", "7g.94gb"]),
        ("NVIDIA-H100-96GB", ["1g.12gb", "4g.48gb", "7g.96gb"]),
        ("NVIDIA H200", ["1g.18gb", "4g.71gb", "7g.141gb"]),
    ];
    const USES: [(f64, f64); 3] = [(10.0, 10.0), (50.0, 20.0), (100.0, 100.0)];
    // The existing service considers none of these.
    const OTHERS: [&str; 4] = [
        "NVIDIA B200",
        "NVIDIA RTX PRO 5000 Blackwell",
        "NVIDIA RTX PRO 6000 Blackwell Server Edition",
        "Tesla T4",
    ];
    let mut gpus = Vec::new();
    let mut expected: Vec<Option<&str>> = Vec::new();
    let name = |gpus: &Vec<Used>| format!("c{}", gpus.len());
    for (model, profiles) in MODELS {
        for ((core, memory), profile) in USES.into_iter().zip(profiles) {
            gpus.push(Used::new(&name(&gpus), model, core, memory));
            expected.push(Some(profile));
        }
    }
    for model in OTHERS {
        gpus.push(Used::new(&name(&gpus), model, 50.0, 50.0));
        expected.push(None);
    }
    // 10 GiB of memory are in use: more than the smallest profile of this card has.
    let one = Used::new(&name(&gpus), "NVIDIA A100 80GB PCIe", 10.0, 1.0);
    gpus.push(Used { frame_buffer: 10_241.0, ..one });
    expected.push(Some("1g.20gb"));
    // And a container without one.
    let containers = expected.len() + 1;
    expected.push(None);

    let server = cluster(containers, gpus).await;
    let found =
        checked(&client(&Datasource::at(&server.url)), &request(json!({})), Timestamp::now()).await;
    let found = found.unwrap();
    // What a survey without GPUs takes, and two more for the whole shard.
    assert_eq!(found.queries, 1 + 3 + 1 + 17 + 3 + 2);
    let small = Small::of(containers);
    for (number, expected) in expected.iter().enumerate() {
        let advice = by_name(&found)[&*small.experiment(&format!("c{number}"))];
        let expected = expected.map(|profile| format!("nvidia.com/mig-{profile}"));
        assert_eq!(profile(advice), expected, "c{number}");
        let notices = cost(advice).notices;
        assert_eq!(notices.contains(Notice::AcceleratorAvailable), expected.is_some());
        assert!(!notices.contains(Notice::AcceleratorNotSupported), "c{number}");
    }
    // As the wire shows it.
    let shown =
        serde_json::to_value(Element::from(by_name(&found)["p|default|shop|c0(deployment)|c0"]));
    let shown = shown.unwrap();
    let container = &shown["kubernetes_objects"][0]["containers"][0]["recommendations"]["data"];
    let (_, snapshot) = container.as_object().unwrap().iter().next().unwrap();
    let engine = &snapshot["recommendation_terms"]["short_term"]["recommendation_engines"]["cost"];
    let slice = json!({ "amount": 1.0, "format": "cores" });
    assert_eq!(engine["config"]["limits"]["nvidia.com/mig-1g.5gb"], slice);
    assert_eq!(engine["config"]["requests"].get("nvidia.com/mig-1g.5gb"), None);
    assert_eq!(engine["variation"]["limits"].get("nvidia.com/mig-1g.5gb"), None);
}

#[tokio::test]
async fn samples_count_within_five_minutes_of_a_bucket_and_the_first_gpu_that_is_considered() {
    let a100 = "NVIDIA A100-SXM4-40GB";
    let late =
        |container: &str, late_s: i64| Used { late_s, ..Used::new(container, a100, 10.0, 10.0) };
    let gpus = vec![
        late("c0", 299),
        late("c1", -299),
        late("c2", 360),
        Used::new("c3", "Tesla T4", 90.0, 90.0),
        Used::new("c3", "NVIDIA H200", 10.0, 10.0),
        Used::new("c3", a100, 90.0, 90.0),
        Used::new("c4", a100, 0.0, 0.0),
    ];
    let server = cluster(5, gpus).await;
    let found =
        checked(&client(&Datasource::at(&server.url)), &request(json!({})), Timestamp::now()).await;
    let found = found.unwrap();
    let profiles: Vec<Option<String>> = found.advice.iter().map(profile).collect();
    let mig = |profile: &str| Some(format!("nvidia.com/mig-{profile}"));
    assert_eq!(profiles, [mig("1g.5gb"), mig("1g.5gb"), None, mig("1g.18gb"), None]);
}

#[tokio::test]
async fn where_no_gpu_counts_no_more_is_asked() {
    for gpus in [Vec::new(), vec![Used::new("c0", "Tesla T4", 50.0, 50.0)]] {
        let server = cluster(2, gpus).await;
        let now = Timestamp::now();
        let found =
            checked(&client(&Datasource::at(&server.url)), &request(json!({})), now).await.unwrap();
        assert_eq!(found.queries, 1 + 3 + 1 + 17 + 3);
        let has = |part: &str| server.seen().iter().any(|seen| seen.query().contains(part));
        assert!(!has("DCGM_FI_DEV_GPU_UTIL") && !has("DCGM_FI_DEV_FB_USED"));
        let runtimes = |advice: &Advice| advice.outcome.as_ref().unwrap().runtimes.clone();
        let java = Runtime {
            runtime: "OpenJDK Runtime Environment".into(),
            vendor: "Eclipse Adoptium".into(),
            version: "21.0.2+13".into(),
        };
        assert_eq!(runtimes(&found.advice[0]), [java]);
        assert_eq!(runtimes(&found.advice[1]), []);
    }
    // Namespaces as wholes have neither.
    let server = cluster(2, vec![Used::new("c0", "NVIDIA H200", 50.0, 50.0)]).await;
    let mut request = request(json!({}));
    request.bulk.experiment_types = Some([advisor::model::bulk::ExperimentType::Namespace].into());
    checked(&client(&Datasource::at(&server.url)), &request, Timestamp::now()).await.unwrap();
    let detecting = |seen: &Seen| seen.query().contains("DCGM") || seen.query().contains("jvm");
    assert!(!server.seen().iter().any(detecting));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_reads_them_as_a_survey_does() {
    let source = cluster(2, vec![Used::new("c0", "NVIDIA H200", 10.0, 10.0)]).await;
    let fresh = stores::sqlite().await.unwrap();
    let server = Server::start(&fresh, &config(&[("p", &source.url)])).await;
    server.completed(&server.create(json!({ "datasource": "p" })).await.unwrap()).await;
    let experiments = server.experiments().await;
    let figures = |container: &str| {
        let name = Small::of(2).experiment(container);
        experiments[&name].status.figures.clone().unwrap()
    };
    assert!(figures("c0").codes.contains(&128_001), "{:?}", figures("c0"));
    assert_eq!(figures("c0").runtimes, ["OpenJDK Runtime Environment 21.0.2+13"]);
    assert!(!figures("c1").codes.contains(&128_001));
    assert_eq!(figures("c1").runtimes, [""; 0]);
}

/// A real Prometheus, and two workloads with a container of one name.
#[tokio::test(flavor = "multi_thread")]
async fn gpus_and_runtimes_of_a_shared_name_are_those_of_the_owners_of_pods() {
    let Some(shared) = testkit::prometheus() else { return };
    let gpu = |model: &str, load: f64| Gpu {
        model: model.into(),
        cores: Load::steady(load),
        memory_copy: Load::steady(load),
        frame_buffer: Load::steady(0.0),
    };
    let container = |name: &str, with: Option<Gpu>, version: Option<&str>| Container {
        gpu: with,
        jvm: version.map(|version| Jvm {
            runtime: "OpenJDK".into(),
            vendor: "v".into(),
            version: version.into(),
        }),
        ..Container::new(name, Load::steady(0.5), Load::steady(1e8))
    };
    let workloads = vec![
        Workload::new(
            Kind::Deployment,
            "train",
            1,
            vec![container("app", Some(gpu("NVIDIA H200", 50.0)), None)],
        ),
        Workload::new(
            Kind::Deployment,
            "serve",
            1,
            vec![container("app", Some(gpu("NVIDIA H200", 10.0)), Some("21"))],
        ),
        Workload::new(Kind::Deployment, "web", 1, vec![container("web", None, Some("17"))]),
        Workload::new(
            Kind::Deployment,
            "other",
            1,
            vec![container("alone", Some(gpu("NVIDIA A100-40GB", 10.0)), None)],
        ),
    ];
    let all = cluster::Namespace { name: "shop".into(), quota: None, workloads };
    let end_s = Timestamp::now().as_second() / 900 * 900;
    let history = History { end_s, length_s: 7_200, step_s: 120 };
    let own = shared.private_with(&Cluster { seed: 3, namespaces: vec![all] }, history).await;
    let client = client(&Datasource::at(own.server.get("")));
    let end = Timestamp::from_second(end_s).unwrap();
    let found = checked(&client, &request(json!({})), end).await.unwrap();
    // Two shards, by name and by owner: each has GPUs.
    assert_eq!(found.queries, 1 + 3 + 1 + 2 * (17 + 3 + 2));
    let found = by_name(&found);
    let of = |name: &str| {
        let advice = found[&*format!("p|default|shop|{name}")];
        let runtimes = &advice.outcome.as_ref().unwrap().runtimes;
        let versions: Vec<String> = runtimes.iter().map(|one| one.version.clone()).collect();
        (profile(advice), versions.join(","))
    };
    let mig = |profile: &str| Some(format!("nvidia.com/mig-{profile}"));
    assert_eq!(of("train(deployment)|app"), (mig("4g.71gb"), String::new()));
    assert_eq!(of("serve(deployment)|app"), (mig("1g.18gb"), "21".into()));
    assert_eq!(of("web(deployment)|web"), (None, "17".into()));
    assert_eq!(of("other(deployment)|alone"), (mig("1g.5gb"), String::new()));
}
