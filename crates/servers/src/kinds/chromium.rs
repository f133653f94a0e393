//! ChromeDriver, which starts a Chromium for each session.

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::install::{CURL, in_path, is_root};
use crate::wire::curl;
use crate::{Install, Place, Server};

pub const SERVER: Server = Server {
    name: "chromium",
    version: "the system's",
    cost: "apt packages, about a minute",
    needs: &[CURL],
    installed: |_| browser().is_some() && in_path("chromedriver").is_some(),
    install,
    start,
    stop_signals: &["TERM"],
};

const BROWSERS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "chrome"];

fn browser() -> Option<std::path::PathBuf> {
    BROWSERS.iter().find_map(|name| in_path(name))
}

fn install(install: &Install) -> Result<()> {
    install.apt(&["chromium", "chromium-driver"], &["chromium and chromedriver"])
}

fn start(place: &Place) -> Result<()> {
    let port = place.port("main")?;
    let browser = browser().context("Chromium is not installed")?;
    let mut driver = Command::new("chromedriver");
    // Without a list of allowed addresses it listens on loopback, with one on all.
    driver.arg(format!("--port={port}"));
    // Profiles, caches and crash reports: all below the place.
    driver.env("HOME", &place.dir).env("TMPDIR", place.sub("tmp")?);
    place.spawn("chromedriver", &mut driver)?;
    let address = format!("http://127.0.0.1:{port}");
    place.ready("it takes sessions", || {
        let status = curl(&[&format!("{address}/status")])?;
        if status.contains("\"ready\":true") { Ok(()) } else { bail!("it says {status}") }
    })?;
    place.tell("browser", browser.display())?;
    // Its sandbox does not work for root.
    place.tell("sandbox", if is_root() { "no" } else { "yes" })?;
    place.tell("", address)
}
