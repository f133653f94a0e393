//! `mainstay bus …`: where events go, how far they are, and how a command went.

mod command;
mod steer;
mod webhook;

use clap::Subcommand;
use kernel::Class;
use serde_json::{Value, json};

use crate::client::{Client, ClientArgs};
use crate::error::{Error, Result};
use crate::output::{self, Format, ago, text};

const PATH: &str = "/api/v1/sinks";

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Show how far each sink is: position, lag, parked events
    #[command(after_help = "\
Phases: running, failing (is tried again by itself), parked (waits for `mainstay bus resume`), off
(no longer configured). LAG is how many events come after the position, SECONDS how long the
oldest of them waits; events that the filter of the sink leaves out count as well.

Examples:
  mainstay bus status
  mainstay bus status -o json | jq '.[] | select(.phase != \"running\")'")]
    Status(ClientArgs),
    /// Show what each sink is: what carries it, where it goes, and which events it gets
    #[command(after_help = "\
Examples:
  mainstay bus sinks
  mainstay bus sinks -o name")]
    Sinks(ClientArgs),
    /// Send events again to a sink, in a new epoch
    #[command(after_help = "\
The messages have the same sequence as before, and a higher epoch.

Examples:
  mainstay events --last 20                   the numbers of the newest events
  mainstay bus replay orders --from 1200")]
    Replay(steer::Replay),
    /// Resume a parked sink, and send its parked events again
    #[command(after_help = "\
Events that are refused again stay parked. A sink that is failing is tried at once.

Examples:
  mainstay bus resume orders
  mainstay bus resume orders --discard        forget the parked events")]
    Resume(steer::Resume),
    /// Events that could not be delivered
    #[command(subcommand)]
    Park(Park),
    /// Webhooks of your organisation
    #[command(subcommand)]
    Webhook(webhook::Verb),
    /// Show how a command went, whichever way it came
    #[command(after_help = "\
The id is the one that the sender chose: `id` of the message, or `Idempotency-Key` over REST. Ids
belong to their senders, so admins name the sender. Known for retention.commands_days.

Examples:
  mainstay bus command order-4711
  mainstay bus command order-4711 --subject orders --issuer bus -o json")]
    Command(command::Command),
}

#[derive(Debug, Subcommand)]
pub enum Park {
    /// List parked events, and gaps: events that were purged before they were delivered
    #[command(after_help = "\
Examples:
  mainstay bus park list
  mainstay bus park list orders
  mainstay events --after 1199 --limit 1      event 1200 itself")]
    List {
        /// The name or id of a sink; all without it
        sink: Option<String>,
        #[command(flatten)]
        client: ClientArgs,
    },
}

impl Verb {
    pub async fn run(self) -> Result<()> {
        match self {
            Verb::Status(args) => status(&args).await,
            Verb::Sinks(args) => {
                let list: Value = list(&mut Client::new(&args)?).await?;
                if is_empty(&list["sinks"]) && args.output == Format::Table {
                    output::say(&none());
                    return Ok(());
                }
                output::print(&sink_rows(args.output, &list["sinks"]))
            }
            Verb::Replay(verb) => verb.run().await,
            Verb::Resume(verb) => verb.run().await,
            Verb::Park(Park::List { sink, client }) => list_parked(sink.as_deref(), &client).await,
            Verb::Webhook(verb) => verb.run().await,
            Verb::Command(verb) => verb.run().await,
        }
    }
}

fn none() -> String {
    let program = output::program();
    format!(
        "there are no sinks: `{program} bus webhook create NAME --url URL` posts events to a URL, \
         bus.sinks of the server's configuration sends them to Kafka or RabbitMQ, and \
         `{program} events --follow` shows them here"
    )
}

fn is_empty(list: &Value) -> bool {
    list.as_array().is_none_or(Vec::is_empty)
}

async fn list(client: &mut Client) -> Result<Value> {
    client.get(client.url(PATH, &[])).await
}

/// The sink with this id, or else with this name.
async fn find(client: &mut Client, wanted: &str) -> Result<Value> {
    let all = list(client).await?;
    pick(all["sinks"].as_array().map_or(&[], Vec::as_slice), wanted)
}

