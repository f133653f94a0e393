//! Claims due rows, fairly between organisations; leases.

use std::collections::BTreeSet;
use std::time::Duration;

use deadpool_postgres::Object as Pooled;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row, Statement};

use crate::Timestamp;
use crate::admission::{Lease, take_lease};
use crate::change::Lane;
use crate::queue::{Claim, ClaimBatch, ClaimRequest, FairnessCursor};
use crate::store::sql::{self, Row as _};

/// Promotes rows whose due time has passed, the most overdue first; the SQL of
/// [`crate::queue::QueueRow::promote`]. At most 1,000 at a time, and none that another transaction
/// has locked: they are promoted by a later claim.
const PROMOTE: &str = "UPDATE queue SET
         attempt = CASE state WHEN 2 THEN attempt + 1 ELSE attempt END,
         reason  = CASE state WHEN 2 THEN 'the lease of ' || worker || ' expired' ELSE reason END,
         woken   = CASE state WHEN 2 THEN NULL ELSE woken END,
         due     = CASE state WHEN 2 THEN $1 ELSE due END,
         state   = 0
     WHERE key IN (SELECT key FROM queue WHERE state IN (1, 2) AND due <= $1
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

const CLAIM: &str = "UPDATE queue SET state = 2, worker = $4, due = $5, woken = NULL, fence = nextval('queue_fence')
     FROM (SELECT mine.key, mine.due FROM unnest($2::text[]) AS fairness (org) CROSS JOIN LATERAL (
               SELECT key, due FROM queue WHERE lane = $1 AND state = 0 AND NOT paused AND org = fairness.org
               ORDER BY due LIMIT $3 FOR UPDATE SKIP LOCKED) AS mine
           LIMIT $6) AS picked
     WHERE queue.key = picked.key
     RETURNING queue.key, queue.org, queue.lane, queue.fence, queue.attempt, picked.due";

/// A ready row that was not claimed although there were free slots was locked by another
/// transaction, which may leave it unchanged without a wake-up: retry shortly.
const NEXT_DUE: &str = "SELECT least(
         (SELECT min(due) FROM queue WHERE state IN (1, 2)),
         (SELECT $2::bigint FROM queue WHERE lane = ANY($1::smallint[]) AND state = 0 AND NOT paused LIMIT 1))";
const SKIPPED_AGAIN: Duration = Duration::from_millis(10);

pub async fn claim(
    client: &Pooled,
    request: &ClaimRequest,
    mut fairness: FairnessCursor,
) -> Result<(ClaimBatch, FairnessCursor), Error> {
    let promote = client.prepare_cached(PROMOTE).await?;
    let orgs = client.prepare_cached(ORGS).await?;
    let now = request.now.millis();
    // Pipelined in this order: the later statements see the promoted rows.
    let promoted: [&(dyn ToSql + Sync); 1] = [&now];
    let (_, urgent, normal) = futures::try_join!(
        client.execute(&promote, &promoted),
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
    let again = request.now.plus(SKIPPED_AGAIN).millis();
    let next_due: Option<i64> = client.query_one(&next, &[&unfilled, &again]).await?.get(0);
    Ok((ClaimBatch { claims, next_due: next_due.map(Timestamp) }, fairness))
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
    let mut left = slots;
    for share in [slots / orgs.len().max(1), slots] {
        if left == 0 || orgs.is_empty() {
            break;
        }
        let statement = client.prepare_cached(CLAIM).await?;
        let until = request.now.plus(request.lease).millis();
        let rows = client
            .query(
                &statement,
                &[&lane.number(), &orgs, &(share as i64), &request.worker, &until, &(left as i64)],
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
    })
}

/// Decides on the row as it was read, and writes it only if no other replica wrote it since.
pub async fn lease(
    client: &Pooled,
    name: &str,
    holder: &str,
    now: Timestamp,
    until: Timestamp,
) -> Result<Option<Lease>, Error> {
    let seed = "INSERT INTO leases VALUES ($1, '', 0, 0) ON CONFLICT DO NOTHING";
    client.execute(seed, &[&name]).await?;
    let was = sql::lease(&client.query_one(sql::LEASE, &[&name]).await?)?;
    let Some(next) = take_lease(Some(&was), holder, now, until) else { return Ok(None) };
    let sql = "UPDATE leases SET holder = $2, fence = $3, until = $4
         WHERE name = $1 AND holder = $5 AND fence = $6 AND until = $7";
    let params: &[&(dyn ToSql + Sync)] = &[
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
