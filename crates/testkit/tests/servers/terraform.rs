//! Terraform through its JSON.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::terraform::{Project, THINGS};

const APPLY: &[&str] = &["apply", "-json", "-auto-approve"];
const PLAN: &[&str] = &["plan", "-json", "-detailed-exitcode"];

/// What it plans, as pairs of address and action.
async fn planned(project: &Project) -> Vec<(String, String)> {
    let ran = project.run(PLAN).await;
    assert_ne!(ran.code, Some(1), "{ran:#?}");
    let changes = ran.lines.iter().filter(|line| line["type"] == "planned_change");
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let pair =
        |line: &Value| (text(&line["change"]["resource"]["addr"]), text(&line["change"]["action"]));
    changes.map(pair).collect()
}

/// The resources of the state, by their address.
async fn state(project: &Project) -> Vec<Value> {
    let shown = project.expect(&["show", "-json"]).await.remove(0);
    let resources = shown["values"]["root_module"]["resources"].as_array();
    resources.cloned().unwrap_or_default()
}

async fn things(shared: &testkit::terraform::Terraform, configuration: &str) -> Project {
    let project = shared.project();
    project.configure(&format!("{THINGS}{configuration}"));
    project.expect(&["init", "-json"]).await;
    project
}

const TWO: &str = r#"
resource "things_thing" "one" {
  name = "one"
  content = "first"
}
resource "things_thing" "two" {
  name = "two"
  content = "after ${things_thing.one.id}"
}
"#;

#[tokio::test(flavor = "multi_thread")]
async fn what_was_applied_is_in_the_state_and_plans_nothing_more() {
    let Some(shared) = testkit::terraform() else { return };
    let data = "resource \"terraform_data\" \"plain\" { input = 7 }\n\
                output \"seven\" { value = terraform_data.plain.output }\n";
    let project = things(&shared, &format!("{TWO}{data}")).await;
    let lines = project.expect(APPLY).await;
    let done = lines.iter().filter(|line| line["type"] == "apply_complete").count();
    assert_eq!(done, 3, "{lines:#?}");
    let outputs = lines.iter().rfind(|line| line["type"] == "outputs").unwrap();
    assert_eq!(outputs["outputs"]["seven"]["value"], 7);
    assert_eq!(std::fs::read_to_string(project.thing("two")).unwrap(), "after one");
    let addresses: Vec<Value> =
        state(&project).await.iter().map(|resource| resource["address"].clone()).collect();
    assert_eq!(addresses, ["terraform_data.plain", "things_thing.one", "things_thing.two"]);
    assert_eq!(project.run(PLAN).await.code, Some(0));
    project.expect(&["destroy", "-json", "-auto-approve"]).await;
    assert!(!project.thing("one").exists() && state(&project).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_changed_or_removed_is_planned_again() {
    let Some(shared) = testkit::terraform() else { return };
    let project = things(&shared, TWO).await;
    project.expect(APPLY).await;
    std::fs::write(project.thing("one"), "meddled").unwrap();
    std::fs::remove_file(project.thing("two")).unwrap();
    let ran = project.run(PLAN).await;
    assert_eq!(ran.code, Some(2));
    let drifted = ran.lines.iter().filter(|line| line["type"] == "resource_drift").count();
    assert_eq!(drifted, 2, "{ran:#?}");
    let wanted = [("things_thing.one", "update"), ("things_thing.two", "create")];
    let wanted = wanted.map(|(address, action)| (address.into(), action.into()));
    assert_eq!(planned(&project).await, wanted);
    project.expect(APPLY).await;
    assert_eq!(std::fs::read_to_string(project.thing("one")).unwrap(), "first");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_half_made_resource_is_replaced_by_the_next_apply() {
    let Some(shared) = testkit::terraform() else { return };
    let project = things(&shared, TWO).await;
    project.order("one", "half create");
    let ran = project.run(APPLY).await;
    let errors = ran.lines.iter().filter(|line| line["@level"] == "error").count();
    assert!(ran.code == Some(1) && errors == 1, "{ran:#?}");
    let left = state(&project).await;
    assert_eq!(left.len(), 1, "what depends on it was not begun: {left:#?}");
    assert_eq!(left[0]["tainted"], true);
    project.order("one", "");
    project.expect(APPLY).await;
    let whole = state(&project).await;
    assert!(whole.len() == 2 && whole.iter().all(|resource| resource["tainted"].is_null()));

    // One that says that it is done and is not, is seen by the next plan.
    project.order("two", "lose");
    project.configure(&format!("{THINGS}{}", TWO.replace("after", "behind")));
    project.expect(APPLY).await;
    project.order("two", "");
    let lost = [("things_thing.two".to_owned(), "create".to_owned())];
    assert_eq!(planned(&project).await, lost);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_apply_that_was_killed_leaves_no_lock_and_is_made_up_for() {
    let Some(shared) = testkit::terraform() else { return };
    let project = things(&shared, TWO).await;
    project.order("two", "slow 10m");
    let running = project.begin(APPLY);
    let begun = Instant::now();
    while !project.thing("two").exists() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it never began");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let locked = project.run(APPLY).await;
    assert_eq!(locked.code, Some(1), "two at once: {locked:#?}");
    let said = json!(locked.lines).to_string();
    assert!(said.contains("Error acquiring the state lock"), "{said}");
    running.kill().await;
    assert_eq!(std::fs::read_to_string(project.thing("two")).unwrap(), "afte", "half of it");

    // It is there, and the state knows nothing of it.
    project.order("two", "exclusive");
    let refused = project.run(APPLY).await;
    assert!(json!(refused.lines).to_string().contains("already exists"), "{refused:#?}");
    project.expect(&["import", "things_thing.two", "two"]).await;
    project.expect(APPLY).await;
    assert_eq!(std::fs::read_to_string(project.thing("two")).unwrap(), "after one");
    assert_eq!(project.run(PLAN).await.code, Some(0));
}
