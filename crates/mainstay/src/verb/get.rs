//! `mainstay get`: one object, now or when it has reached a state.

use std::time::{Duration, Instant};

use kernel::{Class, Key};
use serde_json::Value;

use super::list;
use crate::cli::duration;
use crate::client::{Client, ClientArgs};
use crate::error::{Error, Result};
use crate::output;
use crate::progress::Progress;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mainstay get widget cq1v0c8h5g2s73d1q8pg
  mainstay get widget/cq1v0c8h5g2s73d1q8pg -o json
  mainstay get widget/ID --wait                    until its current spec is in effect
  mainstay get widget/ID --wait-phase ready,failed --timeout 5m
  mainstay get widget/ID --wait-phase deleted      until it is gone")]
pub struct Get {
    /// The kind, or KIND/ID
    kind: String,
    /// The id, if KIND is only the kind
    id: Option<String>,
    /// Wait until it is in this phase, or in one of several: ready,failed
    #[arg(long, value_name = "PHASE")]
    wait_phase: Option<String>,
    /// Wait until its current spec is in effect
    #[arg(long)]
    wait: bool,
    /// Wait no longer than this
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = duration)]
    timeout: Duration,
    #[command(flatten)]
    client: ClientArgs,
}

/// The duration of one long poll; below the timeouts of proxies.
const POLL: Duration = Duration::from_secs(20);
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// The shortest interval between two requests.
const PAUSE: Duration = Duration::from_millis(200);

impl Get {
    /// Waits for an object to be in one of these phases.
    pub fn until(kind: &str, id: &str, phases: &str, timeout: Duration, client: ClientArgs) -> Get {
        let wait_phase = Some(phases.to_owned());
        Get { kind: kind.into(), id: Some(id.into()), wait_phase, wait: false, timeout, client }
    }

    pub async fn wait(&self) -> Result<()> {
        let key = key(&self.kind, self.id.as_deref())?;
        self.wait_for(&key, &mut Client::new(&self.client)?).await.map(drop)
    }

    pub async fn run(self) -> Result<()> {
        let key = key(&self.kind, self.id.as_deref())?;
        let mut client = Client::new(&self.client)?;
        let object = if self.wait || self.wait_phase.is_some() {
            self.wait_for(&key, &mut client).await?
        } else {
            let path = format!("/api/v1/objects/{key}");
            Some(client.get::<Value>(client.url(&path, &[])).await?)
        };
        match object {
            Some(object) => output::print(&list::objects(self.client.output, &object, &client)),
            None => {
                output::say(&format!("{key} is gone"));
                Ok(())
            }
        }
    }

    /// Polls until the deadline; an unreachable server is retried.
    async fn wait_for(&self, key: &Key, client: &mut Client) -> Result<Option<Value>> {
        let begun = Instant::now();
        let progress = Progress::new();
        let mut message = format!("{key}: waiting");
        let mut generation = None;
        loop {
            let requested_at = Instant::now();
            let left = self.timeout.saturating_sub(begun.elapsed());
            // Rounded up to a second: a wait of zero would poll in a loop at the end.
            let seconds = POLL.min(left).as_millis().div_ceil(1000);
            let query = [
                ("wait_phase", self.wait_phase.clone()),
                ("wait_generation", generation.map(|g: i64| g.to_string())),
                ("timeout_s", Some(seconds.to_string())),
            ];
            let url = client.url(&format!("/api/v1/objects/{key}"), &query);
            let object = match progress.during(&message, client.ask::<Value>(url)).await {
                Ok(object) => object,
                Err(e) if e.class() == Class::NotFound && self.waits_for_deletion() => {
                    return Ok(None);
                }
                Err(e) if e.class() == Class::Transient && !left.is_zero() => {
                    message = format!("{key}: {e}; trying again");
                    progress.during(&message, tokio::time::sleep(RETRY_AFTER.min(left))).await;
                    continue;
                }
                Err(e) => return Err(e),
            };
            if self.reached(&object) {
                return Ok(Some(object));
            }
            if !object["deleted_at"].is_null() {
                return Err(deleted(key));
            }
            if left.is_zero() {
                return Err(self.timed_out(key, &object));
            }
            message = format!("{key}: {}", output::text(&object["phase"]));
            let first = self.wait && generation.is_none();
            if self.wait {
                generation = object["generation"].as_i64();
            }
            // An immediate response that does not match comes from a server that is stopping.
            if !first && requested_at.elapsed() < PAUSE {
                progress.during(&message, tokio::time::sleep(PAUSE)).await;
            }
        }
    }

