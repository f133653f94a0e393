//! The programs of the tests' instances, selected by the environment. libtest's own arguments start
//! them, so that no other binary is needed.

use std::collections::BTreeMap;
use std::path::PathBuf;

use fleet::dataplane::local::{ProcessSpec, Readiness};
use fleet::dataplane::{http, kafka};

use crate::support::Plane;

/// An instance that runs this binary as `program`.
pub fn spec(id: &str, program: &str) -> ProcessSpec {
    let env = [("PROGRAM", program), ("DIR", "${dir}"), ("PORT", "${port}"), ("ID", "${id}")];
    let command = ["${mainstay}", "program::run", "--exact", "--ignored", "--nocapture"];
    ProcessSpec {
        id: id.to_owned(),
        command: command.map(str::to_owned).to_vec(),
        env: env.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        ready: Readiness::Tcp,
        stop_s: 10,
        start_s: 60,
    }
}

/// An instance that runs a shell script.
pub fn script(id: &str, script: &str, ready: Readiness) -> ProcessSpec {
    ProcessSpec {
        id: id.to_owned(),
        command: ["sh", "-c", script].map(str::to_owned).to_vec(),
        env: BTreeMap::new(),
        ready,
        stop_s: 10,
        start_s: 60,
    }
}

pub fn line(text: &str) -> Readiness {
    Readiness::Line { text: text.to_owned() }
}

#[tokio::test]
#[ignore = "the program of the instances, not a test"]
async fn run() {
    let Ok(program) = std::env::var("PROGRAM") else { return };
    let dir = PathBuf::from(std::env::var("DIR").unwrap());
    let port = || std::env::var("PORT").unwrap().parse().unwrap();
    let done = match program.as_str() {
        "http" => http::run(dir, port(), &std::env::var("ID").unwrap()).await,
        "kafka" => kafka::run(dir, port()).await,
        // A server that will be killed.
        "server" => {
            let plane = Plane::open_in(dir).await;
            plane.supervisor.run(spec("orphan", "http")).await.unwrap();
            plane.until_ready("orphan").await;
            println!("the server is ready");
            std::future::pending().await
        }
        other => panic!("no program {other}"),
    };
    // Exits as the real binary does, without the output of a test.
    if let Err(error) = done {
        eprintln!("{error}");
        std::process::exit(1);
    }
}
