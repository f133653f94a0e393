//! Hands out due work, one of each organisation in turn; leases; forgetting.

use std::time::Duration;

use deadpool_postgres::Object as Pooled;
use tokio_postgres::{Error, Row};

use super::load;
use crate::admit::{Lease, take_lease};
use crate::change::Lane;
use crate::queue::{Ask, Claim, Claimed};
use crate::{Key, Timestamp};

/// Where the turn of each lane is: the organisation that was served last.
#[derive(Debug, Default, Clone)]
pub struct Turn {
    last_org: [String; 2],
}

/// What the due time makes of a row; says in SQL what [`crate::queue::QueueRow::promote`] says.
/// Rows that someone holds are left for the next time.
const PROMOTE: &str = "UPDATE queue SET
         attempt = CASE state WHEN 2 THEN attempt + 1 ELSE attempt END,
         reason  = CASE state WHEN 2 THEN worker || ' went silent' ELSE reason END,
         woken   = CASE state WHEN 2 THEN NULL ELSE woken END,
         due     = CASE state WHEN 2 THEN $1 ELSE due END,
         state   = 0
     WHERE key IN (SELECT key FROM queue WHERE state IN (1, 2) AND due <= $1
                   ORDER BY due LIMIT 1000 FOR UPDATE SKIP LOCKED)";

/// From one organisation that has work to the next, by the index.
macro_rules! orgs {
    ($is:literal) => {
        concat!(
            "WITH RECURSIVE orgs AS (
                 (SELECT org FROM queue WHERE lane = $1 AND state = 0 AND NOT paused AND org ",
            $is,
            " $2 ORDER BY org LIMIT 1)
                 UNION ALL
                 SELECT (SELECT q.org FROM queue q
                         WHERE lane = $1 AND state = 0 AND NOT paused AND q.org > orgs.org
                         ORDER BY q.org LIMIT 1)
                 FROM orgs WHERE orgs.org IS NOT NULL
             )
             SELECT org FROM orgs WHERE org IS NOT NULL LIMIT $3"
        )
    };
}
const ORGS_AFTER: &str = orgs!(">");
/// Whoever has no organisation has the empty one: it is the first.
const ORGS_FROM: &str = orgs!(">=");

const CLAIM: &str = "UPDATE queue SET state = 2, worker = $4, due = $5, woken = NULL, fence = nextval('queue_fence')
     FROM (SELECT mine.key, mine.due FROM unnest($2::text[]) AS turn (org) CROSS JOIN LATERAL (
               SELECT key, due FROM queue WHERE lane = $1 AND state = 0 AND NOT paused AND org = turn.org
               ORDER BY due LIMIT $3 FOR UPDATE SKIP LOCKED) AS mine
           LIMIT $6) AS picked
     WHERE queue.key = picked.key
     RETURNING queue.key, queue.org, queue.lane, queue.fence, queue.attempt, picked.due";

/// A row that is ready, and was not taken although there was room, was locked by someone. They may
/// leave it as it is, and then nobody hints at it: it is looked for again in a moment.
const NEXT_DUE: &str = "SELECT least(
         (SELECT min(due) FROM queue WHERE state IN (1, 2)),
         (SELECT $2::bigint FROM queue WHERE lane = ANY($1::smallint[]) AND state = 0 AND NOT paused LIMIT 1))";
const SKIPPED_AGAIN: Duration = Duration::from_millis(10);

pub async fn claim(client: &Pooled, ask: &Ask, mut turn: Turn) -> Result<(Claimed, Turn), Error> {
    client.execute(&client.prepare_cached(PROMOTE).await?, &[&ask.now.millis()]).await?;
    let (mut claims, mut unfilled) = (Vec::new(), Vec::new());
    for (lane, slots) in [(Lane::Urgent, ask.slots), (Lane::Normal, ask.slots_normal)] {
        let (before, slots) = (claims.len(), slots.min(ask.slots - claims.len()));
        take(client, ask, lane, slots, &mut turn.last_org[lane.number() as usize], &mut claims)
            .await?;
        if claims.len() - before < slots {
            unfilled.push(lane.number());
        }
    }
    let next = client.prepare_cached(NEXT_DUE).await?;
    let again = ask.now.plus(SKIPPED_AGAIN).millis();
    let next_due: Option<i64> = client.query_one(&next, &[&unfilled, &again]).await?.get(0);
    Ok((Claimed { claims, next_due: next_due.map(Timestamp) }, turn))
}

