//! docs/kinds.md, done as it says: the file is saved, the server started with it, the commands
//! run.

use std::path::Path;

use support::Plan;

/// A fenced block of the page: what stands behind its three ticks, and its text.
fn blocks(page: &str) -> Vec<(String, String)> {
    let mut blocks = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let Some(info) = line.strip_prefix("```").filter(|info| !info.is_empty()) else { continue };
        let text: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        blocks.push((info.to_owned(), text.join("\n") + "\n"));
    }
    blocks
}

#[tokio::test]
async fn the_page_about_kinds_does_what_it_says() {
    kernel::outbound::install_tls();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let page = std::fs::read_to_string(root.join("docs/kinds.md")).unwrap();
    let blocks = blocks(&page);
    let dir = tempfile::tempdir().unwrap();
    for (info, text) in &blocks {
        if let Some(file) = info.strip_prefix("yaml ") {
            let file = dir.path().join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        }
    }
    let commands: Vec<&str> = blocks
        .iter()
        .filter(|(info, _)| info == "console")
        .flat_map(|(_, text)| text.lines())
        .filter_map(|line| line.strip_prefix("$ mainstay "))
        .collect();
    let (server, verbs) = commands.split_first().expect("the page has commands");
    assert_eq!(*server, "server --set fleet.kinds_dir=kinds");
    let kinds = dir.path().join("kinds");
    let plan = Plan::new(env!("CARGO_BIN_EXE_e2e"), dir.path())
        .set("fleet.kinds_dir", kinds.display())
        .set("fleet.local.enabled", true);
    let _server = plan.start().await;
    assert_eq!(plan.run(&["login", "--local"]).code, 0);
    assert!(verbs.len() >= 4, "{verbs:?}");
    for verb in verbs {
        let words: Vec<&str> = verb.split(' ').collect();
        let ran = plan.run(&words);
        assert_eq!(ran.code, 0, "mainstay {verb}: {ran:?}");
        if verb.starts_with("parrot create") {
            let got = plan.run(&["parrot", "get", "polly", "-o", "json"]).json();
            assert_eq!((&got["says"], &got["wings"]), (&"ahoy".into(), &2.into()));
            let at = format!("http://{}/", got["host"].as_str().expect("it has a host"));
            let said = reqwest::get(at).await.unwrap().text().await.unwrap();
            assert!(said.contains("ahoy"), "{said}");
        }
        if verb.starts_with("parrot describe") {
            assert!(ran.stdout.contains("ready"), "{ran:?}");
        }
    }
    let gone = plan.run(&["parrot", "get", "polly"]);
    assert_eq!(gone.code, 5, "{gone:?}");
    assert!(gone.stderr.contains("PARROTS-MGMT-7"), "{gone:?}");
}

#[tokio::test]
async fn a_mistake_in_a_kind_file_is_named_and_the_last_good_one_stays() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let page = std::fs::read_to_string(root.join("docs/kinds.md")).unwrap();
    let good = blocks(&page).into_iter().find(|(info, _)| info.starts_with("yaml ")).unwrap().1;
    let dir = tempfile::tempdir().unwrap();
    let kinds = dir.path().join("kinds");
    std::fs::create_dir_all(&kinds).unwrap();
    let plan = Plan::new(env!("CARGO_BIN_EXE_e2e"), dir.path())
        .set("fleet.kinds_dir", kinds.display())
        .set("fleet.local.enabled", true);
    let _server = plan.start().await;
    assert_eq!(plan.run(&["login", "--local"]).code, 0);
    assert_eq!(plan.run(&["parrot", "list"]).code, 2, "no file declares parrots");
    std::fs::write(kinds.join("parrot.yaml"), &good).unwrap();
    let client = plan.client();
    let reload = async || {
        client.send(reqwest::Method::POST, "/api/v1/fleet/reload", None, None).await.unwrap()
    };
    assert_eq!(reload().await.status, 200);
    assert_eq!(plan.run(&["parrot", "create", "--name", "polly", "--wait"]).code, 0);
    let bad = good.replace("host?: ${endpoint}", "host?: ${endpiont}");
    std::fs::write(kinds.join("parrot.yaml"), bad).unwrap();
    let answer = reload().await;
    assert_eq!(answer.status, 400, "{}", answer.body);
    let said = answer.body.to_string();
    assert!(said.contains("parrot.yaml:") && said.contains("response.host"), "{said}");
    assert_eq!(plan.run(&["parrot", "get", "polly"]).code, 0, "the last good one stays");
    assert_eq!(plan.run(&["parrot", "delete", "polly", "--wait"]).code, 0);
}
