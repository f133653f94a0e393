//! The program of a Kafka instance on the local data plane: a real broker where Java and Kafka's jars
//! are installed, else librdkafka's mock cluster, which says so.

mod broker;
mod home;
mod mock;

use std::path::Path;

use kernel::{Error, Result};

use home::Home;

/// Printed when clients can connect.
pub const READY_LINE: &str = "mainstay: the broker takes clients";

/// Serves on the loopback address until SIGTERM.
pub async fn run(dir: impl AsRef<Path>, port: u16) -> Result<()> {
    let dir = std::path::absolute(dir.as_ref())
        .map_err(|error| Error::unavailable("the directory", error))?;
    match Home::find()? {
        Ok(home) => broker::run(&home, &dir, port).await,
        Err(missing) if broker::has_data(&dir) => {
            let what = format!("a broker for the data in {}", dir.display());
            Err(Error::unavailable(what, missing))
        }
        Err(missing) => mock::run(&dir, &missing).await,
    }
}

fn problem(what: &str) -> impl FnOnce(std::io::Error) -> Error {
    move |error| Error::unavailable(what, error)
}