fn pick(all: &[Value], wanted: &str) -> Result<Value> {
    let id = wanted.strip_prefix("sink/").unwrap_or(wanted);
    if let Some(sink) = all.iter().find(|sink| sink["id"] == id) {
        return Ok(sink.clone());
    }
    let named: Vec<&Value> = all.iter().filter(|sink| sink["name"] == wanted).collect();
    match named[..] {
        [sink] => Ok(sink.clone()),
        [] => {
            let names: Vec<String> = all.iter().map(|sink| text(&sink["name"])).collect();
            let others =
                if names.is_empty() { none() } else { format!("there are: {}", names.join(", ")) };
            let message = format!("the sink `{wanted}` does not exist; {others}");
            Err(Error::Server { class: Class::NotFound, message, field: None, request_id: None })
        }
        _ => {
            let ids =
                named.iter().map(|sink| format!("{} ({})", text(&sink["id"]), text(&sink["org"])));
            let ids = ids.collect::<Vec<_>>().join(", ");
            let why = format!("several sinks have the name `{wanted}`; give an id: {ids}");
            Err(kernel::Error::invalid("SINK", why).into())
        }
    }
}

async fn status(args: &ClientArgs) -> Result<()> {
    let list = list(&mut Client::new(args)?).await?;
    let sinks = &list["sinks"];
    if args.output != Format::Table {
        return output::print(&status_rows(args.output, sinks));
    }
    if is_empty(sinks) {
        output::say(&none());
        return Ok(());
    }
    output::print(&status_rows(args.output, sinks))?;
    output::say(&format!("the newest event is {}", text(&list["newest"])));
    let any = |holds: &dyn Fn(&Value) -> bool| sinks.as_array().into_iter().flatten().any(holds);
    let program = output::program();
    if any(&|sink| !is_empty(&sink["parked"]) || !is_empty(&sink["gaps"])) {
        output::say(&format!("`{program} bus park list` shows what was not delivered, and why"));
    }
    if any(&|sink| sink["phase"] == "parked") {
        output::say(&format!("a parked sink sends nothing until `{program} bus resume SINK`"));
    }
    Ok(())
}

/// How far one sink or several are.
fn status_rows(format: Format, sinks: &Value) -> String {
    let head = ["SINK", "PHASE", "POSITION", "EPOCH", "LAG", "SECONDS", "PARKED", "GAPS", "WHY"];
    let count = |list: &Value| list.as_array().map_or(0, Vec::len).to_string();
    output::render(format, sinks, &head, &|sink| {
        vec![
            text(&sink["name"]),
            text(&sink["phase"]),
            text(&sink["position"]["seq"]),
            text(&sink["position"]["epoch"]),
            text(&sink["lag_events"]),
            format!("{:.1}", sink["lag_s"].as_f64().unwrap_or_default()),
            count(&sink["parked"]),
            count(&sink["gaps"]),
            text(&sink["reason"]),
        ]
    })
}

/// What sinks are.
fn sink_rows(format: Format, sinks: &Value) -> String {
    let head = ["ID", "NAME", "KIND", "ORG", "TARGET", "MODE", "FILTER"];
    output::render(format, sinks, &head, &|sink| {
        vec![
            text(&sink["id"]),
            text(&sink["name"]),
            text(&sink["transport"]),
            text(&sink["org"]),
            text(&sink["target"]),
            text(&sink["mode"]),
            filter(&sink["filter"]),
        ]
    })
}

/// `kind=kafka,widget type=mainstay.kafka.*`, or `all`.
fn filter(filter: &Value) -> String {
    let list = |field: &str, name: &str| {
        let values = filter[field].as_array().filter(|values| !values.is_empty())?;
        let values = values.iter().map(text).collect::<Vec<_>>().join(",");
        Some(format!("{name}={values}"))
    };
    let commands = (filter["commands"] == true).then(|| "commands".to_owned());
    let parts = [list("kinds", "kind"), list("types", "type"), list("orgs", "org"), commands];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() { "all".into() } else { parts.join(" ") }
}

