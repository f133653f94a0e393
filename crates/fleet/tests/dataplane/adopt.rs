//! The server comes and goes; the instances stay.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use fleet::dataplane::local::{State, Supervisor};
use kernel::Ambient;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::program::{line, script, spec};
use crate::support::{Plane, edit_record, eventually, get, is_alive, kill, record};

#[tokio::test]
async fn the_next_server_adopts_what_runs_and_watches_over_it() {
    let plane = Plane::open().await;
    plane.supervisor.run(spec("a", "http")).await.unwrap();
    let (port, facts) = plane.until_ready("a").await;
    let pid = plane.pid("a");
    let plane = plane.again(async |_| assert_eq!(get(port, "/").await, "This is a.\n")).await;
    // Known as ready at once: nobody who asks sees it fall back.
    assert_eq!(plane.supervisor.state("a"), State::Ready { port, facts });
    assert_eq!(plane.pid("a"), pid);
    plane.supervisor.run(spec("a", "http")).await.unwrap();
    assert_eq!(plane.pid("a"), pid);
    assert_eq!(plane.kill_and_wait("a").await.0, port);
    plane.close().await;
}

#[tokio::test]
async fn what_died_while_the_server_was_away_is_started_again() {
    let plane = Plane::open().await;
    plane.supervisor.run(spec("a", "http")).await.unwrap();
    let (port, _) = plane.until_ready("a").await;
    let pid = plane.pid("a");
    let plane = plane
        .again(async |_| {
            kill("-KILL", pid);
            eventually("it is dead", || (!is_alive(pid)).then_some(())).await;
        })
        .await;
    assert_eq!(plane.until_ready("a").await.0, port);
    assert_ne!(plane.pid("a"), pid);
    assert_eq!(plane.record("a")["restarts"], 1);
    plane.close().await;
}

#[tokio::test]
async fn instances_outlive_a_killed_server() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Command::new(std::env::current_exe().unwrap())
        .args(["program::run", "--exact", "--ignored", "--nocapture"])
        .env("PROGRAM", "server")
        .env("DIR", dir.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let path = dir.path().join("orphan.json");
    let pid = eventually("the instance is ready", || {
        let record = path.exists().then(|| record(dir.path(), "orphan"))?;
        let ready = record["attempt"]["ready"] == true;
        ready.then(|| record["attempt"]["process"]["pid"].as_u64())?
    })
    .await;
    server.kill().unwrap();
    server.wait().unwrap();
    let plane = Plane::open_in(dir.path().to_owned()).await;
    let (port, _) = plane.until_ready("orphan").await;
    assert_eq!(u64::from(plane.pid("orphan")), pid);
    assert_eq!(get(port, "/").await, "This is orphan.\n");
    // It is not our child, and yet its end is noticed.
    plane.kill_and_wait("orphan").await;
    plane.close().await;
}

#[tokio::test]
async fn a_stranger_with_a_number_of_ours_is_left_alone() {
    let plane = Plane::open().await;
    plane.supervisor.run(spec("a", "http")).await.unwrap();
    plane.until_ready("a").await;
    let pid = plane.pid("a");
    let stranger = Stranger::start();
    let number = stranger.0.id();
    let plane = plane
        .again(async |root| {
            kill("-KILL", pid);
            eventually("it is dead", || (!is_alive(pid)).then_some(())).await;
            reuse(root, number);
        })
        .await;
    plane.until_ready("a").await;
    assert_ne!(plane.pid("a"), number);
    let plane = plane.again(async |root| reuse(root, number)).await;
    plane.close().await;
    assert!(is_alive(number));
}

/// As if the kernel had given the number to someone else since.
fn reuse(root: &Path, number: u32) {
    edit_record(root, "a", |record| {
        let process = &mut record["attempt"]["process"];
        process["pid"] = json!(number);
        let born = process["born"].as_str().unwrap();
        process["born"] = json!(format!("{}/1", born.split_once('/').unwrap().0));
    });
}

struct Stranger(Child);

impl Stranger {
    fn start() -> Stranger {
        use std::os::unix::process::CommandExt;
        Stranger(Command::new("sleep").arg("300").process_group(0).spawn().unwrap())
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn a_process_of_another_birth_than_recorded_is_not_adopted_but_known_by_its_mark() {
    let plane = Plane::open().await;
    plane.supervisor.run(spec("a", "http")).await.unwrap();
    let (port, _) = plane.until_ready("a").await;
    let pid = plane.pid("a");
    let plane = plane
        .again(async |root| {
            edit_record(root, "a", |record| record["attempt"]["process"]["born"] = json!("x/1"));
        })
        .await;
    assert_eq!(plane.until_ready("a").await.0, port, "the port was free again");
    assert_ne!(plane.pid("a"), pid);
    assert!(!is_alive(pid));
    plane.close().await;
}

#[tokio::test]
async fn a_server_that_died_between_mark_and_number_leaves_no_second_process() {
    let plane = Plane::open().await;
    plane.supervisor.run(spec("a", "http")).await.unwrap();
    plane.until_ready("a").await;
    let pid = plane.pid("a");
    let plane = plane
        .again(async |root| {
            edit_record(root, "a", |record| record["attempt"]["process"] = json!(null));
        })
        .await;
    plane.until_ready("a").await;
    assert!(!is_alive(pid));
    plane.close().await;
}

#[tokio::test]
async fn a_half_removed_instance_is_removed_by_the_next_server() {
    let plane = Plane::open().await;
    plane.supervisor.run(spec("a", "http")).await.unwrap();
    plane.until_ready("a").await;
    let pid = plane.pid("a");
    let plane = plane
        .again(async |root| edit_record(root, "a", |record| record["intent"] = json!("remove")))
        .await;
    eventually("it is forgotten", || plane.supervisor.ids().is_empty().then_some(())).await;
    assert!(!is_alive(pid));
    plane.close().await;
}

#[tokio::test]
async fn a_damaged_record_ends_what_ran_and_can_be_run_or_removed() {
    let plane = Plane::open().await;
    for id in ["damaged-one", "damaged-two"] {
        plane.supervisor.run(script(id, "echo up; sleep 60", line("up"))).await.unwrap();
        plane.until_ready(id).await;
    }
    let pids = ["damaged-one", "damaged-two"].map(|id| plane.pid(id));
    let plane = plane
        .again(async |root| {
            for id in ["damaged-one", "damaged-two"] {
                std::fs::write(root.join(format!("{id}.json")), "{\"wanted\":").unwrap();
            }
        })
        .await;
    plane.supervisor.run(spec("damaged-one", "http")).await.unwrap();
    plane.until_ready("damaged-one").await;
    plane.supervisor.remove("damaged-two").await.unwrap();
    assert!(!pids.into_iter().any(is_alive));
    plane.close().await;
}

#[tokio::test(start_paused = true)]
async fn two_servers_do_not_share_a_directory() {
    let plane = Plane::open().await;
    let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
    let began = tokio::time::Instant::now();
    let second = Supervisor::open(plane.root.clone(), Ambient::system(), tasks, stop).await;
    let error = second.err().unwrap().to_string();
    assert!(error.contains("another server"), "{error}");
    assert!(began.elapsed() >= Duration::from_secs(5), "the first may be about to end");
    plane.close().await;
}
