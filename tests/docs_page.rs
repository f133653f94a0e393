//! The API's documentation as people see it: in a real browser, without a network.

use support::{Plan, wait_for};
use thirtyfour::By;

#[tokio::test(flavor = "multi_thread")]
async fn the_docs_page_shows_the_api_without_a_network() {
    let Some(chromium) = testkit::chromium() else { return };
    let dir = tempfile::tempdir().unwrap();
    let plan = Plan::new(env!("CARGO_BIN_EXE_e2e"), dir.path());
    let _server = plan.start().await;
    let window = chromium.window().await;
    window.goto(format!("{}/api/v1/doc", plan.url())).await.unwrap();
    let mut shown = String::new();
    wait_for("the operations", async || {
        let body = window.find(By::Tag("body")).await.unwrap();
        shown = body.text().await.unwrap_or_default();
        shown.contains("/api/v1/events")
    })
    .await;
    assert!(shown.contains("/api/v1/self/readiness"), "{shown}");
    let log =
        window.execute("return performance.getEntriesByType('resource').map(r => r.name)", vec![]);
    let fetched: Vec<String> = log.await.unwrap().convert().unwrap();
    assert!(fetched.iter().all(|url| url.starts_with(&plan.url())), "{fetched:?}");
    window.quit().await.unwrap();
}
