//! Keycloak with a realm of ours. Its set-up takes most of a minute of computing, so that it is
//! done at the installation: the server is put together once (`build`), and a database that has the
//! realm is made once (`import`); each instance begins with a copy of it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::install::{CURL, JAVA, MAVEN};
use crate::versions::KEYCLOAK;
use crate::wire::curl;
use crate::{Cache, Install, Place, Server};

pub const SERVER: Server = Server {
    name: "keycloak",
    version: KEYCLOAK,
    cost: "180 MB from Maven, two minutes",
    needs: &[JAVA, MAVEN, CURL],
    installed: |cache| program(cache).exists() && seed(cache).exists(),
    install,
    start,
    stop_signals: &["TERM"],
};

/// Users (their password is their name with `-secret`), programs (likewise), and what their tokens
/// say. [`REALM_NAME`] is its name.
pub const REALM: &str = include_str!("../../assets/keycloak/realm.json");
pub const REALM_NAME: &str = "mainstay";
/// Of the `master` realm.
const ADMIN: (&str, &str) = ("admin", "admin-secret");

fn program(cache: &Cache) -> PathBuf {
    cache.dir("keycloak", KEYCLOAK)
}

fn seed(cache: &Cache) -> PathBuf {
    cache.dir("keycloak-realm", &seed_version())
}

/// Another realm is another seed (FNV-1a).
fn seed_version() -> String {
    let mix = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    let hash = REALM.bytes().fold(0xcbf2_9ce4_8422_2325, mix);
    format!("{KEYCLOAK}-{hash:016x}")
}

fn install(install: &Install) -> Result<()> {
    let cache = install.cache;
    if !program(cache).exists() {
        cache.put("keycloak", KEYCLOAK, |dir| {
            let archive = format!("keycloak-quarkus-dist-{KEYCLOAK}.tar.gz");
            let mut mvn = Command::new("mvn");
            mvn.args(["-B", "-ntp", "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"]);
            mvn.arg(format!("-Dartifact=org.keycloak:keycloak-quarkus-dist:{KEYCLOAK}:tar.gz"));
            mvn.arg("-DoutputDirectory=.").current_dir(dir);
            install.run("mvn dependency:copy", &mut mvn)?;
            let mut tar = Command::new("tar");
            tar.args(["xzf", &archive, "--strip-components=1"]).current_dir(dir);
            install.run("unpack", &mut tar)?;
            std::fs::remove_file(dir.join(archive))?;
            std::fs::create_dir_all(dir.join("data"))?;
            let mut build = keycloak(dir, dir);
            install.run("kc.sh build", build.args(["build", "--db=dev-file"]))
        })?;
    }
    cache.put("keycloak-realm", &seed_version(), |dir| {
        // What an interrupted attempt left may be half of it.
        std::fs::remove_dir_all(dir)?;
        let file = dir.join("realm.json");
        home(&program(cache), dir)?;
        std::fs::write(&file, REALM)?;
        let mut import = keycloak(&program(cache), dir);
        import.args(["import", "--optimized", "--cache=local", "--file"]).arg(&file);
        install.run("kc.sh import", import.arg(database(dir)))
    })
}

/// What it takes for its own directory: nothing but links to the program, and its data.
fn home(program: &Path, home: &Path) -> Result<()> {
    for dir in ["conf", "data", "providers"] {
        std::fs::create_dir_all(home.join(dir))?;
    }
    Ok(std::os::unix::fs::symlink(program.join("lib"), home.join("lib"))?)
}

/// It waits until what it acknowledges is written: without that, a kill loses the last moments.
fn database(home: &Path) -> String {
    let path = home.join("data/keycloak");
    format!("--db-url=jdbc:h2:file:{};NON_KEYWORDS=VALUE;WRITE_DELAY=0", path.display())
}

/// Java itself, as `kc.sh` calls it: the script would stand between us and the process.
fn keycloak(program: &Path, home: &Path) -> Command {
    let mut java = Command::new("java");
    java.current_dir(home)
        .args(["-Xms64m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"])
        .args(["-XX:-UsePerfData", "-Djava.net.preferIPv4Stack=true"])
        .arg(format!("-Djava.io.tmpdir={}", home.join("data").display()))
        .arg("-Djava.util.logging.manager=org.jboss.logmanager.LogManager")
        .arg(
            "-Djava.util.concurrent.ForkJoinPool.common.threadFactory=\
             io.quarkus.bootstrap.forkjoin.QuarkusForkJoinWorkerThreadFactory",
        )
        .arg("-Dpicocli.disable.closures=true")
        .arg(format!("-Dkc.home.dir={}", home.display()))
        .arg(format!("-Djboss.server.config.dir={}", home.join("conf").display()));
    for package in ["util", "util.concurrent", "security", "lang"] {
        java.arg(format!("--add-opens=java.base/java.{package}=ALL-UNNAMED"));
    }
    java.arg("-cp").arg(program.join("lib/quarkus-run.jar"));
    java.arg("io.quarkus.bootstrap.runner.QuarkusEntryPoint");
    let (user, password) = ADMIN;
    java.env("KC_BOOTSTRAP_ADMIN_USERNAME", user).env("KC_BOOTSTRAP_ADMIN_PASSWORD", password);
    java
}

fn start(place: &Place) -> Result<()> {
    let (program, own) = (program(&place.cache), place.dir.join("home"));
    if !own.exists() {
        home(&program, &own)?;
        let seeded = seed(&place.cache).join("data/keycloak.mv.db");
        std::fs::copy(&seeded, own.join("data/keycloak.mv.db"))
            .with_context(|| format!("{} cannot be copied", seeded.display()))?;
    }
    let port = place.port("http")?;
    let mut command = keycloak(&program, &own);
    command
        .args(["start", "--optimized", "--cache=local", "--hostname-strict=false"])
        .args(["--http-enabled=true", "--http-host=127.0.0.1"])
        .arg(format!("--http-port={port}"))
        .arg(database(&own));
    place.spawn("keycloak", &mut command)?;
    let address = format!("http://127.0.0.1:{port}");
    let (user, password) = ADMIN;
    let (sign_in, form) = (
        format!("{address}/realms/master/protocol/openid-connect/token"),
        format!("grant_type=password&client_id=admin-cli&username={user}&password={password}"),
    );
    place.ready("its admin can sign in", || curl(&["--data", &form, &sign_in]).map(drop))?;
    place.tell("", address)?;
    place.tell("realm", REALM_NAME)?;
    place.tell("admin_user", user)?;
    place.tell("admin_password", password)
}
