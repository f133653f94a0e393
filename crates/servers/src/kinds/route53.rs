//! Route 53's API, as moto serves it: everything in memory, gone with its process.

use std::process::Command;

use anyhow::Result;

use crate::install::{CURL, PYTHON};
use crate::versions::{FLASK, FLASK_CORS, MOTO};
use crate::wire::curl;
use crate::{Cache, Install, Place, Server};

pub const SERVER: Server = Server {
    name: "route53",
    version: MOTO,
    cost: "moto from PyPI into an environment of its own, half a minute",
    needs: &[PYTHON, CURL],
    installed: |cache| python(cache).exists(),
    install,
    start,
    stop_signals: &["TERM"],
};

fn python(cache: &Cache) -> std::path::PathBuf {
    cache.dir("moto", MOTO).join("bin/python")
}

fn install(install: &Install) -> Result<()> {
    install.cache.put("moto", MOTO, |dir| {
        let venv = ["-m", "venv", "--clear"];
        install.run("making an environment", Command::new("python3").args(venv).arg(dir))?;
        // Through python itself: the scripts in it name the directory, which is about to move.
        let mut pip = Command::new(dir.join("bin/python"));
        pip.args(["-m", "pip", "install", "--no-input", "--disable-pip-version-check"]);
        pip.arg(format!("moto=={MOTO}"));
        pip.arg(format!("flask=={FLASK}")).arg(format!("flask-cors=={FLASK_CORS}"));
        install.run("pip install moto", &mut pip)
    })
}

fn start(place: &Place) -> Result<()> {
    let port = place.port("main")?.to_string();
    let mut moto = Command::new(python(&place.cache));
    moto.args(["-m", "moto.server", "-H", "127.0.0.1", "-p", &port]);
    place.spawn("moto", moto.env("HOME", &place.dir).env("PYTHONDONTWRITEBYTECODE", "1"))?;
    let address = format!("http://127.0.0.1:{port}");
    // Which of Amazon's services is meant is in the signature, which nobody checks.
    let signed =
        "Authorization: AWS4-HMAC-SHA256 Credential=test/20200101/us-east-1/route53/aws4_request";
    place.ready("it lists zones", || {
        curl(&["-H", signed, &format!("{address}/2013-04-01/hostedzone")])
    })?;
    place.tell("", address)
}