async fn list_parked(sink: Option<&str>, args: &ClientArgs) -> Result<()> {
    let mut client = Client::new(args)?;
    let sinks = match sink {
        Some(sink) => vec![find(&mut client, sink).await?],
        None => match list(&mut client).await?["sinks"].take() {
            Value::Array(sinks) => sinks,
            _ => Vec::new(),
        },
    };
    let skipped: Vec<Value> = sinks.iter().flat_map(skipped).collect();
    if skipped.is_empty() && args.output == Format::Table {
        output::say("no events are parked, and none were purged before they were delivered");
        return Ok(());
    }
    let now = client.ambient.now();
    let head = ["SINK", "EVENTS", "WHAT", "AGE", "WHY"];
    output::print(&output::render(args.output, &Value::Array(skipped), &head, &|one| {
        let events = if one["first"] == one["last"] {
            text(&one["first"])
        } else {
            format!("{}-{}", text(&one["first"]), text(&one["last"]))
        };
        let age = if one["at"].is_null() { String::new() } else { ago(&one["at"], now) };
        vec![text(&one["name"]), events, text(&one["what"]), age, text(&one["reason"])]
    }))?;
    if args.output == Format::Table {
        let program = output::program();
        output::say(&format!(
            "`{program} bus resume SINK` sends parked events again, with --discard it forgets them"
        ));
    }
    Ok(())
}

/// What a sink did not deliver: one value per parked event and per gap.
fn skipped(sink: &Value) -> Vec<Value> {
    let each = |field: &str| sink[field].as_array().cloned().unwrap_or_default().into_iter();
    let parked = each("parked").map(|one| {
        json!({
            "what": "parked", "first": one["seq"], "last": one["seq"], "at": one["at"],
            "reason": one["reason"], "name": sink["name"], "id": sink["id"],
        })
    });
    let gaps = each("gaps").map(|gap| {
        json!({
            "what": "gap", "first": gap["first"], "last": gap["last"],
            "reason": "purged before they were delivered (retention.unread_events_days)",
            "name": sink["name"], "id": sink["id"],
        })
    });
    parked.chain(gaps).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sink_is_found_by_its_id_and_else_by_its_name() {
        let all = [
            json!({"id": "a1", "name": "builds", "org": "acme"}),
            json!({"id": "a2", "name": "builds", "org": "globex"}),
            json!({"id": "orders", "name": "orders", "org": ""}),
            json!({"id": "a3", "name": "audit", "org": "acme"}),
        ];
        for (wanted, id) in [("a2", "a2"), ("sink/a2", "a2"), ("orders", "orders"), ("audit", "a3")]
        {
            assert_eq!(pick(&all, wanted).expect(wanted)["id"], id);
        }
        let several = pick(&all, "builds").unwrap_err();
        assert_eq!(several.class(), Class::Invalid);
        assert!(several.to_string().contains("a1 (acme), a2 (globex)"), "{several}");
        let missing = pick(&all, "build").unwrap_err();
        assert_eq!(missing.class(), Class::NotFound);
        assert!(missing.to_string().contains("there are: builds, "), "{missing}");
        assert!(pick(&[], "x").unwrap_err().to_string().contains("bus webhook create"));
    }

    #[test]
    fn a_filter_is_shown_as_words() {
        let some = json!({"kinds": ["kafka"], "types": ["a.*", "b"], "orgs": [], "commands": true});
        assert_eq!(filter(&some), "kind=kafka type=a.*,b commands");
        assert_eq!(filter(&json!({"kinds": [], "commands": false})), "all");
    }

    #[test]
    fn parked_events_and_gaps_are_one_list() {
        let sink = json!({
            "id": "a1", "name": "builds",
            "parked": [{"seq": 7, "at": "2026-01-01T00:00:00Z", "reason": "too large"}],
            "gaps": [{"first": 1, "last": 5}],
        });
        let all = skipped(&sink);
        assert_eq!((&all[0]["first"], &all[0]["reason"]), (&json!(7), &json!("too large")));
        assert_eq!((&all[1]["what"], &all[1]["last"]), (&json!("gap"), &json!(5)));
    }
}
