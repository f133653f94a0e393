//! A real broker: Java as a child process, one node that is broker and controller, on the loopback
//! address only. We exit when Java does; if we are killed, the supervisor kills our process group.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use kernel::{Ambient, Error, Result};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::Command;

use super::super::local::{free_port, write_facts};
use super::super::until_sigterm;
use super::home::Home;
use super::{READY_LINE, problem};

const LOGGING: &str = "status=error
appender.out.type=Console
appender.out.name=out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=[%d] %p %m (%c)%n
rootLogger.level=WARN
rootLogger.appenderRef.out.ref=out
";

/// For Kafka before 4.
const LOGGING_OLD: &str = "log4j.rootLogger=WARN, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=[%d] %p %m (%c)%n
";

pub fn has_data(dir: &Path) -> bool {
    dir.join("data/meta.properties").exists()
}

pub async fn run(home: &Home, dir: &Path, port: u16) -> Result<()> {
    let ambient = Ambient::system();
    let properties = configure(dir, port, free_port(&ambient, |other| other != port)?)
        .map_err(problem("the broker's configuration"))?;
    if !has_data(dir) {
        format(home, dir, &properties, &ambient).await?;
    }
    let facts = [("flavour", "Apache Kafka"), ("version", home.version.as_str())];
    write_facts(dir, &facts).map_err(problem("the facts"))?;
    let mut broker = java(home, dir, &["-Xms64m", "-Xmx256m", "-XX:+UseSerialGC"]);
    broker.arg("kafka.Kafka").arg(&properties);
    let mut broker = broker.spawn().map_err(problem("java"))?;
    let pid = broker.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    let mut printed = false;
    let mut terminated = std::pin::pin!(until_sigterm());
    loop {
        tokio::select! {
            ended = broker.wait() => return failure(ended.map_err(problem("java"))?),
            signal = &mut terminated => {
                signal.map_err(problem("the signals"))?;
                if let Some(pid) = pid {
                    // Not reaped yet, so the pid is still its own.
                    let _ = kill_process(pid, Signal::TERM);
                }
                broker.wait().await.map_err(problem("java"))?;
                return Ok(());
            }
            () = until_broker(port), if !printed => {
                println!("{READY_LINE}");
                printed = true;
            }
        }
    }
}

fn failure(status: ExitStatus) -> Result<()> {
    Err(Error::unavailable("the broker", format!("it ended with {status}")))
}

fn java(home: &Home, dir: &Path, options: &[&str]) -> Command {
    let mut java = Command::new(&home.java);
    // Optimises for start-up time.
    java.args(options).args(["-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"]);
    java.arg("-Djava.net.preferIPv4Stack=true");
    java.arg(format!("-Djava.io.tmpdir={}", dir.display()));
    java.arg(format!("-Dlog4j2.configurationFile={}", dir.join("log4j2.properties").display()));
    java.arg(format!("-Dlog4j.configuration=file:{}", dir.join("log4j.properties").display()));
    java.arg("-cp").arg(home.jars.join("*")).kill_on_drop(true);
    java
}

/// Formats the storage. Data of an interrupted attempt was never used.
async fn format(home: &Home, dir: &Path, properties: &Path, ambient: &Ambient) -> Result<()> {
    let data = dir.join("data");
    if data.exists() {
        std::fs::remove_dir_all(data).map_err(problem("the storage"))?;
    }
    let mut id: [u8; 16] = ambient.random_bytes();
    // Else it might begin with `-` and look like an option.
    id[0] &= 0x7f;
    let mut format = java(home, dir, &["-Xmx128m", "-XX:+UseSerialGC"]);
    format.args(["kafka.tools.StorageTool", "format", "-t"]);
    format.arg(BASE64_URL_SAFE_NO_PAD.encode(id)).arg("-c").arg(properties);
    let status = format.status().await.map_err(problem("java"))?;
    if status.success() {
        Ok(())
    } else {
        Err(Error::unavailable("the storage", format!("formatting it ended with {status}")))
    }
}

fn configure(dir: &Path, port: u16, controller: u16) -> std::io::Result<PathBuf> {
    std::fs::write(dir.join("log4j2.properties"), LOGGING)?;
    std::fs::write(dir.join("log4j.properties"), LOGGING_OLD)?;
    let path = dir.join("server.properties");
    // A backslash begins an escape in a properties file.
    let data = dir.join("data").display().to_string().replace('\\', "\\\\");
    let properties = format!(
        "process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}
num.partitions=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
log.cleaner.dedupe.buffer.size=8388608
broker.heartbeat.interval.ms=500
broker.session.timeout.ms=3000
"
    );
    std::fs::write(&path, properties)?;
    Ok(path)
}

/// Waits until the cluster's metadata names a broker: the port accepts connections earlier.
async fn until_broker(port: u16) {
    while !has_broker(port).await.unwrap_or_default() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn has_broker(port: u16) -> std::io::Result<bool> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    // Length, Metadata, version 1, correlation id 1, no client id, no topics.
    stream.write_all(&[0, 0, 0, 14, 0, 3, 0, 1, 0, 0, 0, 1, 0xff, 0xff, 0, 0, 0, 0]).await?;
    // Length, correlation id 1, and the number of brokers.
    let mut response = [0; 12];
    stream.read_exact(&mut response).await?;
    Ok(response[8..] != [0; 4])
}