/// First an equal share for each organisation, then whatever is left to give.
async fn take(
    client: &Pooled,
    ask: &Ask,
    lane: Lane,
    slots: usize,
    last_org: &mut String,
    claims: &mut Vec<Claim>,
) -> Result<(), Error> {
    if slots == 0 {
        return Ok(());
    }
    let mut orgs = orgs(client, ORGS_AFTER, lane, last_org, slots).await?;
    if orgs.len() < slots {
        let again = self::orgs(client, ORGS_FROM, lane, "", slots - orgs.len()).await?;
        let new: Vec<String> = again.into_iter().filter(|org| !orgs.contains(org)).collect();
        orgs.extend(new);
    }
    let Some(last) = orgs.last() else { return Ok(()) };
    last_org.clone_from(last);
    let mut left = slots;
    for share in [slots / orgs.len(), slots] {
        if left == 0 {
            break;
        }
        let statement = client.prepare_cached(CLAIM).await?;
        let until = ask.now.plus(ask.lease).millis();
        let rows = client
            .query(
                &statement,
                &[&lane.number(), &orgs, &(share as i64), &ask.worker, &until, &(left as i64)],
            )
            .await?;
        left -= rows.len();
        claims.extend(rows.iter().map(claim_of));
        if rows.is_empty() || share == slots {
            break;
        }
    }
    Ok(())
}

async fn orgs(
    client: &Pooled,
    sql: &str,
    lane: Lane,
    begin: &str,
    most: usize,
) -> Result<Vec<String>, Error> {
    let statement = client.prepare_cached(sql).await?;
    let rows = client.query(&statement, &[&lane.number(), &begin, &(most as i64)]).await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

fn claim_of(row: &Row) -> Claim {
    Claim {
        key: Key::stored(row.get(0)),
        org: row.get(1),
        lane: Lane::from_number(row.get(2)),
        fence: row.get(3),
        attempt: row.get(4),
        due: Timestamp(row.get(5)),
    }
}

/// The row is locked, decided on and written back in one transaction.
pub async fn lease(
    client: &Pooled,
    name: &str,
    holder: &str,
    now: Timestamp,
    until: Timestamp,
) -> Result<Option<Lease>, Error> {
    let seed = "INSERT INTO leases VALUES ($1, '', 0, 0) ON CONFLICT DO NOTHING";
    client.execute(seed, &[&name]).await?;
    let sql = "SELECT name, holder, fence, until FROM leases WHERE name = $1";
    let was = load::lease(&client.query_one(sql, &[&name]).await?);
    let Some(next) = take_lease(Some(&was), holder, now, until) else { return Ok(None) };
    // Taken only from the state that was looked at: whoever else looked finds it changed.
    let sql = "UPDATE leases SET holder = $2, fence = $3, until = $4
         WHERE name = $1 AND holder = $5 AND fence = $6 AND until = $7";
    let params: &[&(dyn tokio_postgres::types::ToSql + Sync)] = &[
        &name,
        &next.holder,
        &next.fence,
        &next.until.millis(),
        &was.holder,
        &was.fence,
        &was.until.millis(),
    ];
    let taken = client.execute(sql, params).await?;
    Ok((taken == 1).then_some(next))
}

/// The newest event stays, so that the log never looks empty to a reader who is up to date.
pub async fn forget(
    client: &Pooled,
    events_before: Timestamp,
    commands_before: Timestamp,
    limit: usize,
) -> Result<usize, Error> {
    let limit = limit as i64;
    let events = client
        .execute(
            "DELETE FROM events WHERE seq IN (SELECT seq FROM events ORDER BY seq LIMIT $2)
                 AND at < $1 AND seq < (SELECT max(seq) FROM events)",
            &[&events_before.millis(), &limit],
        )
        .await?;
    let commands = client
        .execute(
            "DELETE FROM commands WHERE id IN (SELECT id FROM commands WHERE at < $1 LIMIT $2)",
            &[&commands_before.millis(), &limit],
        )
        .await?;
    Ok((events + commands) as usize)
}
