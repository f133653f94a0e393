//! Surveys of a Prometheus: of a real one with history, and of one that misbehaves.

mod accelerators;
mod attribution;
mod authentication;
mod changing;
mod connections;
mod direct;
mod discovery;
mod faults;
mod history;
mod large;
mod queries;
mod recorded;
mod scan;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use advisor::decide::maths::recommend::Options;
use advisor::model::advice::Advice;
use advisor::model::bulk::BulkRequest;
use advisor::model::datasource::Datasource;
use advisor::model::experiment_name::NameTemplate;
use advisor::ports::prometheus::Prometheus;
use advisor::work::survey::{Phase, Progress, Survey, SurveyRequest, survey};
use jiff::Timestamp;
use kernel::Ambient;
use kernel::outbound::{Config, Outbound};
use serde_json::{Value, json};

fn outbound() -> Outbound {
    Outbound::new(Config::default(), Ambient::system(), Arc::new(|_| ())).unwrap()
}

fn client(datasource: &Datasource) -> Prometheus {
    Prometheus::new("datasource", datasource, &outbound()).unwrap()
}

fn request(filter: Value) -> SurveyRequest {
    let body = json!({ "filter": filter }).to_string();
    SurveyRequest {
        bulk: BulkRequest::parse(body.as_bytes()).unwrap(),
        datasource: "p".into(),
        names: NameTemplate::default(),
        options: Options::default(),
        deadline: Some(Duration::from_secs(120)),
    }
}

/// Surveys, and checks what holds of the progress of every survey.
async fn checked(
    client: &Prometheus,
    request: &SurveyRequest,
    now: Timestamp,
) -> kernel::Result<Survey> {
    let seen: Mutex<Vec<Progress>> = Mutex::new(Vec::new());
    let surveying = survey(client, request, now, |progress| seen.lock().unwrap().push(*progress));
    // Servers and jobs move it between threads.
    fn is_send<T: Send>(future: T) -> T {
        future
    }
    let result = is_send(surveying).await;
    let seen = seen.into_inner().unwrap();
    for two in seen.windows(2) {
        let [a, b] = [two[0], two[1]];
        assert!(a.phase <= b.phase && a.total <= b.total && a.done <= b.done, "{a:?} {b:?}");
        assert!(a.failed <= b.failed && a.queries <= b.queries, "{a:?} {b:?}");
        assert!(b.failed <= b.done && b.done <= b.total, "{b:?}");
    }
    if let (Ok(found), Some(last)) = (&result, seen.last()) {
        let failed = found.advice.iter().filter(|advice| advice.outcome.is_err()).count();
        assert_eq!((last.total, last.done), (found.advice.len(), found.advice.len()));
        assert_eq!(last.failed, failed);
        assert_eq!(last.phase == Phase::Reading, !found.advice.is_empty());
        assert!(found.advice.is_sorted_by_key(|advice| &advice.experiment));
    }
    result
}

fn by_name(found: &Survey) -> BTreeMap<&str, &Advice> {
    let named: BTreeMap<&str, &Advice> =
        found.advice.iter().map(|advice| (advice.experiment.as_str(), advice)).collect();
    assert_eq!(named.len(), found.advice.len(), "each experiment once");
    named
}

fn names(found: &Survey) -> Vec<&str> {
    found.advice.iter().map(|advice| advice.experiment.as_str()).collect()
}

/// The reason why a container has no recommendation.
fn reason<'a>(found: &'a Survey, name: &str) -> Option<&'a str> {
    by_name(found)[name].outcome.as_ref().err().map(String::as_str)
}
