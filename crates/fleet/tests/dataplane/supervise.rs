//! An instance runs, is restarted when it dies, and reports why it cannot.

use std::collections::BTreeSet;
use std::net::TcpListener;

use fleet::dataplane::local::{ProcessSpec, Readiness, State};

use crate::program::{line, script, spec};
use crate::support::{Plane, get};

#[tokio::test]
async fn a_killed_process_is_restarted_and_ready_on_the_same_port() {
    let plane = Plane::open().await;
    let ready = Readiness::Http { path: "/healthz".into() };
    plane.supervisor.run(ProcessSpec { ready, ..spec("a", "http") }).await.unwrap();
    let (port, facts) = plane.until_ready("a").await;
    assert_eq!(facts["flavour"], "small HTTP service");
    assert_eq!(get(port, "/").await, "This is a.\n");
    let (again, _) = plane.kill_and_wait("a").await;
    assert_eq!(again, port);
    assert_eq!(get(port, "/healthz").await, "ok\n");
    assert_eq!(plane.record("a")["restarts"], 1);
    plane.close().await;
}

#[tokio::test]
async fn the_same_spec_changes_nothing_and_another_environment_restarts() {
    let plane = Plane::open().await;
    let first = spec("a", "http");
    plane.supervisor.run(first.clone()).await.unwrap();
    let (port, _) = plane.until_ready("a").await;
    let pid = plane.pid("a");
    plane.supervisor.run(first.clone()).await.unwrap();
    plane.supervisor.run(ProcessSpec { stop_s: 5, ..first.clone() }).await.unwrap();
    assert_eq!(plane.pid("a"), pid);
    assert_eq!(plane.record("a")["wanted"]["stop_s"], 5);
    let mut other = first;
    other.env.insert("ID".into(), "another".into());
    plane.supervisor.run(other).await.unwrap();
    assert_eq!(plane.until_ready("a").await.0, port);
    assert_ne!(plane.pid("a"), pid);
    assert_eq!(get(port, "/").await, "This is another.\n");
    plane.close().await;
}

#[tokio::test]
async fn a_command_that_does_not_exist_fails_until_it_is_corrected() {
    let plane = Plane::open().await;
    let mut broken = spec("a", "http");
    broken.command[0] = "no-such-program".into();
    plane.supervisor.run(broken).await.unwrap();
    plane.until_failed("a", &["`no-such-program`", "cannot be started"], 2).await;
    plane.supervisor.run(spec("a", "http")).await.unwrap();
    plane.until_ready("a").await;
    plane.close().await;
}

#[tokio::test]
async fn a_process_that_exits_at_once_fails_with_its_output_and_backs_off() {
    let plane = Plane::open().await;
    let began = std::time::Instant::now();
    let broken = script("a", "echo the disk is on fire; exit 3", Readiness::Tcp);
    plane.supervisor.run(broken).await.unwrap();
    plane.until_failed("a", &["exit status: 3", "the disk is on fire"], 0).await;
    plane.until_failed("a", &["exit status: 3", "the disk is on fire"], 3).await;
    // Half of 100, 200 and 400 ms at the least.
    assert!(began.elapsed().as_millis() >= 350, "{:?}", began.elapsed());
    assert_eq!(plane.supervisor.tail("a", 1), ["the disk is on fire"]);
    plane.supervisor.run(script("a", "echo all is well; sleep 60", line("well"))).await.unwrap();
    plane.until_ready("a").await;
    plane.close().await;
}

#[tokio::test]
async fn an_instance_that_is_not_ready_in_time_fails_and_is_retried() {
    let plane = Plane::open().await;
    let slow = "if [ -e tried ]; then echo here we go; fi; touch tried; sleep 60";
    let slow = ProcessSpec { start_s: 1, ..script("a", slow, line("here we go")) };
    plane.supervisor.run(slow).await.unwrap();
    let words = ["not ready after 1 s", "it has not printed \"here we go\""];
    plane.until_failed("a", &words, 0).await;
    plane.until_ready("a").await;
    plane.close().await;
}

#[tokio::test]
async fn an_instance_that_keeps_crashing_after_readiness_fails() {
    let plane = Plane::open().await;
    let relapsing = script("a", "echo ready; sleep 0.5; echo relapse", line("ready"));
    plane.supervisor.run(relapsing).await.unwrap();
    plane.until_ready("a").await;
    plane.until_failed("a", &["exit status: 0", "relapse"], 1).await;
    plane.close().await;
}

