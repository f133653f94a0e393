//! Instances outlive the server, and the next server adopts them.

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
async fn the_next_server_adopts_and_supervises_running_instances() {
    let plane = Plane::open().await;
    plane.supervisor.run(spec("a", "http")).await.unwrap();
    let (port, facts) = plane.until_ready("a").await;
    let pid = plane.pid("a");
    let plane = plane.restart(async |_| assert_eq!(get(port, "/").await, "This is a.\n")).await;
    // Ready at once: no client sees it fall back to starting.
    assert_eq!(plane.supervisor.state("a"), State::Ready { port, facts });
    assert_eq!(plane.pid("a"), pid);
    plane.supervisor.run(spec("a", "http")).await.unwrap();
    assert_eq!(plane.pid("a"), pid);
    assert_eq!(plane.kill_and_wait("a").await.0, port);
    plane.close().await;
}

#[tokio::test]
async fn an_instance_that_died_without_a_server_is_restarted() {
    let plane = Plane::open().await;
    plane.supervisor.run(spec("a", "http")).await.unwrap();
    let (port, _) = plane.until_ready("a").await;
    let pid = plane.pid("a");
    let plane = plane
        .restart(async |_| {
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
    // It is not our child, yet its exit is detected.
    plane.kill_and_wait("orphan").await;
    plane.close().await;
}

#[tokio::test]
async fn another_process_with_a_recorded_pid_is_not_touched() {
    let plane = Plane::open().await;
    plane.supervisor.run(spec("a", "http")).await.unwrap();
    plane.until_ready("a").await;
    let pid = plane.pid("a");
    let other = OtherProcess::start();
    let reused = other.0.id();
    let plane = plane
        .restart(async |root| {
            kill("-KILL", pid);
            eventually("it is dead", || (!is_alive(pid)).then_some(())).await;
            reuse(root, reused);
        })
        .await;
    plane.until_ready("a").await;
    assert_ne!(plane.pid("a"), reused);
    let plane = plane.restart(async |root| reuse(root, reused)).await;
    plane.close().await;
    assert!(is_alive(reused));
}

/// Edits the record as if the kernel had given the pid to another process since.
fn reuse(root: &Path, pid: u32) {
    edit_record(root, "a", |record| {
        let process = &mut record["attempt"]["process"];
        process["pid"] = json!(pid);
        let born = process["born"].as_str().unwrap();
        process["born"] = json!(format!("{}/1", born.split_once('/').unwrap().0));
    });
}

struct OtherProcess(Child);

impl OtherProcess {
    fn start() -> OtherProcess {
        use std::os::unix::process::CommandExt;
        OtherProcess(Command::new("sleep").arg("300").process_group(0).spawn().unwrap())
    }
}

impl Drop for OtherProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn a_process_with_another_start_time_is_not_adopted_but_found_by_its_mark() {
    let plane = Plane::open().await;
    plane.supervisor.run(spec("a", "http")).await.unwrap();
    let (port, _) = plane.until_ready("a").await;
    let pid = plane.pid("a");
    let plane = plane
        .restart(async |root| {
            edit_record(root, "a", |record| record["attempt"]["process"]["born"] = json!("x/1"));
        })
        .await;
    assert_eq!(plane.until_ready("a").await.0, port, "the port was free again");
    assert_ne!(plane.pid("a"), pid);
    assert!(!is_alive(pid));
    plane.close().await;
}

#[tokio::test]
async fn a_server_that_died_before_recording_the_pid_leaves_no_second_process() {
    let plane = Plane::open().await;
    plane.supervisor.run(spec("a", "http")).await.unwrap();
    plane.until_ready("a").await;
    let pid = plane.pid("a");
    let plane = plane
        .restart(async |root| {
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
        .restart(async |root| edit_record(root, "a", |record| record["intent"] = json!("remove")))
        .await;
    eventually("it is removed", || plane.supervisor.ids().is_empty().then_some(())).await;
    assert!(!is_alive(pid));
    plane.close().await;
}

#[tokio::test]
async fn a_damaged_record_stops_its_processes_and_can_be_run_or_removed() {
    let plane = Plane::open().await;
    for id in ["damaged-one", "damaged-two"] {
        plane.supervisor.run(script(id, "echo up; sleep 60", line("up"))).await.unwrap();
        plane.until_ready(id).await;
    }
    let pids = ["damaged-one", "damaged-two"].map(|id| plane.pid(id));
    let plane = plane
        .restart(async |root| {
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
    assert!(began.elapsed() >= Duration::from_secs(5), "the first may be about to stop");
    plane.close().await;
}
