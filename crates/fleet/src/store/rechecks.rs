//! Constructs the objects of the rechecks: only work of an object that exists is carried out.

use kernel::{Change, Draft, Refusal, Result, Store, Timestamp};

use crate::model::recheck::{Phase, Recheck, Spec};

pub async fn register(store: &dyn Store, now: Timestamp) -> Result<()> {
    let known = store.get(&Recheck::ALL.map(Recheck::key)).await?;
    let missing = |recheck: &Recheck| !known.iter().any(|object| object.key == recheck.key());
    let create = |recheck: Recheck| {
        let draft = Draft::new(recheck.key(), "", "mainstay", recheck.label(), now);
        Change::from(draft.phase(&Phase::Ready).spec(&Spec {}).create("registered"))
    };
    let changes: Vec<Change> = Recheck::ALL.into_iter().filter(missing).map(create).collect();
    if changes.is_empty() {
        return Ok(());
    }
    for verdict in store.commit_all(changes, now).await? {
        match verdict {
            // Another replica was first.
            Ok(_) | Err(Refusal::Exists(_)) => {}
            Err(refusal) => return Err(refusal.into()),
        }
    }
    Ok(())
}
