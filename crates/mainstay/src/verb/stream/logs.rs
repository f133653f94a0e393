//! `mainstay stream logs`.

use clap::Args;
use streams::kubectl::logs::Tail;

use super::{ClusterArgs, display_name, show};
use crate::error::Result;
use crate::output;

#[derive(Debug, Args)]
pub struct Logs {
    /// NAME, KIND/NAME or CLASS/NAME
    stream: String,
    /// Follow the log
    #[arg(long, short)]
    follow: bool,
    /// Number of lines from the end
    #[arg(long, value_name = "LINES")]
    tail: Option<i64>,
    /// Container [default: the first one]
    #[arg(long, short, value_name = "NAME")]
    container: Option<String>,
    #[command(flatten)]
    cluster: ClusterArgs,
}

impl Logs {
    pub async fn run(self) -> Result<()> {
        let (client, found) = self.cluster.find(&self.stream).await?;
        let Some((pod, containers)) = client.last_pod(&found).await? else {
            let why = show::headline(&client, &found).await;
            let message =
                format!("{} has no pod, so there is nothing to read. {why}", display_name(&found));
            return Err(kernel::Error::coded(0, kernel::Class::NotFound, message).into());
        };
        let container = self.container.or_else(|| containers.first().cloned());
        if containers.len() > 1 {
            let all = containers.join(", ");
            output::say(&format!(
                "note: the pod {pod} has the containers {all}; select one with -c"
            ));
        }
        let tail = Tail { follow: self.follow, lines: self.tail, container };
        let mut print = |line: &str| {
            output::print(line).map_err(|error| kernel::Error::internal("stdout", error))
        };
        Ok(client.logs(&found.object_name().namespace, &pod, &tail, &mut print).await?)
    }
}
