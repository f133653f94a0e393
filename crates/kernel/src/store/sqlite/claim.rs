//! Claims due rows, fairly between organisations.

use rusqlite::{Connection, OptionalExtension, params};

use super::save::{execute, update_queue};
use super::writer::Session;
use crate::Timestamp;
use crate::change::Lane;
use crate::queue::{Claim, ClaimBatch, ClaimRequest, QueueRow};
use crate::store::sql::{QUEUE_COLUMNS, queue_row};

/// How many due rows are made ready at a time; the rest follow with the next claim.
const PROMOTED_MAX: i64 = 1000;

pub fn claim(session: &mut Session<'_>, request: &ClaimRequest) -> rusqlite::Result<ClaimBatch> {
    let Session { connection, now, fence, fairness, .. } = session;
    let now = *now;
    promote(connection, now)?;
    let mut claims = Vec::new();
    for (lane, slots) in [(Lane::Urgent, request.slots), (Lane::Normal, request.slots_normal)] {
        let slots = slots.min(request.slots - claims.len());
        for mut row in
            pick(connection, lane, slots, &mut fairness.last_org[lane.number() as usize])?
        {
            **fence += 1;
            let due = row.due;
            row.claim(&request.worker, **fence, now.plus(request.ttl));
            update_queue(connection, &row)?;
            let QueueRow { key, org, lane, fence, attempt, note, .. } = row;
            claims.push(Claim { key, org, lane, fence, attempt, due, note });
        }
    }
    if !claims.is_empty() {
        execute(connection, "UPDATE meta SET fence = ?1", [**fence])?;
    }
    let next_due = connection
        .prepare_cached("SELECT min(due) FROM queue WHERE state IN (1, 2)")?
        .query_row([], |row| row.get::<_, Option<i64>>(0))?;
    Ok(ClaimBatch { now, claims, next_due: next_due.map(Timestamp) })
}

fn promote(connection: &Connection, now: Timestamp) -> rusqlite::Result<()> {
    let mut due = connection.prepare_cached(&format!(
        "SELECT {QUEUE_COLUMNS} FROM queue WHERE state IN (1, 2) AND due <= ?1 ORDER BY due LIMIT ?2"
    ))?;
    let rows: Vec<QueueRow> = due
        .query_map([now.millis(), PROMOTED_MAX], |row| queue_row(row))?
        .collect::<rusqlite::Result<_>>()?;
    for mut row in rows {
        row.promote(now);
        update_queue(connection, &row)?;
    }
    Ok(())
}

/// Walks the organisations by index, so that the cost follows the claimed rows and not the size of
/// the queue: first an equal share for each, then the remaining slots.
fn pick(
    connection: &Connection,
    lane: Lane,
    slots: usize,
    last_org: &mut String,
) -> rusqlite::Result<Vec<QueueRow>> {
    let orgs = orgs(connection, lane, slots, last_org)?;
    if orgs.is_empty() || slots == 0 {
        return Ok(Vec::new());
    }
    let share = slots / orgs.len();
    let mut picked: Vec<QueueRow> = Vec::new();
    for org in &orgs {
        let room = share.min(slots - picked.len());
        picked.extend(of_org(connection, lane, org, room, 0)?);
        last_org.clone_from(org);
        if picked.len() == slots {
            break;
        }
    }
    for org in &orgs {
        let had = picked.iter().filter(|row| row.org == *org).count();
        let room = slots - picked.len();
        if had == share && room > 0 {
            picked.extend(of_org(connection, lane, org, room, had)?);
        }
    }
    Ok(picked)
}

fn orgs(
    connection: &Connection,
    lane: Lane,
    most: usize,
    last_org: &str,
) -> rusqlite::Result<Vec<String>> {
    let mut next = connection.prepare_cached(
        "SELECT org FROM queue WHERE lane = ?1 AND state = 0 AND paused = 0 AND org > ?2 ORDER BY org LIMIT 1",
    )?;
    let mut first = connection.prepare_cached(
        "SELECT org FROM queue WHERE lane = ?1 AND state = 0 AND paused = 0 ORDER BY org LIMIT 1",
    )?;
    let mut found: Vec<String> = Vec::new();
    let mut at = last_org.to_owned();
    let mut wrapped = false;
    while found.len() < most {
        let org: Option<String> =
            next.query_row(params![lane.number(), at], |row| row.get(0)).optional()?;
        let org = match org {
            Some(org) => Some(org),
            None if wrapped => None,
            None => {
                wrapped = true;
                first.query_row([lane.number()], |row| row.get(0)).optional()?
            }
        };
        match org {
            Some(org) if !found.contains(&org) => {
                at.clone_from(&org);
                found.push(org);
            }
            _ => break,
        }
    }
    Ok(found)
}

fn of_org(
    connection: &Connection,
    lane: Lane,
    org: &str,
    most: usize,
    skip: usize,
) -> rusqlite::Result<Vec<QueueRow>> {
    let mut rows = connection.prepare_cached(&format!(
        "SELECT {QUEUE_COLUMNS} FROM queue WHERE lane = ?1 AND state = 0 AND paused = 0 AND org = ?2
         ORDER BY due LIMIT ?3 OFFSET ?4"
    ))?;
    rows.query_map(params![lane.number(), org, most as i64, skip as i64], |row| queue_row(row))?
        .collect()
}
