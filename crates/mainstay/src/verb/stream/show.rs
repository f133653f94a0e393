//! `mainstay stream get` and `describe`.

use clap::Args;
use serde_json::{Value, json};
use streams::explain::{self, Reason, StreamFacts};
use streams::kubectl::Client;
use streams::kubectl::find::FoundStream;

use super::{ClusterArgs, display_name, list};
use crate::error::Result;
use crate::output::{self, Format};

#[derive(Debug, Args)]
pub struct One {
    /// NAME, KIND/NAME or CLASS/NAME
    stream: String,
    #[command(flatten)]
    cluster: ClusterArgs,
}

impl One {
    pub async fn get(self) -> Result<()> {
        let (_, found) = self.cluster.find(&self.stream).await?;
        output::print(&match self.cluster.output {
            Format::Json => output::json(&found.raw),
            Format::Yaml => output::yaml(&found.raw),
            format => list::table(format, &list::row(&found)),
        })
    }

    pub async fn describe(self) -> Result<()> {
        let (client, found) = self.cluster.find(&self.stream).await?;
        let (facts, reasons) = explain_stream(&client, &found).await?;
        if self.cluster.output == Format::Table {
            return output::print(&description(&found, &facts, &reasons));
        }
        let events = facts.events.iter().map(|event| {
            json!({
                "at": event.at.to_string(), "warning": event.warning, "reason": event.reason,
                "message": event.message, "by": event.by,
            })
        });
        let requests = facts.requests.iter().map(|request| {
            json!({
                "name": &*request.object_name.name, "completed": request.completed,
                "created_at": request.created.to_string(), "phase": request.phase,
            })
        });
        let all = json!({
            "stream": list::row(&found),
            "reasons": reasons,
            "requests": requests.collect::<Vec<_>>(),
            "events": events.collect::<Vec<_>>(),
        });
        output::print(&match self.cluster.output {
            Format::Yaml => output::yaml(&all),
            Format::Name => display_name(&found),
            _ => output::json(&all),
        })
    }
}

/// Reads the facts about a stream and explains them.
pub async fn explain_stream(
    client: &Client,
    found: &FoundStream,
) -> Result<(StreamFacts, Vec<Reason>)> {
    let facts = client.facts(found, jiff::Timestamp::now()).await?;
    let reasons = explain::explain(&facts);
    Ok((facts, reasons))
}

/// Replaces the program name in suggested commands by the one in use.
pub fn as_called(text: &str) -> String {
    text.replace("`mainstay ", &format!("`{} ", output::program()))
}

fn description(found: &FoundStream, facts: &StreamFacts, reasons: &[Reason]) -> String {
    let object_name = found.object_name();
    let line = |name: &str, value: String| match value.as_str() {
        "" => String::new(),
        value => format!("{name:<14}{value}\n"),
    };
    let row = list::row(found);
    let of = |field: &str| output::text(&row[field]);
    let phase = if of("phase").is_empty() { "none yet".into() } else { of("phase") };
    let mut out = format!("{} in namespace {}\n", display_name(found), object_name.namespace);
    out += &line("Phase", phase);
    for reason in reasons {
        out += &format!("\n{}\n", reason.message);
        if !reason.fix.is_empty() {
            out += &format!("  -> {}\n", as_called(&reason.fix));
        }
    }
    out += "\n";
    out += &line("Class", format!("{} ({})", found.class.name, found.class.phase));
    out += &line("Backend", of("backend"));
    out += &line("Schedule", of("schedule"));
    let templates = facts.templates.iter().map(|(place, _)| place.to_string());
    out += &line("Templates", templates.collect::<Vec<_>>().join(", "));
    out += &line("Message", of("message"));
    if let explain::OperatorState::Lease(place, lease) = &facts.operator {
        out += &line("Operator", format!("{} ({place})", lease.holder));
    }
    out += &line("Created", of("created_at"));
    if !facts.requests.is_empty() {
        out += "\nBackfill requests\n";
        let rows = facts.requests.iter().rev().take(REQUESTS_MAX).map(|request| {
            let state = if request.completed { "completed" } else { "open" };
            vec![request.object_name.name.to_string(), state.into(), request.created.to_string()]
        });
        out += &output::table(&["NAME", "STATE", "CREATED"], rows);
    }
    if !facts.events.is_empty() {
        out += "\nWhat happened\n";
        let rows = facts.events.iter().rev().map(|event| {
            let kind = if event.warning { "Warning" } else { "" };
            vec![event.at.to_string(), kind.into(), event.reason.clone(), event.message.clone()]
        });
        out += &output::table(&["TIME", "", "REASON", "MESSAGE"], rows);
    }
    out
}

/// The number of requests that are shown.
const REQUESTS_MAX: usize = 5;

/// The most important reason for the state of a stream.
pub async fn headline(client: &Client, found: &FoundStream) -> String {
    match explain_stream(client, found).await {
        Ok((_, reasons)) => reasons.first().map_or_else(String::new, |first| {
            as_called(&format!("{} {}", first.message, first.fix))
        }),
        Err(error) => error.to_string(),
    }
}

/// Prints an object that was written, in the requested format.
pub fn written(format: Format, object: &Value, said: &str) -> Result<()> {
    match format {
        Format::Table => {
            output::say(said);
            Ok(())
        }
        Format::Json => output::print(&output::json(object)),
        Format::Yaml => output::print(&output::yaml(object)),
        Format::Name => output::print(&format!(
            "{}/{}",
            output::text(&object["kind"]),
            output::text(&object["metadata"]["name"])
        )),
    }
}