#[tokio::test]
async fn a_suspended_instance_keeps_its_data_and_its_port() {
    let plane = Plane::open().await;
    plane.supervisor.run(spec("a", "http")).await.unwrap();
    let (port, _) = plane.until_ready("a").await;
    std::fs::write(plane.root.join("a/data"), "precious").unwrap();
    plane.supervisor.suspend("a").await.unwrap();
    plane.supervisor.suspend("a").await.unwrap();
    assert_eq!(plane.supervisor.state("a"), State::Gone);
    assert_eq!((plane.supervisor.ids(), plane.supervisor.pid("a")), (vec!["a".into()], None));
    drop(TcpListener::bind(("127.0.0.1", port)).expect("nobody listens"));
    // It also stays suspended through a restart of the server.
    let plane = plane.restart(async |_| ()).await;
    assert_eq!(plane.supervisor.state("a"), State::Gone);
    plane.supervisor.run(spec("a", "http")).await.unwrap();
    assert_eq!(plane.until_ready("a").await.0, port);
    assert_eq!(std::fs::read_to_string(plane.root.join("a/data")).unwrap(), "precious");
    plane.close().await;
}

#[tokio::test]
async fn a_port_that_another_process_uses_is_replaced() {
    let plane = Plane::open().await;
    plane.supervisor.run(spec("a", "http")).await.unwrap();
    let (port, _) = plane.until_ready("a").await;
    plane.supervisor.suspend("a").await.unwrap();
    let _other = TcpListener::bind(("127.0.0.1", port)).unwrap();
    plane.supervisor.run(spec("a", "http")).await.unwrap();
    let (other, _) = plane.until_ready("a").await;
    assert_ne!(other, port);
    assert_eq!(get(other, "/").await, "This is a.\n");
    plane.close().await;
}

#[tokio::test]
async fn instances_do_not_share_ports() {
    let plane = Plane::open().await;
    for number in 0..8 {
        let ports = "echo ${port} ${port2} ${port3} > ports; echo noted; sleep 60";
        let instance = script(&format!("a{number}"), ports, line("noted"));
        plane.supervisor.run(instance).await.unwrap();
    }
    let mut all = BTreeSet::new();
    for id in plane.supervisor.ids() {
        plane.until_ready(&id).await;
        let ports = std::fs::read_to_string(plane.root.join(&id).join("ports")).unwrap();
        all.extend(ports.split_whitespace().map(|port| port.parse::<u16>().unwrap()));
    }
    assert_eq!(all.len(), 24);
    plane.close().await;
}

#[tokio::test]
async fn instances_do_not_inherit_the_servers_environment() {
    let plane = Plane::open().await;
    // Cargo sets it for tests: it stands for a secret of the server.
    assert!(std::env::var("CARGO_MANIFEST_DIR").is_ok());
    let mut instance = script("a", "env; pwd; echo done; sleep 60", line("done"));
    instance.env.insert("WHERE".into(), "${dir} ${id}".into());
    plane.supervisor.run(instance).await.unwrap();
    plane.until_ready("a").await;
    let output = plane.supervisor.tail("a", 100);
    let dir = plane.root.join("a");
    assert!(output.contains(&format!("WHERE={} a", dir.display())), "{output:?}");
    assert!(output.contains(&dir.display().to_string()), "{output:?}");
    assert!(output.iter().any(|line| line.starts_with("PATH=")), "{output:?}");
    assert!(!output.iter().any(|line| line.contains("CARGO")), "{output:?}");
    plane.close().await;
}

#[tokio::test]
async fn a_reported_port_wins_and_invalid_facts_are_an_error() {
    let plane = Plane::open().await;
    let honest = r#"echo '{"port": "4711", "note": "elsewhere"}' > facts.json; echo hi; sleep 60"#;
    plane.supervisor.run(script("a", honest, line("hi"))).await.unwrap();
    let (port, facts) = plane.until_ready("a").await;
    assert_eq!((port, facts["note"].as_str()), (4711, "elsewhere"));
    let invalid = r#"echo '{"port": 4711}' > facts.json; echo hi; sleep 60"#;
    let invalid = ProcessSpec { start_s: 1, ..script("a", invalid, line("hi")) };
    plane.supervisor.run(invalid).await.unwrap();
    plane.until_failed("a", &["facts.json is not a flat map of strings"], 0).await;
    plane.close().await;
}

#[tokio::test]
async fn invalid_specs_are_refused() {
    let plane = Plane::open().await;
    let good = script("a", "sleep 60", Readiness::Tcp);
    let bad = [
        ("id", ProcessSpec { id: "../a".into(), ..good.clone() }),
        ("id", ProcessSpec { id: String::new(), ..good.clone() }),
        ("id", ProcessSpec { id: "A".into(), ..good.clone() }),
        ("command", ProcessSpec { command: Vec::new(), ..good.clone() }),
        ("start_s", ProcessSpec { start_s: 0, ..good }),
    ];
    for (field, spec) in bad {
        let error = plane.supervisor.run(spec).await.unwrap_err().to_string();
        assert!(error.starts_with(field), "{error}");
    }
    assert!(plane.supervisor.ids().is_empty());
    plane.close().await;
}
