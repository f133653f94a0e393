//! Claims due rows, fairly between organisations; leases.

use std::collections::BTreeSet;
use std::time::Duration;

use deadpool_postgres::Object as Pooled;
use tokio_postgres::{Error, Row, Statement};

use crate::admission::Lease;
use crate::change::Lane;
use crate::queue::{Claim, ClaimBatch, ClaimRequest, FairnessCursor};
use crate::store::sql::{self, Row as _};

/// Promotes rows whose due time has passed, the most overdue first; the SQL of
/// [`crate::queue::QueueRow::promote`]. At most 1,000 at a time, and none that another transaction
/// has locked: they are promoted by a later claim.
const PROMOTE: &str = "WITH clock AS MATERIALIZED (SELECT clock_ms() AS now)
     UPDATE queue SET
         attempt = CASE state WHEN 2 THEN attempt + 1 ELSE attempt END,
         reason  = CASE state WHEN 2 THEN 'the lease of ' || worker || ' expired' ELSE reason END,
         woken   = CASE state WHEN 2 THEN NULL ELSE woken END,
         due     = CASE state WHEN 2 THEN (SELECT now FROM clock) ELSE due END,
         state   = 0
     WHERE key IN (SELECT key FROM queue WHERE state IN (1, 2) AND due <= (SELECT now FROM clock)
                   ORDER BY due LIMIT 1000 FOR UPDATE SKIP LOCKED)";

/// Walks the organisations with work by index: those after the one served last, then all from the
/// first (the empty name stands for no organisation).
const ORGS: &str = "WITH RECURSIVE
     after AS (
         (SELECT org FROM queue WHERE lane = $1 AND state = 0 AND NOT paused AND org > $2 ORDER BY org LIMIT 1)
         UNION ALL
         SELECT (SELECT q.org FROM queue q WHERE lane = $1 AND state = 0 AND NOT paused AND q.org > after.org
                 ORDER BY q.org LIMIT 1)
         FROM after WHERE after.org IS NOT NULL),
     first AS (
         (SELECT org FROM queue WHERE lane = $1 AND state = 0 AND NOT paused ORDER BY org LIMIT 1)
         UNION ALL
         SELECT (SELECT q.org FROM queue q WHERE lane = $1 AND state = 0 AND NOT paused AND q.org > first.org
                 ORDER BY q.org LIMIT 1)
         FROM first WHERE first.org IS NOT NULL)
     (SELECT org FROM after WHERE org IS NOT NULL LIMIT $3)
     UNION ALL
     (SELECT org FROM first WHERE org IS NOT NULL LIMIT $3)";

const CLAIM: &str = "UPDATE queue SET state = 2, worker = $4, due = (SELECT clock_ms()) + $5, woken = NULL, fence = nextval('queue_fence')
     FROM (SELECT mine.key, mine.due FROM unnest($2::text[]) AS fairness (org) CROSS JOIN LATERAL (
               SELECT key, due FROM queue WHERE lane = $1 AND state = 0 AND NOT paused AND org = fairness.org
               ORDER BY due LIMIT $3 FOR UPDATE SKIP LOCKED) AS mine
           LIMIT $6) AS picked
     WHERE queue.key = picked.key
     RETURNING queue.key, queue.org, queue.lane, queue.fence, queue.attempt, picked.due, queue.note";

/// A ready row that was not claimed although there were free slots was locked by another
/// transaction, which may leave it unchanged without a wake-up: retry shortly.
const NEXT_DUE: &str = "SELECT now, least(
         (SELECT min(due) FROM queue WHERE state IN (1, 2)),
         (SELECT now + $2 FROM queue WHERE lane = ANY($1::smallint[]) AND state = 0 AND NOT paused LIMIT 1))
     FROM (SELECT clock_ms()) AS clock (now)";
const SKIPPED_AGAIN_MS: i64 = 10;

