//! RabbitMQ with its management plugin: one node, and a port mapper (epmd) of its own, because
//! a client that finds none starts one that listens on all interfaces and stays. A plain listener, and
//! one with TLS, which takes clients with and without a certificate of the same authority.

use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::install::{CURL, in_path};
use crate::pki::{Authority, For};
use crate::wire::curl;
use crate::{Install, Place, Server, versions};

pub const SERVER: Server = Server {
    name: "rabbitmq",
    version: versions::RABBITMQ,
    cost: "apt package with Erlang, a minute",
    needs: &[CURL],
    installed: |_| scripts().is_some(),
    install: |install: &Install| install.apt(&["rabbitmq-server"], &["rabbitmq-server"]),
    start,
    stop_signals: &["TERM"],
};

const USER: &str = "admin";
const PASSWORD: &str = "admin-secret";
const NODE: &str = "mainstay@localhost";

/// Its own script. The one that Debian puts into the path insists on Debian's directories.
fn scripts() -> Option<PathBuf> {
    let debian = PathBuf::from("/usr/lib/rabbitmq/bin/rabbitmq-server");
    if debian.exists() { Some(debian) } else { in_path("rabbitmq-server") }
}

fn start(place: &Place) -> Result<()> {
    let script = scripts().context("RabbitMQ is not installed")?;
    let port = |name: &str| place.port(name);
    let (amqp, amqps, management) = (port("amqp")?, port("amqps")?, port("management")?);
    let pki = place.sub("pki")?;
    if !pki.join("client.key").exists() {
        let authority = Authority::create(&pki, "ca")?;
        authority.sign("server", "127.0.0.1", For::Server(&["127.0.0.1", "localhost"]))?;
        authority.sign("client", "mainstay", For::Client { organisation: "" })?;
    }
    let pki = pki.display();
    let settings = format!(
        "listeners.tcp.1 = 127.0.0.1:{amqp}
listeners.ssl.1 = 127.0.0.1:{amqps}
ssl_options.cacertfile = {pki}/ca.crt
ssl_options.certfile = {pki}/server.crt
ssl_options.keyfile = {pki}/server.key
ssl_options.verify = verify_peer
ssl_options.fail_if_no_peer_cert = false
management.tcp.ip = 127.0.0.1
management.tcp.port = {management}
management.rates_mode = none
default_user = {USER}
default_pass = {PASSWORD}
log.console = true
log.console.level = warning
log.file = false
"
    );
    std::fs::write(place.dir.join("rabbitmq.conf"), settings)?;
    std::fs::write(place.dir.join("enabled_plugins"), "[rabbitmq_management].\n")?;
    // Empty, so that the system's own is not read.
    std::fs::write(place.dir.join("env.conf"), "")?;

    let epmd = port("epmd")?.to_string();
    let mut mapper = Command::new("epmd");
    mapper.env("ERL_EPMD_ADDRESS", "127.0.0.1").args(["-port", &epmd]);
    place.spawn("epmd", &mut mapper)?;
    let epmd_address = format!("127.0.0.1:{epmd}");
    place.ready("the port mapper listens", || Ok(TcpStream::connect(&epmd_address).map(drop)?))?;

    let mut server = Command::new(script);
    let file = |name: &str| place.dir.join(name);
    server
        .env("HOME", &place.dir)
        .env("ERL_EPMD_ADDRESS", "127.0.0.1")
        .env("ERL_EPMD_PORT", &epmd)
        .env("RABBITMQ_NODENAME", NODE)
        .env("RABBITMQ_DIST_PORT", port("distribution")?.to_string())
        .env("RABBITMQ_MNESIA_BASE", file("data"))
        .env("RABBITMQ_LOG_BASE", file("log"))
        .env("RABBITMQ_CONFIG_FILE", file("rabbitmq.conf"))
        .env("RABBITMQ_ADVANCED_CONFIG_FILE", file("advanced.config"))
        .env("RABBITMQ_CONF_ENV_FILE", file("env.conf"))
        .env("RABBITMQ_ENABLED_PLUGINS_FILE", file("enabled_plugins"))
        .env(
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS",
            "-start_epmd false -kernel inet_dist_use_interface {127,0,0,1}",
        )
        // The process is then Erlang itself and no script before it.
        .env("RUNNING_UNDER_SYSTEMD", "1")
        .env("LANG", "C.UTF-8");
    place.spawn("rabbitmq", &mut server)?;
    let address = format!("http://127.0.0.1:{management}");
    let (login, health) =
        (format!("{USER}:{PASSWORD}"), format!("{address}/api/health/checks/port-listener/{amqp}"));
    place.ready("it listens", || curl(&["--user", &login, &health]).map(drop))?;
    place.tell("", format!("amqp://{login}@127.0.0.1:{amqp}/%2f"))?;
    place.tell("tls", format!("127.0.0.1:{amqps}"))?;
    for (name, file) in
        [("ca", "ca.crt"), ("client_cert", "client.crt"), ("client_key", "client.key")]
    {
        place.tell(name, place.dir.join("pki").join(file).display())?;
    }
    place.tell("management", address)?;
    place.tell("user", USER)?;
    place.tell("password", PASSWORD)
}

/// Runs `rabbitmqctl` on a server that runs; returns what it printed.
pub fn control(place: &Place, arguments: &[&str]) -> Result<String> {
    let script = scripts().context("RabbitMQ is not installed")?.with_file_name("rabbitmqctl");
    let file = |name: &str| place.dir.join(name);
    let mut control = Command::new(script);
    control
        .env("HOME", &place.dir)
        .env("ERL_EPMD_ADDRESS", "127.0.0.1")
        .env("ERL_EPMD_PORT", place.port("epmd")?.to_string())
        .env("RABBITMQ_CONF_ENV_FILE", file("env.conf"))
        .env("RABBITMQ_LOG_BASE", file("log"))
        // Or else it starts a port mapper that stays.
        .env("RABBITMQ_CTL_ERL_ARGS", "-start_epmd false")
        .env("LANG", "C.UTF-8")
        .args(["--node", NODE, "--quiet"])
        .args(arguments);
    place.run(&mut control)
}
