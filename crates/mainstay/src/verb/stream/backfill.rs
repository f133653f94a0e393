//! `mainstay stream backfill`: requests a backfill and waits for it.

use clap::Args;
use serde_json::Value;
use streams::kubectl::Client;
use streams::kubectl::find::FoundStream;
use streams::model::phase::Phase;
use streams::model::{CrdVersion, GROUP};

use super::wait::Wait;
use super::{ClusterArgs, display_name, show};
use crate::error::{Error, Result};
use crate::output::{self, text};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mainstay stream backfill orders
  mainstay stream backfill orders --wait --timeout 6h
  mainstay stream backfill orders --payload '{\"source\": {\"filter\": \"day > 5\"}}'

Creates a BackfillRequest. With --wait the exit code is 0 once it is completed, 6 if the backfill
failed or the request was refused, 7 on timeout (the backfill continues).")]
pub struct Backfill {
    /// NAME, KIND/NAME or CLASS/NAME
    stream: String,
    /// JSON that is merged into the stream's spec for this backfill; @FILE reads a file
    #[arg(long, value_name = "JSON")]
    payload: Option<String>,
    #[command(flatten)]
    wait: Wait,
    #[command(flatten)]
    cluster: ClusterArgs,
}

impl Backfill {
    pub async fn run(self) -> Result<()> {
        let payload = self.payload.as_deref().map(payload).transpose()?;
        let (client, found) = self.cluster.find(&self.stream).await?;
        let request = client.backfill(&found, payload).await?;
        let name = match found.class.crd_version {
            CrdVersion::V1 => text(&request["metadata"]["name"]),
            CrdVersion::V1Beta1 => String::new(),
        };
        show::written(self.cluster.output, &request, &said(&found, &name))?;
        if !self.wait.wait {
            return Ok(());
        }
        match found.class.crd_version {
            CrdVersion::V1 => self.wait_for(&client, &found, &name).await?,
            CrdVersion::V1Beta1 => self.wait_for_reload(&client, &found).await?,
        }
        output::say(&format!("{} has been backfilled", display_name(&found)));
        Ok(())
    }

    async fn wait_for(&self, client: &Client, found: &FoundStream, name: &str) -> Result<()> {
        let namespace = &found.object_name().namespace;
        let path = format!("/apis/{GROUP}/v1/namespaces/{namespace}/backfillrequests/{name}");
        let began_failed = found.stream.phase == Phase::Failed;
        let done = async |now: &FoundStream| {
            let Some(request) = client.get(&path).await? else {
                return Err(failed(format!(
                    "the request {name} was deleted before it was completed"
                )));
            };
            if request["spec"]["completed"] == true {
                return Ok(true);
            }
            if request["status"]["phase"] == "Failed" {
                let why = text(&request["status"]["conditions"][0]["message"]);
                return Err(failed(format!("the request {name} cannot be carried out: {why}")));
            }
            // A stream that had failed before may still be about to leave Failed.
            if now.stream.phase == Phase::Failed && !began_failed {
                let why = show::headline(client, now).await;
                return Err(failed(format!("{}: {why}", display_name(now))));
            }
            Ok(false)
        };
        self.wait.until(client, found, done).await.map(drop)
    }

    /// v1beta1: the annotation is removed when the Job is created, and the phase changes when it
    /// ends.
    async fn wait_for_reload(&self, client: &Client, found: &FoundStream) -> Result<()> {
        let mut begun = false;
        let done = async |now: &FoundStream| {
            begun |= now.stream.phase == Phase::Backfilling;
            if now.stream.phase == Phase::Failed {
                let why = show::headline(client, now).await;
                return Err(failed(format!("{}: {why}", display_name(now))));
            }
            Ok(begun && now.stream.phase == Phase::Running)
        };
        self.wait.until(client, found, done).await.map(drop)
    }
}

fn failed(why: String) -> Error {
    kernel::Error::Conflict(why).into()
}

fn said(found: &FoundStream, request: &str) -> String {
    let name = display_name(found);
    let later = match (found.suspended(), found.stream.phase) {
        // One annotation holds either state.
        (true, _) if found.class.crd_version == CrdVersion::V1Beta1 => {
            "; it was suspended and is resumed by this"
        }
        (true, _) => "; it is suspended, so the backfill starts when it is resumed",
        (false, Phase::Failed) => "; it has failed, so the backfill starts when it is restarted",
        (false, _) => "",
    };
    match request {
        "" => format!("requested a backfill of {name}{later}"),
        request => format!("requested a backfill of {name} with the request {request}{later}"),
    }
}

/// Parses a JSON object, or the file that contains it.
fn payload(given: &str) -> Result<Value> {
    let text = match given.strip_prefix('@') {
        Some(file) => std::fs::read_to_string(file)
            .map_err(|error| Error::file(format!("{file} cannot be read"), error))?,
        None => given.to_owned(),
    };
    let invalid = |what: String| kernel::Error::invalid("payload", what);
    match serde_json::from_str(&text) {
        Ok(value @ Value::Object(_)) => Ok(value),
        Ok(_) => Err(invalid("must be a JSON object, as in {\"source\": {…}}".into()).into()),
        Err(error) => Err(invalid(format!("is not JSON: {error}")).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_must_be_an_object() {
        assert!(payload("{\"a\": 1}").is_ok());
        for (bad, part) in
            [("[1]", "object"), ("{", "not JSON"), ("@/no/such/file", "cannot be read")]
        {
            let said = payload(bad).unwrap_err().to_string();
            assert!(said.contains(part), "{bad}: {said}");
        }
    }
}
