//! A removed instance leaves nothing behind.

use std::net::TcpListener;
use std::path::Path;

use fleet::dataplane::local::{ProcessSpec, Readiness, State};

use crate::program::{line, script, spec};
use crate::support::{Plane, files_in, is_alive, kill};

/// A process, its child, a grandchild, and one in a session of its own.
const FAMILY: &str = "sh -c 'sleep 300 & echo $! > grandchild; wait' & echo $! > child;
    setsid sh -c 'echo $$ > deserter; exec sleep 300' &
    while ! [ -s grandchild ] || ! [ -s deserter ]; do sleep 0.01; done; echo all here; wait";

fn family(dir: &Path) -> Vec<u32> {
    let pid = |name| std::fs::read_to_string(dir.join(name)).unwrap().trim().parse().unwrap();
    ["child", "grandchild", "deserter"].map(pid).to_vec()
}

#[tokio::test]
async fn a_removed_instance_leaves_no_process_no_file_and_no_listener() {
    let plane = Plane::open().await;
    plane.supervisor.run(spec("a", "http")).await.unwrap();
    plane.supervisor.run(script("b", FAMILY, line("all here"))).await.unwrap();
    let (port, _) = plane.until_ready("a").await;
    plane.until_ready("b").await;
    let mut pids = family(&plane.root.join("b"));
    pids.extend([plane.pid("a"), plane.pid("b")]);
    assert!(pids.iter().copied().all(is_alive));
    for id in ["a", "b", "a", "never-there"] {
        plane.supervisor.remove(id).await.unwrap();
        assert_eq!(plane.supervisor.state(id), State::Gone);
    }
    assert!(!pids.into_iter().any(is_alive));
    assert_eq!(files_in(&plane.root), [".lock"]);
    TcpListener::bind(("127.0.0.1", port)).expect("nobody listens");
    plane.close().await;
}

#[tokio::test]
async fn descendants_of_an_adopted_process_are_stopped_with_it() {
    let plane = Plane::open().await;
    plane.supervisor.run(script("a", FAMILY, line("all here"))).await.unwrap();
    plane.until_ready("a").await;
    let pids = family(&plane.root.join("a"));
    let plane = plane.restart(async |_| ()).await;
    plane.supervisor.remove("a").await.unwrap();
    assert!(!pids.into_iter().any(is_alive));
    plane.close().await;
}

#[tokio::test]
async fn descendants_of_a_dead_process_are_stopped_before_the_next_starts() {
    let plane = Plane::open().await;
    plane.supervisor.run(script("a", FAMILY, line("all here"))).await.unwrap();
    plane.until_ready("a").await;
    let pids = family(&plane.root.join("a"));
    plane.kill_and_wait("a").await;
    assert!(!pids.into_iter().any(is_alive));
    // The same if no server ran when it died.
    let (pid, pids) = (plane.pid("a"), family(&plane.root.join("a")));
    let plane = plane.restart(async |_| kill("-KILL", pid)).await;
    plane.until("a", |_| plane.supervisor.pid("a").filter(|now| *now != pid)).await;
    assert!(!pids.into_iter().any(is_alive));
    plane.until_ready("a").await;
    plane.close().await;
}

#[tokio::test]
async fn a_process_that_ignores_sigterm_is_killed() {
    let plane = Plane::open().await;
    let stubborn = "trap '' TERM; echo here I stay; while true; do sleep 0.1; done";
    let stubborn = ProcessSpec { stop_s: 1, ..script("a", stubborn, line("stay")) };
    plane.supervisor.run(stubborn).await.unwrap();
    plane.until_ready("a").await;
    let pid = plane.pid("a");
    let began = std::time::Instant::now();
    plane.supervisor.remove("a").await.unwrap();
    assert!(began.elapsed().as_millis() >= 1000);
    assert!(!is_alive(pid));
    plane.close().await;
}

#[tokio::test]
async fn a_process_that_handles_sigterm_has_time_to_exit() {
    let plane = Plane::open().await;
    let orderly = "trap 'sleep 0.3; echo in order > state; exit 0' TERM; echo up;
        while true; do sleep 0.05; done";
    plane.supervisor.run(script("a", orderly, line("up"))).await.unwrap();
    plane.until_ready("a").await;
    plane.supervisor.suspend("a").await.unwrap();
    assert_eq!(std::fs::read_to_string(plane.root.join("a/state")).unwrap(), "in order\n");
    plane.close().await;
}

#[tokio::test]
async fn an_instance_that_was_never_ready_can_be_removed_at_any_time() {
    let plane = Plane::open().await;
    for (id, command) in [("a", "exit 1"), ("b", "sleep 300"), ("c", "echo; exit 1")] {
        plane.supervisor.run(script(id, command, Readiness::Tcp)).await.unwrap();
        plane.supervisor.remove(id).await.unwrap();
        // Created again, under the same name.
        plane.supervisor.run(script(id, command, Readiness::Tcp)).await.unwrap();
    }
    plane.until_failed("a", &["exit status: 1"], 1).await;
    assert_eq!(plane.supervisor.ids(), ["a", "b", "c"]);
    plane.close().await;
}
