//! Backup and restore with the binary, on both stores: everything is lost, and comes back with the
//! secrets and tokens that people and programs have.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::{Value, json};
use support::load::Load;
use support::{Client, Plan, wait_for};
use testkit::postgres::Database;

fn plan(dir: &Path) -> Plan {
    kernel::outbound::install_tls();
    Plan::new(env!("CARGO_BIN_EXE_e2e"), dir)
        .set("fleet.local.enabled", true)
        .set("http.rate_per_s", 0)
}

/// Asks the token endpoint.
async fn token(plan: &Plan, fields: &[(&str, &str)]) -> Value {
    let body: Vec<String> = fields.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let request = reqwest::Client::new()
        .post(format!("{}/oauth/token", plan.url()))
        .header("content-type", "application/x-www-form-urlencoded")
        .body(body.join("&"));
    let text = request.send().await.unwrap().text().await.unwrap();
    serde_json::from_str(&text).unwrap()
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_else(|| panic!("no {name} in {value}"))
}

/// What people and programs had before the disaster.
struct Before {
    admin: Client,
    refresh_token: String,
    client: String,
    secret: String,
    widget: String,
}

impl Before {
    async fn make(plan: &Plan) -> Before {
        let admin = plan.client();
        assert_eq!(plan.run(&["login", "--local"]).code, 0);
        let made = plan.run(&["dinosaur", "create", "--name", "kept", "--wait"]);
        assert_eq!(made.code, 0, "{made:?}");
        let robot = json!({"name": "robot"});
        let account = admin.post("/api/kafkas_mgmt/v1/service_accounts", &robot).await.unwrap();
        assert!(account.status < 300, "{}", account.body);
        let offline = plan.run(&["token", "--subject", "tess", "--offline"]);
        let grant = [("grant_type", "refresh_token"), ("refresh_token", offline.stdout.trim())];
        Before {
            widget: admin.create(&json!({"name": "before"})).await,
            refresh_token: text(&token(plan, &grant).await, "refresh_token").to_owned(),
            client: text(&account.body, "client_id").to_owned(),
            secret: text(&account.body, "client_secret").to_owned(),
            admin,
        }
    }

    /// Everything still works.
    async fn check(&self, plan: &Plan) {
        let admin = &self.admin;
        let widget = admin.read(&format!("/api/v1/objects/widget/{}", self.widget)).await;
        assert_eq!(widget["name"], "before", "with the token from before");
        let grant = [
            ("grant_type", "client_credentials"),
            ("client_id", self.client.as_str()),
            ("client_secret", self.secret.as_str()),
        ];
        let tokens = token(plan, &grant).await;
        let robot = Client::new(&plan.url(), text(&tokens, "access_token"));
        robot.read("/api/v1/objects?kind=dinosaur").await;
        let list = admin.read("/api/dinosaurs_mgmt/v1/dinosaurs").await;
        assert_eq!(list["items"][0]["name"], "kept", "{list}");
        let grant = [("grant_type", "refresh_token"), ("refresh_token", &self.refresh_token)];
        let tokens = token(plan, &grant).await;
        assert!(tokens["access_token"].is_string(), "with the session from before: {tokens}");
        let verified = plan.run(&["audit", "verify"]);
        assert_eq!(verified.code, 0, "{verified:?}");
    }
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o777
}

/// Everything of the server is lost but the disk of its local data plane.
fn lose_data(plan: &Plan) {
    let lost = plan.dir.join("lost");
    std::fs::rename(plan.data(), &lost).unwrap();
}

fn bring_back_instances(plan: &Plan) {
    std::fs::rename(plan.dir.join("lost/instances"), plan.data().join("instances")).unwrap();
}

