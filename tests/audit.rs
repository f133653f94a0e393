//! The audit log is archived with the binary, on both stores, while the verb and the server are
//! killed again and again: no entry is lost, and all of them verify.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rand::Rng;
use serde_json::json;
use support::Plan;
use testkit::postgres::Database;

const KILLS: usize = 12;

fn plan(dir: &Path) -> Plan {
    Plan::new(env!("CARGO_BIN_EXE_e2e"), dir).set("http.rate_per_s", 0)
}

/// Kills the verb at a random moment; `true` if it was faster.
fn interrupt(plan: &Plan, args: &[&str]) -> bool {
    let mut command = plan.command(args);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    std::thread::sleep(Duration::from_millis(rand::rng().random_range(5..120)));
    let done = child.try_wait().unwrap().is_some_and(|status| status.success());
    let _ = child.kill();
    child.wait().unwrap();
    done
}

async fn archive_under_kills(plan: Plan, dir: &Path, database: Option<&str>) {
    let mut server = plan.start().await;
    let client = plan.client();
    assert_eq!(plan.run(&["login", "--local"]).code, 0);
    for n in 0..60 {
        client.create(&json!({ "name": format!("w{n}") })).await;
    }
    let file = |n: usize| dir.join(format!("audit-{n}.jsonl")).display().to_string();
    let noted = plan.run(&["audit", "head"]).stdout.trim().to_owned();
    let last = noted.split_once(':').unwrap().0.parse::<i64>().unwrap();
    for kill in 0..KILLS {
        let path = file(0);
        let args = ["audit", "archive", &path, "--before", "2100-01-01"];
        let done = interrupt(&plan, &args);
        if kill % 3 == 2 {
            server.kill();
            server = plan.start().await;
        }
        if done {
            break;
        }
    }
    let first = file(0);
    let ran = plan.run(&["audit", "archive", &first, "--before", "2100-01-01"]);
    assert_eq!(ran.code, 0, "it completes what is left: {ran:?}");
    let ended = ran.stdout.trim().split_once(':').unwrap().0.parse::<i64>().unwrap();
    assert!(ended >= last, "{ended} of {last}");
    let again = plan.run(&["audit", "archive", &first, "--before", "2100-01-01"]);
    assert_eq!((again.code, &again.stdout), (0, &ran.stdout), "{again:?}");
    // The log goes on, and says what it no longer has.
    client.create(&json!({ "name": "later" })).await;
    let list = plan.run(&["audit", "--limit", "2"]);
    assert!(list.stderr.contains(&format!("entries up to {ended} are in an archive")), "{list:?}");
    let below = plan.run(&["audit", "list", "--after", "0"]);
    assert!(below.code != 0 && below.stderr.contains("was archived"), "{below:?}");
    let verified = plan.run(&["audit", "verify"]);
    assert_eq!(verified.code, 0, "{verified:?}");
    let from = format!("whole from entry {} on", ended + 1);
    assert!(verified.stderr.contains(&from), "{verified:?}");
    // What was noted before is proved by the archive.
    let alone = plan.run(&["audit", "verify", "--noted", &noted]);
    assert!(alone.code != 0 && alone.stderr.contains("--archive"), "{alone:?}");
    let second = file(1);
    let ran = plan.run(&["audit", "archive", &second, "--before", "2100-01-01"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let both = ["audit", "verify", "--noted", &noted, "--archive", &second, "--archive", &first];
    let verified = plan.run(&both);
    assert_eq!(verified.code, 0, "{verified:?}");
    assert!(verified.stderr.contains("verified 2 archives"), "{verified:?}");
    let one = plan.run(&["audit", "verify", "--archive", &second]);
    assert!(one.code != 0 && one.stderr.contains("are in none of the archives"), "{one:?}");
    // A backup of what is left verifies, too.
    let to = dir.join("backup").display().to_string();
    let mut args = vec!["backup", &to];
    args.extend(database.iter().flat_map(|url| ["--database", url]));
    let backup = plan.run(&args);
    assert_eq!(backup.code, 0, "{backup:?}");
    // An archive that was replaced as a whole does not join.
    let text = std::fs::read_to_string(&first).unwrap();
    std::fs::write(&first, text.replacen("widget.create", "widget.delete", 1)).unwrap();
    let tampered = plan.run(&both);
    assert_eq!(tampered.code, 1, "{tampered:?}");
    assert!(tampered.stderr.contains("was edited"), "{tampered:?}");
    server.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_audit_log_is_archived_under_kills_on_sqlite() {
    let dir = tempfile::tempdir().unwrap();
    archive_under_kills(plan(dir.path()), dir.path(), None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_audit_log_is_archived_under_kills_on_postgresql() {
    let Some(database) = Database::create().await else { return };
    let dir = tempfile::tempdir().unwrap();
    let url = database.url();
    archive_under_kills(plan(dir.path()).database(url), dir.path(), Some(url)).await;
}
