//! `mainstay bus command`: how a command went, whichever way it came.

use clap::Args;
use serde_json::Value;

use crate::client::{Client, ClientArgs};
use crate::error::Result;
use crate::output::{self, text};

#[derive(Debug, Args)]
pub struct Command {
    /// Its id, as the sender chose it
    id: String,
    /// Admins only: the sender of the command [default: you]
    #[arg(long)]
    subject: Option<String>,
    /// Admins only: the sender's issuer; `bus` for one that the bus' configuration names [default: yours]
    #[arg(long)]
    issuer: Option<String>,
    #[command(flatten)]
    client: ClientArgs,
}

impl Command {
    pub async fn run(self) -> Result<()> {
        let mut client = Client::new(&self.client)?;
        let query = [("subject", self.subject), ("issuer", self.issuer)];
        let mut url = client.url("/api/v1/command", &query);
        // Ids may have a slash, as those of schedules do.
        url.path_segments_mut().expect("an http address has a path").push(&self.id);
        let found: Value = client.get(url).await?;
        let head = ["ID", "STATE", "STATUS", "OBJECT", "PHASE", "EVENT", "WHY"];
        output::print(&output::render(self.client.output, &found, &head, &|one| {
            vec![
                text(&one["id"]),
                text(&one["state"]),
                text(&one["status"]),
                text(&one["subject"]),
                text(&one["phase"]),
                text(&one["event"]),
                text(&one["reply"]["message"]),
            ]
        }))
    }
}
