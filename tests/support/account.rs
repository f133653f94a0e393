//! Holds what was acknowledged against what is there: nothing lost, nothing doubled, nothing
//! half-done, both logs whole.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::load::{Known, Ledger};
use crate::{Client, Plan, wait_for};

/// What was found.
#[derive(Debug, Default)]
pub struct Account {
    pub widgets: usize,
    pub deleted: usize,
    pub events: i64,
    pub audit_entries: i64,
    /// Acknowledged, but not there or not as it was acknowledged.
    pub lost: usize,
    /// There more than once, or carried out more often than acknowledged.
    pub doubled: usize,
    pub faults: Vec<String>,
}

/// How often something happened to an object.
type Tally = BTreeMap<String, i64>;

impl Account {
    /// Waits until everything has come to rest, then looks at all of it. `ledger` knows of every
    /// widget there is.
    pub async fn take(plan: &Plan, client: &Client, ledger: &Ledger) -> Account {
        rest(client).await;
        let mut account = Account { faults: ledger.faults.clone(), ..Account::default() };
        let objects = objects(client).await;
        let events = account.events(client).await;
        let audit = account.audit(plan, client).await;
        account.widgets = objects.values().map(Vec::len).sum();
        let known: BTreeMap<&str, &Known> =
            ledger.widgets.iter().map(|known| (known.name.as_str(), known)).collect();
        for (name, there) in &objects {
            let times = there.len() - usize::from(known.contains_key(name.as_str()));
            if times > 0 {
                account.doubled += times;
                account.faults.push(format!("{name} is there {times} times too often"));
            }
        }
        for known in &ledger.widgets {
            let there = objects.get(&known.name).and_then(|all| all.first());
            match there.map(|object| as_acknowledged(plan, known, object)) {
                None => {
                    account.lost += 1;
                    account.faults.push(format!("{known:?} is lost"));
                }
                Some(Err(fault)) => {
                    account.lost += 1;
                    account.faults.push(format!("{known:?}: {fault}"));
                }
                Some(Ok(())) => account.deleted += usize::from(known.deleted),
            }
            account.once(known, &events, ["created", "updated", "deleting", "deleted"]);
            account.once(known, &audit, ["create", "update", "delete", "deleted"]);
        }
        account
    }

    /// Events are numbered from 1 without a gap. Returns how often each happened.
    async fn events(&mut self, client: &Client) -> Tally {
        let mut tally = Tally::new();
        let (mut last, mut gaps) = (0, Vec::new());
        client
            .walk("/api/v1/events?limit=1000", "events", None, |event| {
                let sequence = event["sequence"].as_i64().unwrap_or(0);
                if sequence != last + 1 {
                    gaps.push(format!("event {sequence} follows event {last}"));
                }
                last = sequence;
                count(&mut tally, &event["subject"], &event["type"]);
            })
            .await;
        self.events = last;
        self.faults.extend(gaps);
        tally
    }

    /// The chain is whole, says the client's own verb. Returns how often each was done.
    async fn audit(&mut self, plan: &Plan, client: &Client) -> Tally {
        let token = plan.token();
        let ran = plan.run(&["audit", "verify", "--server", &plan.url(), "--token", &token]);
        if ran.code != 0 {
            self.faults.push(format!("audit verify: {ran:?}"));
        }
        let mut tally = Tally::new();
        let entries = &mut self.audit_entries;
        let path = "/api/v1/audit?limit=1000";
        client
            .walk(path, "entries", Some(0), |entry| {
                *entries += 1;
                count(&mut tally, &entry["entry"]["target"], &entry["entry"]["action"]);
            })
            .await;
        tally
    }

    /// Each act is in the log exactly as often as it was acknowledged.
    fn once(&mut self, known: &Known, tally: &Tally, names: [&str; 4]) {
        let gone = i64::from(known.deleted);
        let due = [1, known.generation - 1 - gone, gone, gone];
        for (name, due) in names.into_iter().zip(due) {
            let found = tally.get(&format!("{} {name}", known.id)).copied().unwrap_or(0);
            if found != due {
                self.doubled += usize::from(found > due);
                self.lost += usize::from(found < due);
                let id = &known.id;
                self.faults.push(format!("{id} was {name} {found} times instead of {due}"));
            }
        }
    }
}

/// Counts `…widget.created` of `widget/ID` as `ID created`.
fn count(tally: &mut Tally, subject: &Value, what: &Value) {
    let last = |value: &Value, at: char| {
        let text = value.as_str().unwrap_or_default();
        text.rsplit(at).next().unwrap_or_default().to_owned()
    };
    *tally.entry(format!("{} {}", last(subject, '/'), last(what, '.'))).or_default() += 1;
}

/// Nothing is left to do: the queue is empty.
pub async fn rest(client: &Client) {
    let mut left = Value::Null;
    wait_for("rest", async || {
        let Ok(answer) = client.get("/api/v1/work?limit=5").await else { return false };
        left = answer.body["rows"].clone();
        answer.status == 200 && left.as_array().is_some_and(Vec::is_empty)
    })
    .await;
}

/// By name.
async fn objects(client: &Client) -> BTreeMap<String, Vec<Value>> {
    let mut all: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    let path = "/api/v1/objects?kind=widget&deleted=true&limit=500";
    client
        .walk(path, "objects", None, |object| {
            let name = object["name"].as_str().unwrap_or_default().to_owned();
            all.entry(name).or_default().push(object.clone());
        })
        .await;
    all
}

fn as_acknowledged(plan: &Plan, known: &Known, object: &Value) -> Result<(), String> {
    let (phase, gone) = if known.deleted { ("deleted", true) } else { ("ready", false) };
    let built = builds(plan, &known.id)?;
    let right = object["key"] == format!("widget/{}", known.id)
        && object["generation"] == known.generation
        && object["observed"] == known.generation
        && object["spec"]["size"] == known.size
        && object["phase"] == phase
        && object["deleted_at"].is_null() != gone;
    if !right {
        return Err(format!("it is {object}"));
    }
    let stands = built.last().copied();
    let due = (!known.deleted).then_some(known.generation);
    if stands != due || built.windows(2).any(|pair| pair[0] >= pair[1]) {
        return Err(format!("the workshop has built {built:?}"));
    }
    Ok(())
}

/// The generations that were built in the workshop, in the order in which they were.
fn builds(plan: &Plan, id: &str) -> Result<Vec<i64>, String> {
    match std::fs::read_to_string(plan.workshop.join(id)) {
        Ok(text) => {
            let numbers = text.lines().map(str::parse).collect::<Result<_, _>>();
            numbers.map_err(|e| format!("{e} in the workshop: {text:?}"))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error.to_string()),
    }
}