pub async fn claim(
    client: &Pooled,
    request: &ClaimRequest,
    mut fairness: FairnessCursor,
) -> Result<(ClaimBatch, FairnessCursor), Error> {
    let promote = client.prepare_cached(PROMOTE).await?;
    let orgs = client.prepare_cached(ORGS).await?;
    // Pipelined in this order: the later statements see the promoted rows.
    let (_, urgent, normal) = futures::try_join!(
        client.execute(&promote, &[]),
        waiting_orgs(client, &orgs, Lane::Urgent, &fairness, request.slots),
        waiting_orgs(client, &orgs, Lane::Normal, &fairness, request.slots_normal),
    )?;
    let (mut claims, mut unfilled) = (Vec::new(), Vec::new());
    for (lane, orgs, slots) in
        [(Lane::Urgent, urgent, request.slots), (Lane::Normal, normal, request.slots_normal)]
    {
        let (before, slots) = (claims.len(), slots.min(request.slots - claims.len()));
        let orgs = &orgs[..orgs.len().min(slots)];
        take(client, request, lane, slots, orgs, &mut claims).await?;
        if claims.len() - before < slots {
            unfilled.push(lane.number());
        }
        if let Some(last) = orgs.last() {
            fairness.last_org[lane.number() as usize].clone_from(last);
        }
    }
    let next = client.prepare_cached(NEXT_DUE).await?;
    let next = client.query_one(&next, &[&unfilled, &SKIPPED_AGAIN_MS]).await?;
    let (now, next_due) = (next.time(0)?, next.maybe_time(1)?);
    Ok((ClaimBatch { now, claims, next_due }, fairness))
}

/// The organisations to serve, in turn, at most one per slot.
async fn waiting_orgs(
    client: &Pooled,
    statement: &Statement,
    lane: Lane,
    fairness: &FairnessCursor,
    slots: usize,
) -> Result<Vec<String>, Error> {
    let last = &fairness.last_org[lane.number() as usize];
    let rows = client.query(statement, &[&lane.number(), last, &(slots as i64)]).await?;
    let mut seen = BTreeSet::new();
    let orgs =
        rows.iter().map(|row| row.get::<_, String>(0)).filter(|org| seen.insert(org.clone()));
    Ok(orgs.take(slots).collect())
}

/// First an equal share for each organisation, then the remaining slots.
async fn take(
    client: &Pooled,
    request: &ClaimRequest,
    lane: Lane,
    slots: usize,
    orgs: &[String],
    claims: &mut Vec<Claim>,
) -> Result<(), Error> {
    let (mut left, ttl_ms) = (slots, millis(request.ttl));
    for share in [slots / orgs.len().max(1), slots] {
        if left == 0 || orgs.is_empty() {
            break;
        }
        let statement = client.prepare_cached(CLAIM).await?;
        let rows = client
            .query(
                &statement,
                &[&lane.number(), &orgs, &(share as i64), &request.worker, &ttl_ms, &(left as i64)],
            )
            .await?;
        left -= rows.len();
        for row in &rows {
            claims.push(claim_of(row)?);
        }
        if rows.is_empty() || share == slots {
            break;
        }
    }
    Ok(())
}

fn claim_of(row: &Row) -> Result<Claim, Error> {
    Ok(Claim {
        key: row.key(0)?,
        org: row.value(1)?,
        lane: Lane::from_number(row.value(2)?),
        fence: row.value(3)?,
        attempt: row.value(4)?,
        due: row.time(5)?,
        note: row.value(6)?,
    })
}

fn millis(ttl: Duration) -> i64 {
    i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX)
}

/// The SQL of [`crate::admission::take_lease`].
const LEASE: &str = "INSERT INTO leases AS held
     SELECT $1, $2, 1, now + $3 FROM (SELECT clock_ms()) AS clock (now)
     ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until = excluded.until,
         fence = held.fence + CASE WHEN held.until > excluded.until - $3 THEN 0 ELSE 1 END
     WHERE held.holder = excluded.holder OR held.until <= excluded.until - $3
     RETURNING holder, fence, until";

pub async fn lease(
    client: &Pooled,
    name: &str,
    holder: &str,
    ttl: Duration,
) -> Result<Option<Lease>, Error> {
    let row = client.query_opt(LEASE, &[&name, &holder, &millis(ttl)]).await?;
    row.as_ref().map(sql::lease).transpose()
}