    fn waits_for_deletion(&self) -> bool {
        self.wait_phase.as_deref() == Some("deleted")
    }

    fn reached(&self, object: &Value) -> bool {
        let is = |phase: &str| object["phase"] == phase;
        let phase = self.wait_phase.as_ref().is_none_or(|phases| phases.split(',').any(is));
        let gone = self.waits_for_deletion() && !object["deleted_at"].is_null();
        let number = |field: &str| object[field].as_i64().unwrap_or(0);
        let carried_out = !self.wait || number("observed") >= number("generation");
        (phase || gone) && carried_out
    }

    fn timed_out(&self, key: &Key, object: &Value) -> Error {
        let phase = output::text(&object["phase"]);
        let wanted = self.wait_phase.as_ref().map_or("done".into(), |phase| format!("`{phase}`"));
        let text = |seconds| {
            format!(
                "{key} is not {wanted} after {seconds} s: it is `{phase}`; `{} work --key {key}` may say why",
                output::program()
            )
        };
        Error::TimedOut(text(self.timeout.as_secs()))
    }
}

/// A deleted object does not come back, whatever phase is waited for.
fn deleted(key: &Key) -> Error {
    Error::Server {
        class: Class::NotFound,
        message: format!("{key} was deleted"),
        field: None,
        request_id: None,
    }
}

/// `KIND ID` or `KIND/ID`.
pub fn key(kind: &str, id: Option<&str>) -> Result<Key> {
    if id.is_none() && !kind.contains('/') {
        let why = format!(
            "must be given, as in {kind}/ID; `{} list {kind}` shows what there is",
            output::program()
        );
        return Err(kernel::Error::invalid("id", why).into());
    }
    let text = id.map_or(kind.to_owned(), |id| format!("{kind}/{id}"));
    Ok(Key::parse(&text)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Format;
    use serde_json::json;

    fn get(wait_phase: Option<&str>, wait: bool) -> Get {
        let client = ClientArgs { server: Default::default(), output: Format::Table };
        let wait_phase = wait_phase.map(str::to_owned);
        Get { client, kind: String::new(), id: None, wait_phase, wait, timeout: Duration::ZERO }
    }

    #[test]
    fn a_wait_ends_when_everything_that_was_asked_for_holds() {
        let object = json!({"phase": "ready", "generation": 2, "observed": 1});
        let done = json!({"phase": "ready", "generation": 2, "observed": 2});
        let deleted = json!({"phase": "deleting", "deleted_at": "2023-11-14T22:13:20Z"});
        assert!(get(Some("ready"), false).reached(&object));
        assert!(!get(Some("failed"), false).reached(&object));
        assert!(!get(None, true).reached(&object));
        assert!(!get(Some("ready"), true).reached(&object));
        assert!(get(Some("ready"), true).reached(&done));
        assert!(get(Some("deleted"), false).reached(&deleted));
    }

    #[test]
    fn an_object_is_named_in_one_word_or_two() {
        assert_eq!(key("widget", Some("a")).unwrap(), key("widget/a", None).unwrap());
        assert_eq!(key("widget", None).unwrap_err().class(), Class::Invalid);
        assert_eq!(key("widget", Some("../x")).unwrap_err().class(), Class::Invalid);
    }
}
