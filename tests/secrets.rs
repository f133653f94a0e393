//! The server with secrets from files, variables and Vault: what it refuses, what it says, and that it
//! never says a secret.

use std::path::Path;

use reqwest::Method;
use serde_json::json;
use support::{Plan, wait_for};

/// Every secret of these tests begins so.
const SECRET: &str = "hunter2";

fn plan(dir: &Path) -> Plan {
    Plan::new(env!("CARGO_BIN_EXE_e2e"), dir)
}

fn prometheus(dir: &Path) -> Plan {
    plan(dir).set("fleet.prometheus.url", "http://127.0.0.1:9")
}

#[test]
fn a_secret_that_cannot_be_read_stops_the_start_and_names_its_key() {
    for (key, value, part) in [
        ("fleet.prometheus.token.file", "/nonexistent/token", "/nonexistent/token cannot be read"),
        ("fleet.prometheus.token.env", "NO_SUCH_VARIABLE", "NO_SUCH_VARIABLE is not set"),
        ("fleet.prometheus.token.vault", "kv/data/a#b", "vault.address"),
        ("fleet.prometheus.tls.ca_file", "/nonexistent/ca", "/nonexistent/ca: No such file"),
        ("database.file", "/nonexistent/url", "/nonexistent/url cannot be read"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let ran = prometheus(dir.path()).set(key, value).refused();
        assert_eq!(ran.code, 2, "{ran:?}");
        let named = key.trim_end_matches(".file").trim_end_matches(".env");
        assert!(ran.stderr.contains(named.trim_end_matches(".vault")), "{named}: {ran:?}");
        assert!(ran.stderr.contains(part), "{part}: {ran:?}");
    }
    let dir = tempfile::tempdir().unwrap();
    let set =
        ["--set", "fleet.ams.token.file=/nonexistent/t", "--set", "fleet.dns.access_key_id.env=X"];
    let ran = plan(dir.path()).run(&[&["config", "check"], &set[..]].concat());
    assert_eq!(ran.code, 2, "{ran:?}");
    for part in
        ["fleet.ams.token.file: /nonexistent/t cannot", "access_key_id.env: the environment"]
    {
        assert!(ran.stderr.contains(part), "{part}: {ran:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vault_that_cannot_be_reached_does_not_stop_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let plan = prometheus(dir.path())
        .set("vault.address", "http://127.0.0.1:9")
        .set("vault.token", "hunter2-root")
        .set("fleet.prometheus.token.vault", "kv/data/a#b");
    let _server = plan.start().await;
    wait_for("the cause in the log", async || {
        let log = plan.log();
        log.lines().any(|line| line.contains("fleet.prometheus.token") && line.contains("refused"))
    })
    .await;
    assert!(!plan.log().contains(SECRET), "{}", plan.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_url_of_the_database_and_the_secret_of_a_client_come_from_files() {
    let Some(database) = testkit::postgres::Database::create().await else { return };
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        std::fs::write(dir.path().join(name), text).unwrap();
        dir.path().join(name).display().to_string()
    };
    let url = file("url", &format!("{}\n", database.url()));
    let secret = file("secret", "hunter2-first");
    let client = format!("[[identity.clients]]\nid = 'robot'\nsecret = {{ file = '{secret}' }}\n");
    std::fs::create_dir_all(dir.path().join("config/mainstay")).unwrap();
    file("config/mainstay/config.toml", &client);
    let plan = plan(dir.path()).set("database.file", &url);
    let _server = plan.start().await;
    let http = testkit::servers::http::client();
    let signs_in = async |secret: &str| {
        let request = http.post(format!("{}/oauth/token", plan.url()));
        let body = format!("grant_type=client_credentials&client_id=robot&client_secret={secret}");
        let request = request.header("content-type", "application/x-www-form-urlencoded");
        testkit::servers::http::try_answer(request.body(body)).await.0 == 200
    };
    assert!(signs_in("hunter2-first").await && !signs_in("hunter2-second").await);
    file("secret", "hunter2-second");
    wait_for("the new secret", async || signs_in("hunter2-second").await).await;
    assert!(!signs_in("hunter2-first").await, "the old one is refused");
    let ran = plan.run(&["config", "show", "--set", &format!("database.file={url}")]);
    assert!(ran.stdout.contains(&url) && ran.stdout.contains(&secret), "{ran:?}");
    assert!(!ran.stdout.contains(SECRET) && !plan.log().contains(SECRET), "{}", plan.log());
    let tables = database.client().await.query("SELECT 1 FROM objects", &[]).await;
    assert!(tables.is_ok(), "the server uses the database: {tables:?}");
}

/// The token of a service account of a real API server, for a real Vault. That Vault has no method
/// `kubernetes` (its build leaves it out); its method `jwt` takes the same request and checks the
/// signature of the token itself.
#[tokio::test(flavor = "multi_thread")]
async fn a_service_account_signs_in_and_no_secret_is_ever_printed() {
    let (Some(vault), Some(kubernetes)) = (testkit::vault(), testkit::kubernetes()) else { return };
    let dir = tempfile::tempdir().unwrap();
    let (mount, admin) = (vault.mount().await, vault.admin());
    let write = async |text: &str| {
        let path = format!("/v1/{}/data/app", mount.name);
        admin.expect(Method::POST, &path, json!({"data": {"token": text}})).await;
    };
    write("hunter2-of-vault").await;
    let namespace = kubernetes.namespace().await;
    let kubeconfig = namespace.account.kubeconfig();
    let jwt = kubeconfig.split("token: ").nth(1).unwrap().split('}').next().unwrap();
    std::fs::write(dir.path().join("jwt"), jwt).unwrap();
    let place = Path::new(kubernetes.server.get("kubeconfig")).parent().unwrap();
    let key = place.ancestors().map(|dir| dir.join("pki/accounts.pub")).find(|path| path.exists());
    let key = std::fs::read_to_string(key.expect("the key of service accounts")).unwrap();
    let method = format!("k8s-{}", mount.name);
    admin.expect(Method::POST, &format!("/v1/sys/auth/{method}"), json!({"type": "jwt"})).await;
    let trusted = json!({"jwt_validation_pubkeys": [key], "jwt_supported_algs": ["ES256"]});
    admin.expect(Method::POST, &format!("/v1/auth/{method}/config"), trusted).await;
    let role = json!({
        "role_type": "jwt",
        "user_claim": "sub",
        "bound_subject": format!("system:serviceaccount:{}:mainstay", namespace.name),
        "bound_audiences": ["https://kubernetes.default.svc.cluster.local"],
        "token_policies": [mount.name],
        "token_ttl": "2s",
        "token_max_ttl": "4s",
    });
    admin.expect(Method::POST, &format!("/v1/auth/{method}/role/app"), role).await;

    std::fs::write(dir.path().join("secret"), "hunter2-of-a-file\n").unwrap();
    let plan = prometheus(dir.path())
        .set("telemetry.level", "mainstay=trace,kernel=trace,fleet=trace")
        .set("vault.address", vault.url())
        .set("vault.auth", "kubernetes")
        .set("vault.mount", &method)
        .set("vault.role", "app")
        .set("vault.jwt_path", dir.path().join("jwt").display())
        .set("vault.refresh_s", 1)
        .set("fleet.prometheus.token.vault", format!("{}/data/app#token", mount.name))
        .set("fleet.agent.observability_access_token.file", dir.path().join("secret").display())
        .set("fleet.terraform.variables.key", "hunter2-plain");
    let server = plan.start().await;
    let reads = || plan.log().matches("read a secret from Vault").count();
    wait_for("the secret is read", async || reads() >= 1).await;
    // Past the longest life of a token: signed in again with the account's token.
    for n in 2..8 {
        write(&format!("hunter2-{n}")).await;
        wait_for("the new secret is read", async || reads() >= n).await;
    }
    std::fs::write(dir.path().join("secret"), "hunter2-of-the-file-again\n").unwrap();
    wait_for("the file is read", async || plan.log().contains("reloaded a changed file")).await;

    let file =
        ["--set", "fleet.ams.token=hunter2-shown", "--set", "fleet.dns.secret_access_key.env=DNS"];
    for format in ["table", "toml", "json", "yaml"] {
        let ran = plan.run(&[&["config", "show", "-o", format], &file[..]].concat());
        assert_eq!(ran.code, 0, "{ran:?}");
        assert!(!ran.stdout.contains(SECRET) && !ran.stderr.contains(SECRET), "{ran:?}");
        assert!(ran.stdout.contains("DNS") && ran.stdout.contains("[redacted]"), "{ran:?}");
    }
    drop(server);
    let log = plan.log();
    assert!(log.contains("x-vault-token"), "requests are logged, with the names of their headers");
    let line = log.lines().find(|line| line.contains(SECRET) || line.contains(jwt));
    assert!(line.is_none(), "the log has a secret: {line:?}");
}
