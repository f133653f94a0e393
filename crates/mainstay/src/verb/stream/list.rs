//! `mainstay stream list`.

use clap::Args;
use kernel::Ambient;
use serde_json::{Value, json};
use streams::kubectl::find::{FoundStream, Scope, access_problem, is_called};
use streams::model::spec_layout::Backend;

use super::{ClusterArgs, display_name};
use crate::error::Result;
use crate::output::{self, Format, ago, text};

#[derive(Debug, Args)]
pub struct List {
    /// Only streams of this class or kind
    #[arg(long, value_name = "CLASS")]
    class: Option<String>,
    /// Only streams in these phases, as in Failed,Suspended
    #[arg(long, value_name = "PHASE")]
    phase: Option<String>,
    /// Only streams with these labels, in kubectl's syntax
    #[arg(long, short = 'l', value_name = "SELECTOR")]
    selector: Option<String>,
    #[command(flatten)]
    cluster: ClusterArgs,
}

impl List {
    pub async fn run(self) -> Result<()> {
        let (client, scope) = self.cluster.open().await?;
        let selector = self.selector.as_deref().map(|selector| {
            let escaped: String =
                url::form_urlencoded::byte_serialize(selector.as_bytes()).collect();
            format!("&labelSelector={escaped}")
        });
        let of = |class: &streams::model::class::Class| {
            self.class.as_deref().is_none_or(|name| is_called(class, name))
        };
        let listing = client.streams(&scope, &of, selector.as_deref().unwrap_or_default()).await?;
        let phases: Option<Vec<String>> = self
            .phase
            .as_ref()
            .map(|phases| phases.split(',').map(|phase| phase.trim().to_lowercase()).collect());
        let matches = |row: &Value| {
            let phase = text(&row["phase"]).to_lowercase();
            phases.as_ref().is_none_or(|phases| phases.contains(&phase))
        };
        let rows: Vec<Value> = listing.streams.iter().map(row).filter(matches).collect();
        for said in listing.classes.iter().filter_map(access_problem).chain(listing.unreadable) {
            output::say(&format!("note: {said}"));
        }
        if rows.is_empty() && self.cluster.output == Format::Table {
            let me = output::program();
            let place = match &scope {
                Scope::Everywhere => "there is no such stream in any namespace".to_owned(),
                Scope::Namespace(name) => {
                    format!("there is no such stream in namespace {name}; use -A for all")
                }
            };
            let classes = if listing.classes.is_empty() {
                format!("\nThere is no StreamClass either; `{me} crds` prints the definitions.")
            } else {
                String::new()
            };
            output::say(&format!("{place}{classes}"));
            return Ok(());
        }
        output::print(&table(self.cluster.output, &Value::Array(rows)))
    }
}

/// The summary of a stream.
pub fn row(found: &FoundStream) -> Value {
    let (stream, object_name) = (&found.stream, found.object_name());
    let execution = stream.execution.as_ref().ok();
    let (backend, schedule) = match execution.and_then(|execution| execution.backend.as_ref()) {
        Some(Backend::ChangeCapture { .. }) => (Some("change-capture"), None),
        Some(Backend::Batch { schedule, .. }) => (Some("batch"), Some(schedule)),
        None => (None, None),
    };
    let written = stream.status.as_deref();
    let problem = stream.execution.as_ref().err().map(|problem| problem.to_string());
    json!({
        "key": display_name(found),
        "namespace": &*object_name.namespace,
        "name": &*object_name.name,
        "kind": &*found.class.kind,
        "class": &*found.class.name,
        "phase": stream.phase.label(found.class.crd_version),
        "suspended": found.suspended(),
        "downtime": found.downtime(),
        "paused": stream.annotations.paused,
        "backend": backend,
        "schedule": schedule,
        "problem": problem.or_else(|| stream.error_message().map(str::to_owned)),
        "message": written.map(|written| &*written.message),
        "since": written.and_then(|written| written.since).map(|at| at.to_string()),
        "created_at": stream.created.to_string(),
    })
}

pub fn table(format: Format, rows: &Value) -> String {
    let now = Ambient::system().now();
    let head = ["NAMESPACE", "NAME", "KIND", "PHASE", "BACKEND", "AGE", "NOTE"];
    output::render(format, rows, &head, &|one| {
        let backend = match (text(&one["backend"]), text(&one["schedule"])) {
            (backend, schedule) if schedule.is_empty() => backend,
            (_, schedule) => schedule,
        };
        let phase = text(&one["phase"]);
        vec![
            text(&one["namespace"]),
            text(&one["name"]),
            text(&one["kind"]),
            if phase.is_empty() { "-".into() } else { phase },
            backend,
            ago(&one["created_at"], now),
            note(one),
        ]
    })
}

/// The text of the NOTE column.
fn note(one: &Value) -> String {
    let phase = text(&one["phase"]).to_lowercase();
    match (&one["problem"], &one["downtime"]) {
        (Value::String(problem), _) => problem.clone(),
        (_, Value::String(key)) => format!("downtime {key}"),
        _ if one["paused"] == true => "paused".into(),
        _ if one["suspended"] == true && phase != "suspended" => "is being suspended".into(),
        _ if phase == "failed" || phase == "pending" || phase == "restarting" => {
            text(&one["message"])
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_note_shows_problems() {
        for (row, said) in [
            (json!({ "phase": "Running", "message": "fine" }), ""),
            (json!({ "phase": "Failed", "message": "exit 1" }), "exit 1"),
            (json!({ "phase": "Suspended", "suspended": true }), ""),
            (json!({ "phase": "Running", "suspended": true }), "is being suspended"),
            (json!({ "phase": "Suspended", "downtime": "move" }), "downtime move"),
            (json!({ "phase": "Running", "paused": true }), "paused"),
            (json!({ "problem": "spec.suspended is missing" }), "spec.suspended is missing"),
        ] {
            assert_eq!(note(&row), said, "{row}");
        }
    }
}
