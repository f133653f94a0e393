//! Chromium through WebDriver.

use thirtyfour::By;

#[tokio::test(flavor = "multi_thread")]
async fn a_page_is_shown_and_changed_also_after_the_driver_was_killed() {
    let Some(shared) = testkit::chromium() else { return };
    let own = shared.private().await;
    for round in ["before", "after"] {
        let window = own.window().await;
        window.goto("data:text/html,<p id=p>as written</p>").await.unwrap();
        let shown = window.find(By::Id("p")).await.unwrap();
        assert_eq!(shown.text().await.unwrap(), "as written");
        let script = "document.getElementById('p').textContent = arguments[0]";
        window.execute(script, vec![round.into()]).await.unwrap();
        assert_eq!(shown.text().await.unwrap(), round);
        if round == "before" {
            own.server.kill().await;
            assert!(window.title().await.is_err(), "its windows go with it");
            own.server.start().await;
        }
        let _ = window.quit().await;
    }
}