/// Backs up a server under load, loses it, and restores it. `source` and `target` name the store.
async fn lost_and_restored(plan: &Plan, source: &[&str], after: &Plan, target: &[&str]) {
    let mut server = plan.start().await;
    let before = Before::make(plan).await;
    let load = Load::start(std::slice::from_ref(&before.admin), 4);
    wait_for("load", async || load.acknowledged() > 50).await;
    let dir = plan.dir.join("backup");
    let into = dir.display().to_string();
    let run =
        |plan: &Plan, verb: &str, args: &[&str]| plan.run(&[&[verb, into.as_str()], args].concat());
    let made = run(plan, "backup", source);
    assert_eq!(made.code, 0, "{made:?}");
    assert!(made.stderr.contains("verified"), "{made:?}");
    let during = load.acknowledged();
    wait_for("load after the backup", async || load.acknowledged() > during).await;
    load.end().await;
    assert_eq!((mode(&dir), mode(&dir.join("keys"))), (0o700, 0o700));
    for file in ["keys/fleet-key", "keys/issuer-key.pem", "keys/installation-key", "manifest.json"]
    {
        assert_eq!(mode(&dir.join(file)), 0o600, "{file}");
    }
    let again = run(plan, "backup", source);
    assert!(again.code == 2 && again.stderr.contains("not empty"), "{again:?}");
    let full = run(plan, "restore", source);
    assert!(full.code == 6 && full.stderr.contains("not empty"), "{full:?}");
    assert_eq!(server.stop().0.code(), Some(0));

    lose_data(plan);
    damaged_backups_are_refused(after, &dir, target);
    let restored = run(after, "restore", target);
    assert_eq!(restored.code, 0, "{restored:?}");
    for file in ["fleet-key", "issuer-key.pem"] {
        assert_eq!(mode(&after.data().join(file)), 0o600, "{file}");
    }
    bring_back_instances(after);
    server = after.start().await;
    before.check(after).await;
    before.admin.create(&json!({"name": "later"})).await;
    assert_eq!(server.stop().0.code(), Some(0));

    other_keys_are_refused(after).await;
    let _server = after.start().await;
    assert_eq!(after.run(&["dinosaur", "delete", "kept", "--wait"]).code, 0);
}

fn damaged_backups_are_refused(plan: &Plan, dir: &Path, target: &[&str]) {
    let copy = plan.dir.join("damaged");
    let restore = |what: &str| {
        let ran = plan.run(&[&["restore", &copy.display().to_string()], target].concat());
        assert!(ran.code == 1 || ran.code == 2, "{what}: {ran:?}");
        assert!(!plan.data().join("issuer-key.pem").exists(), "{what}: nothing was restored");
        ran.stderr
    };
    let fresh = || {
        let _ = std::fs::remove_dir_all(&copy);
        let copied = std::process::Command::new("cp").arg("-a").arg(dir).arg(&copy).status();
        assert!(copied.unwrap().success());
    };
    fresh();
    let key = copy.join("keys/fleet-key");
    let mut bytes = std::fs::read(&key).unwrap();
    bytes[0] ^= 1;
    std::fs::write(&key, bytes).unwrap();
    assert!(restore("a changed key").contains("keys/fleet-key was changed"));
    fresh();
    std::fs::remove_file(copy.join("manifest.json")).unwrap();
    assert!(restore("an interrupted backup").contains("interrupted"));
    fresh();
    let part = std::fs::read_dir(copy.join("store")).unwrap().next().unwrap().unwrap().path();
    let bytes = std::fs::read(&part).unwrap();
    std::fs::write(&part, &bytes[..bytes.len() / 2]).unwrap();
    assert!(restore("a file that was cut short").contains("was changed"));
}

