//! Kafka: one node that is broker and controller, with a listener for each way in: plain, SASL,
//! TLS, and SASL over TLS. Topics are made by the tests.
//!
//! Who comes over a listener without SASL may do everything, and so may `alice`. `bob` is known,
//! but may do nothing.
//!
//! OAUTHBEARER takes tokens without a signature; whom they name is believed.
//!
//! Option `advertised`: the port that the plain listener sends clients to instead of its own,
//! where a proxy stands.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::install::{JAVA, MAVEN};
use crate::pki::{Authority, For};
use crate::versions::KAFKA;
use crate::{Install, Place, Server};

pub const SERVER: Server = Server {
    name: "kafka",
    version: KAFKA,
    cost: "45 MB from Maven, half a minute",
    needs: &[JAVA, MAVEN],
    installed: |cache| cache.dir("kafka", KAFKA).exists(),
    install,
    start,
    stop_signals: &["TERM"],
};

const POM: &str = include_str!("../../assets/kafka/pom.xml");

/// Each knows both ways to prove who they are.
const USERS: [(&str, &str); 2] = [("alice", "alice-secret"), ("bob", "bob-secret")];

fn install(install: &Install) -> Result<()> {
    install.cache.put("kafka", KAFKA, |dir| {
        std::fs::write(dir.join("pom.xml"), POM)?;
        let mut mvn = Command::new("mvn");
        mvn.args(["-B", "-ntp", "dependency:copy-dependencies", "-DincludeScope=runtime"]);
        mvn.arg(format!("-Dkafka.version={KAFKA}")).arg("-DoutputDirectory=lib");
        install.run("mvn dependency:copy-dependencies", mvn.current_dir(dir))
    })
}

fn start(place: &Place) -> Result<()> {
    let properties = configure(place)?;
    let data = place.dir.join("data");
    if !data.join("meta.properties").exists() {
        let mut format = java(place, &[]);
        // Any 16 bytes will do: nobody tells two of our clusters apart by them.
        format.args(["kafka.tools.StorageTool", "format", "-t", "bWFpbnN0YXktdGVzdC0wMQ"]);
        for (user, password) in USERS {
            for mechanism in ["SCRAM-SHA-256", "SCRAM-SHA-512"] {
                let scram = format!("{mechanism}=[name={user},password={password}]");
                format.args(["--add-scram", &scram]);
            }
        }
        place.run(format.arg("-c").arg(&properties))?;
    }
    let mut kafka = java(place, &["-Xms64m", "-Xmx256m", "-XX:+UseSerialGC"]);
    place.spawn("kafka", kafka.arg("kafka.Kafka").arg(&properties))?;
    let plain = place.port("plain")?;
    place.ready("it has a broker", || has_broker(plain))?;
    place.tell("", format!("127.0.0.1:{plain}"))?;
    for listener in ["sasl", "tls", "sasl_tls"] {
        place.tell(listener, format!("127.0.0.1:{}", place.port(listener)?))?;
    }
    place.tell("ca", place.dir.join("pki/ca.crt").display())?;
    let [(user, password), (limited, limited_password)] = USERS;
    place.tell("user", user)?;
    place.tell("password", password)?;
    place.tell("limited_user", limited)?;
    place.tell("limited_password", limited_password)
}

/// It compiles only a little: it lives for minutes.
fn java(place: &Place, options: &[&str]) -> Command {
    let mut java = Command::new("java");
    java.args(options).args(["-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"]);
    java.arg("-Djava.net.preferIPv4Stack=true");
    java.arg(format!("-Djava.io.tmpdir={}", place.dir.display()));
    let logging = place.dir.join("log4j2.properties");
    java.arg(format!("-Dlog4j2.configurationFile={}", logging.display()));
    java.arg("-cp").arg(place.cache.dir("kafka", KAFKA).join("lib/*"));
    java
}

const LOGGING: &str = "status=error
appender.out.type=Console
appender.out.name=out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=[%d] %p %m (%c)%n
rootLogger.level=INFO
rootLogger.appenderRef.out.ref=out
";

