//! Schedules whose command notes the time for which it was carried out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kernel::change::{CommandRecord, CommandReply, EventDraft, Refusal};
use kernel::command::Envelope;
use kernel::identity::Principal;
use kernel::schedule::{self, CatchUp, Execute, KIND, Request, Status};
use kernel::store::commit;
use kernel::{Change, Error, Json, Key, Store as _};

use super::flaky::Flaky;
use super::{Broken, World};
use crate::memory::{Bug, Tables};

/// What an event of the command is called.
pub const TICK: &str = "mainstay.schedule.tick";

/// One of each kind, due every minute.
pub async fn create(world: &World) {
    let maker = Principal { subject: "alice".into(), org: "acme".into(), ..Principal::default() };
    for (id, catch_up) in [("skip", CatchUp::Skip), ("once", CatchUp::Once)] {
        let command = Envelope::new("tick", None, Json::default());
        let (cron, zone) = ("* * * * *".into(), "UTC".into());
        let (id, name) = (id.to_owned(), id.to_owned());
        let request = Request { id, name, cron, zone, catch_up, command };
        let now = world.now();
        let (change, _) = schedule::create(request, &maker, now).expect("a valid schedule");
        let verdicts = world.memory.commit_all(vec![change], now).await;
        verdicts.expect("the store answers").remove(0).expect("it is created");
    }
}

/// Carries out the command as one process does: it may crash before and after, and lose the answer.
pub fn execute(process: Arc<Flaky>) -> Execute {
    Arc::new(move |key, _, id| {
        let process = process.clone();
        Box::pin(async move {
            process.pass().await;
            let planned = id.rsplit('/').next().unwrap_or_default().to_owned();
            let event = EventDraft {
                kind: TICK.into(),
                subject: key.clone(),
                org: "acme".into(),
                data: Some(Json::encode(&planned)),
            };
            let by_clock = process.world.bug == Some(Bug::NameRunsByTheClock);
            let id = if by_clock { format!("{key}/{}", process.now()) } else { id };
            let reply = CommandReply { status: 200, body: Json::default() };
            let command = Some(CommandRecord { id, digest: "tick".into(), reply, subject: None });
            let change = Change { command, event: Some(event), ..Change::default() };
            match commit(&*process, change, process.now()).await {
                Err(Error::Refused(Refusal::Repeated { .. })) => Ok(()),
                done => done.map(|_| ()),
            }
        })
    })
}

/// Each planned time was carried out once at the most, and none that came was forgotten.
pub fn check(tables: &Tables) -> Result<(), Broken> {
    let mut planned: BTreeMap<&Key, BTreeSet<&str>> = BTreeMap::new();
    for event in tables.events.iter().filter(|event| event.kind == TICK) {
        if !planned.entry(&event.subject).or_default().insert(event.data.text()) {
            let time = event.data.text();
            return Err(Broken(format!("{} was carried out twice for {time}", event.subject)));
        }
    }
    for (key, (_, object)) in tables.objects.iter().filter(|(key, _)| key.kind() == KIND) {
        let status: Status = object.status.parse().map_err(|e: Error| Broken(e.to_string()))?;
        let ran = planned.get(key).into_iter().flatten();
        let known = |time: &String| ran.clone().any(|ran| ran.trim_matches('"') == time);
        let noted = match &status.last {
            Some(run) if run.result == "done" => known(&run.planned.to_string()),
            Some(_) => true,
            None => !planned.contains_key(key),
        };
        if !noted {
            return Err(Broken(format!("{key} ran for {ran:?}, and says {:?}", status.last)));
        }
    }
    Ok(())
}
