//! `mainstay plane`: the processes that the local data plane runs, one for each instance.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::error::Result;

#[derive(Debug, Subcommand)]
pub enum Plane {
    /// A Kafka: a real broker if it is installed, else a mock cluster
    Kafka(Place),
    /// A small HTTP service
    Http {
        #[command(flatten)]
        place: Place,
        #[arg(long)]
        name: String,
    },
}

#[derive(Debug, Args)]
pub struct Place {
    /// Its data directory
    #[arg(long)]
    dir: PathBuf,
    #[arg(long)]
    port: u16,
}

impl Plane {
    pub async fn run(self) -> Result<()> {
        match self {
            Plane::Kafka(place) => fleet::dataplane::kafka::run(&place.dir, place.port).await?,
            Plane::Http { place, name } => {
                fleet::dataplane::http::run(&place.dir, place.port, &name).await?;
            }
        }
        Ok(())
    }
}
