//! `mainstay bus replay` and `resume`: what people ask of a sink, and what came of it.

use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{PATH, find, status_rows};
use crate::client::{Client, ClientArgs};
use crate::error::Result;
use crate::output::{self, text};

/// How long is waited for what a request leads to. A sink that works obeys within milliseconds.
const WAIT: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(100);

#[derive(Debug, Args)]
pub struct Replay {
    /// Its name or id
    sink: String,
    /// The number of the first event to send again
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(1..))]
    from: i64,
    #[command(flatten)]
    client: ClientArgs,
}

#[derive(Debug, Args)]
pub struct Resume {
    /// Its name or id
    sink: String,
    /// Forget the parked events instead of sending them again
    #[arg(long)]
    discard: bool,
    #[command(flatten)]
    client: ClientArgs,
}

impl Replay {
    pub async fn run(self) -> Result<()> {
        let mut client = Client::new(&self.client)?;
        let before = find(&mut client, &self.sink).await?;
        let (id, name) = (text(&before["id"]), text(&before["name"]));
        let url = client.url(&format!("{PATH}/{id}/replay"), &[]);
        let asked = client.post(url, Some(&json!({ "from": self.from }))).await?;
        let epoch = asked["spec"]["epoch"].as_i64().unwrap_or_default();
        let begun = |sink: &Value| sink["position"]["epoch"].as_i64() >= Some(epoch);
        let sink = wait(&mut client, &id, begun).await?;
        output::print(&status_rows(self.client.output, &sink))?;
        let what = format!("events from {} on to {name}, in epoch {epoch}", self.from);
        output::say(&if begun(&sink) {
            format!("sending {what}")
        } else {
            format!("will send {what}, {}", when(&sink))
        });
        Ok(())
    }
}

impl Resume {
    pub async fn run(self) -> Result<()> {
        let mut client = Client::new(&self.client)?;
        let before = find(&mut client, &self.sink).await?;
        let (id, name) = (text(&before["id"]), text(&before["name"]));
        let url = client.url(&format!("{PATH}/{id}/resume"), &[]);
        client.post(url, Some(&json!({ "discard": self.discard }))).await?;
        let sink = wait(&mut client, &id, |sink| is_resumed(&before, sink)).await?;
        output::print(&status_rows(self.client.output, &sink))?;
        output::say(&if is_resumed(&before, &sink) {
            outcome(&name, &before, &sink, self.discard)
        } else {
            format!("{name} will resume {}", when(&sink))
        });
        Ok(())
    }
}

/// Reads a sink until it is as desired, or for a while.
async fn wait(client: &mut Client, id: &str, desired: impl Fn(&Value) -> bool) -> Result<Value> {
    let until = Instant::now() + WAIT;
    loop {
        let url = client.url(&format!("{PATH}/{id}"), &[]);
        let sink: Value = client.get(url).await?;
        if desired(&sink) || sink["phase"] == "off" || Instant::now() >= until {
            return Ok(sink);
        }
        tokio::time::sleep(POLL).await;
    }
}

fn parked(sink: &Value) -> &[Value] {
    sink["parked"].as_array().map_or(&[], Vec::as_slice)
}

/// Whether a sink works and has tried all that was parked before. An event that is parked again has
/// another time.
fn is_resumed(before: &Value, sink: &Value) -> bool {
    sink["phase"] == "running" && !parked(sink).iter().any(|one| parked(before).contains(one))
}

fn outcome(name: &str, before: &Value, sink: &Value, discard: bool) -> String {
    let was = |one: &&Value| parked(before).iter().any(|old| old["seq"] == one["seq"]);
    let (tried, refused) = (parked(before).len(), parked(sink).iter().filter(was).count());
    let events = if tried == 1 { "parked event" } else { "parked events" };
    let result = match (tried, refused) {
        (0, _) => "no events were parked".into(),
        _ if discard => format!("forgot {tried} {events}"),
        (_, 0) => format!("sent {tried} {events} again"),
        _ => format!(
            "sent {} of {tried} {events} again, the rest was refused; `{} bus park list {}` says why",
            tried - refused,
            output::program(),
            output::quoted(name)
        ),
    };
    format!("{name} is running; {result}")
}

/// When a sink that has not obeyed yet will.
fn when(sink: &Value) -> String {
    match text(&sink["phase"]).as_str() {
        "off" => "when it is in the server's configuration again".into(),
        "failing" => format!("when it can be reached: {}", text(&sink["reason"])),
        "parked" => {
            format!("when it can be reached; it is still parked: {}", text(&sink["reason"]))
        }
        _ => "as soon as a server relays to it".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sink(phase: &str, parked: &[(i64, &str)]) -> Value {
        let parked = parked.iter().map(|(seq, at)| json!({"seq": seq, "at": at}));
        json!({"phase": phase, "parked": parked.collect::<Vec<_>>(), "reason": "it is away"})
    }

    #[test]
    fn a_sink_is_resumed_when_everything_parked_was_tried() {
        let before = sink("parked", &[(1, "a"), (2, "a")]);
        assert!(!is_resumed(&before, &before));
        assert!(!is_resumed(&before, &sink("running", &[(2, "a")])));
        assert!(!is_resumed(&before, &sink("failing", &[])));
        assert!(is_resumed(&before, &sink("running", &[])));
        assert!(is_resumed(&before, &sink("running", &[(2, "b")])));
    }

    #[test]
    fn what_came_of_it_is_said() {
        let before = sink("parked", &[(1, "a"), (2, "a")]);
        let say =
            |before: &Value, after: &Value, discard| outcome("orders", before, after, discard);
        let fine = sink("running", &[]);
        assert_eq!(say(&before, &fine, false), "orders is running; sent 2 parked events again");
        assert_eq!(say(&before, &fine, true), "orders is running; forgot 2 parked events");
        assert_eq!(say(&fine, &fine, false), "orders is running; no events were parked");
        let again = say(&before, &sink("running", &[(2, "b")]), false);
        assert!(
            again.contains("sent 1 of 2 parked events again, the rest was refused; "),
            "{again}"
        );
        assert_eq!(when(&sink("failing", &[])), "when it can be reached: it is away");
    }
}