/// A server with another key, or with none, does not start, and says what to copy.
async fn other_keys_are_refused(plan: &Plan) {
    for (name, setting) in [
        ("fleet-key", "fleet.key_file"),
        ("issuer-key.pem", "identity.signing_key_file"),
        ("installation-key", "key_file"),
    ] {
        let (file, aside) = (plan.data().join(name), plan.dir.join("aside"));
        std::fs::rename(&file, &aside).unwrap();
        let ran = plan.refused();
        assert_eq!(ran.code, 6, "{ran:?}");
        for part in [setting, "is missing", &format!("keys/{name} of a backup")] {
            assert!(ran.stderr.contains(part), "{part} is not in {ran:?}");
        }
        assert!(!file.exists(), "no new key was made");
        let other = tempfile::tempdir().unwrap();
        let stranger = Plan::new(env!("CARGO_BIN_EXE_e2e"), other.path());
        let server = stranger.start().await;
        server.stop();
        std::fs::copy(stranger.data().join(name), &file).unwrap();
        let ran = plan.refused();
        assert_eq!(ran.code, 6, "{ran:?}");
        assert!(ran.stderr.contains("the store was made with"), "{ran:?}");
        std::fs::rename(&aside, &file).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_data_directory_comes_back_with_its_secrets_and_tokens() {
    let dir = tempfile::tempdir().unwrap();
    let plan = plan(dir.path());
    lost_and_restored(&plan, &[], &plan, &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_postgresql_comes_back_with_its_secrets_and_tokens() {
    let (Some(lost), Some(new)) = (Database::create().await, Database::create().await) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let base = plan(dir.path());
    let (before, after) = (base.clone().database(lost.url()), base.database(new.url()));
    let (source, target) = (["--database", lost.url()], ["--database", new.url()]);
    lost_and_restored(&before, &source, &after, &target).await;
    let held = "SELECT (SELECT count(*) FROM queue WHERE state = 2 AND reason LIKE '%restore%'),
         (SELECT last_value > 1::bigint << 50 FROM queue_fence)";
    let row = new.client().await.query_one(held, &[]).await.unwrap();
    assert_eq!((row.get::<_, i64>(0), row.get::<_, bool>(1)), (0, true));
}

/// A table of a later version is in the backup without anyone listing it; someone else's in the
/// database is left out.
#[tokio::test(flavor = "multi_thread")]
async fn tables_are_taken_from_the_catalogue() {
    let dir = tempfile::tempdir().unwrap();
    let plan = plan(dir.path());
    plan.start().await.stop();
    let open = |path: &Path| rusqlite::Connection::open(path.join("mainstay.db")).unwrap();
    open(&plan.data())
        .execute_batch("CREATE TABLE later (x); INSERT INTO later VALUES (7)")
        .unwrap();
    let into = dir.path().join("backup").display().to_string();
    assert_eq!(plan.run(&["backup", &into]).code, 0);
    let target = dir.path().join("new");
    let ran = plan.run(&["restore", &into, "--data-dir", &target.display().to_string()]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let row = open(&target).query_row("SELECT x FROM later", [], |row| row.get::<_, i64>(0));
    assert_eq!(row.unwrap(), 7);

    let (Some(old), Some(new)) = (Database::create().await, Database::create().await) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let plan = self::plan(dir.path()).database(old.url());
    plan.start().await.stop();
    let client = old.client().await;
    client
        .batch_execute("CREATE TABLE foreigner (x int); INSERT INTO foreigner VALUES (7)")
        .await
        .unwrap();
    let into = dir.path().join("backup").display().to_string();
    let made = plan.run(&["backup", &into, "--database", old.url()]);
    assert_eq!(made.code, 0, "{made:?}");
    let ran = plan.run(&["restore", &into, "--database", new.url()]);
    assert!(ran.code == 0 && ran.stderr.contains("left out"), "{ran:?}");
    let other = ["restore", &into, "--data-dir", "/nonexistent/x"];
    let ran = plan.run(&other);
    assert!(ran.code == 6 && ran.stderr.contains("the backup is of PostgreSQL"), "{ran:?}");
}

/// Killed at any moment, a restore leaves the target whole, empty or refused.
#[tokio::test(flavor = "multi_thread")]
async fn a_restore_that_is_killed_leaves_nothing_half() {
    let database = Database::create().await;
    let urls = [None, database.as_ref().map(|database| database.url().to_owned())];
    for (postgres, url) in urls.into_iter().enumerate() {
        if postgres == 1 && url.is_none() {
            continue;
        }
        let dir = tempfile::tempdir().unwrap();
        let with = |plan: Plan, url: &Option<String>| match url {
            Some(url) => plan.database(url),
            None => plan,
        };
        let source = with(plan(dir.path()), &url);
        let server = source.start().await;
        for n in 0..50 {
            source.client().create(&json!({"name": format!("w{n}")})).await;
        }
        server.stop();
        let into = dir.path().join("backup").display().to_string();
        let named: Vec<&str> = url.iter().flat_map(|url| ["--database", url.as_str()]).collect();
        let made = source.run(&[&["backup", &into][..], &named].concat());
        assert_eq!(made.code, 0, "{made:?}");
        let mut ends = std::collections::BTreeMap::<&str, usize>::new();
        for round in 0..12u64 {
            let target = tempfile::tempdir().unwrap();
            let new = match &url {
                Some(_) => Database::create().await,
                None => None,
            };
            let new_url = new.as_ref().map(|new| new.url().to_owned());
            let after = with(plan(target.path()), &new_url);
            let mut args = vec!["restore", &into];
            args.extend(new_url.iter().flat_map(|url| ["--database", url.as_str()]));
            let mut restore =
                after.command(&args).stderr(std::process::Stdio::null()).spawn().unwrap();
            tokio::time::sleep(std::time::Duration::from_millis(round * 8)).await;
            let _ = restore.kill();
            let _ = restore.wait();
            let interrupted = after.data().join("restore-in-progress").exists();
            let end = if interrupted {
                let ran = after.refused();
                assert!(ran.code == 6 && ran.stderr.contains("did not finish"), "{ran:?}");
                "refused"
            } else {
                let empty = match &new {
                    Some(new) => {
                        let sql = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'";
                        // What the killed program left is rolled back by the server.
                        new.client().await.query_one(sql, &[]).await.unwrap().get::<_, i64>(0) == 0
                    }
                    None => !after.data().join("mainstay.db").exists(),
                };
                if !empty {
                    let _server = after.start().await;
                    let found = after.client().read("/api/v1/objects?kind=widget&limit=100").await;
                    assert_eq!(found["objects"].as_array().unwrap().len(), 50);
                }
                if empty { "empty" } else { "whole" }
            };
            *ends.entry(end).or_default() += 1;
        }
        println!(
            "killed restores of {}: {ends:?}",
            url.as_deref().map_or("SQLite", |_| "PostgreSQL")
        );
        assert!(!ends.is_empty());
    }
}

#[tokio::test]
async fn a_restore_that_was_interrupted_is_never_served() {
    let dir = tempfile::tempdir().unwrap();
    let plan = plan(dir.path());
    plan.start().await.stop();
    std::fs::write(plan.data().join("restore-in-progress"), "").unwrap();
    let ran = plan.refused();
    assert!(ran.code == 6 && ran.stderr.contains("did not finish"), "{ran:?}");
    let ran = plan.run(&["restore", &dir.path().join("any").display().to_string()]);
    assert!(ran.code == 6 && ran.stderr.contains("empty the directory"), "{ran:?}");
}

#[tokio::test]
async fn a_key_that_was_removed_on_purpose_is_made_again_once_that_is_accepted() {
    let dir = tempfile::tempdir().unwrap();
    let plan = plan(dir.path());
    plan.start().await.stop();
    let old = plan.token();
    std::fs::remove_file(plan.data().join("issuer-key.pem")).unwrap();
    let ran = plan.refused();
    assert!(ran.stderr.contains("mainstay migrate --accept-keys"), "{ran:?}");
    assert_eq!(plan.run(&["migrate", "--accept-keys"]).code, 0);
    let _server = plan.start().await;
    let answer = Client::new(&plan.url(), &old).get("/api/v1/objects?kind=widget").await.unwrap();
    assert_eq!(answer.status, 401, "old tokens ended");
    plan.client().create(&json!({"name": "new"})).await;
}

/// A second replica that made a key of its own is refused before it serves anybody.
#[tokio::test]
async fn a_replica_with_another_key_is_refused() {
    let Some(database) = Database::create().await else { return };
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let first = plan(one.path()).database(database.url());
    let _server = first.start().await;
    let ran = plan(two.path()).database(database.url()).refused();
    assert!(ran.code == 6 && ran.stderr.contains("another replica"), "{ran:?}");
}