/// Writes what it reads at its start; answers where.
fn configure(place: &Place) -> Result<PathBuf> {
    let pki = place.dir.join("pki");
    // Certificate and key in one file, as Kafka wants them.
    let keystore = pki.join("keystore.pem");
    if !keystore.exists() {
        let authority = Authority::create(&pki, "ca")?;
        authority.sign("server", "127.0.0.1", For::Server(&["127.0.0.1", "localhost"]))?;
        let key = std::fs::read_to_string(pki.join("server.key"))?;
        let certificate = std::fs::read_to_string(pki.join("server.crt"))?;
        std::fs::write(&keystore, key + &certificate)?;
    }
    std::fs::write(place.dir.join("log4j2.properties"), LOGGING)?;
    let path = place.dir.join("server.properties");
    std::fs::write(&path, properties(place)?)?;
    Ok(path)
}

fn properties(place: &Place) -> Result<String> {
    // The broker's word to itself takes no proxy.
    let names = ["INTERNAL", "PLAIN", "SASL", "TLS", "SASL_TLS", "CONTROLLER"];
    let mut listeners = Vec::new();
    let mut advertised = Vec::new();
    for name in names {
        let port = place.port(&name.to_lowercase())?.to_string();
        listeners.push(format!("{name}://127.0.0.1:{port}"));
        let seen = place.option("advertised").filter(|_| name == "PLAIN").unwrap_or(&port);
        advertised.push(format!("{name}://127.0.0.1:{seen}"));
    }
    advertised.pop();
    let users: String = USERS.map(|(user, word)| format!(" user_{user}=\"{word}\"")).concat();
    let module = "org.apache.kafka.common.security";
    let mut jaas = String::new();
    for listener in ["sasl", "sasl_tls"] {
        let prefix = format!("listener.name.{listener}");
        jaas += &format!(
            "{prefix}.plain.sasl.jaas.config={module}.plain.PlainLoginModule required{users};\n"
        );
        for mechanism in ["scram-sha-256", "scram-sha-512"] {
            jaas += &format!(
                "{prefix}.{mechanism}.sasl.jaas.config={module}.scram.ScramLoginModule required;\n"
            );
        }
        // The broker itself signs in, too, as nobody in particular.
        jaas += &format!(
            "{prefix}.oauthbearer.sasl.jaas.config={module}.oauthbearer.OAuthBearerLoginModule \
             required unsecuredLoginStringClaim_sub=\"broker\";\n"
        );
    }
    let dir = place.dir.display();
    let flush = if place.durable { "log.flush.interval.messages=1\n" } else { "" };
    Ok(format!(
        "process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
inter.broker.listener.name=INTERNAL
listeners={listeners}
advertised.listeners={advertised}
listener.security.protocol.map=INTERNAL:PLAINTEXT,PLAIN:PLAINTEXT,SASL:SASL_PLAINTEXT,\
TLS:SSL,SASL_TLS:SASL_SSL,CONTROLLER:PLAINTEXT
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER
{jaas}ssl.keystore.type=PEM
ssl.keystore.location={dir}/pki/keystore.pem
ssl.truststore.type=PEM
ssl.truststore.location={dir}/pki/ca.crt
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS;User:{superuser}
log.dirs={dir}/data
auto.create.topics.enable=false
num.partitions=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
group.initial.rebalance.delay.ms=0
log.cleaner.dedupe.buffer.size=8388608
broker.heartbeat.interval.ms=500
broker.session.timeout.ms=3000
{flush}",
        controller = place.port("controller")?,
        listeners = listeners.join(","),
        advertised = advertised.join(","),
        superuser = USERS[0].0,
    ))
}

/// Asks for the cluster's metadata, and whether a broker is in it: a listener answers earlier.
fn has_broker(port: u16) -> Result<()> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    // Its length, Metadata, version 1, number 1, no client's name, no topics.
    stream.write_all(&[0, 0, 0, 14, 0, 3, 0, 1, 0, 0, 0, 1, 0xff, 0xff, 0, 0, 0, 0])?;
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).context("it does not answer")?;
    // Its length, number 1, and how many brokers there are.
    match answer.last() {
        Some(1) => Ok(()),
        _ => bail!("the cluster has no broker yet"),
    }
}
