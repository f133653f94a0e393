//! Whether a webhook is tried again, and when.

use std::time::Duration;

use kernel::{Backoff, Timestamp};

use crate::model::notification::{Delivery, Notification, Outcome};

const BACKOFF: Backoff =
    Backoff { first: Duration::from_secs(1), longest: Duration::from_secs(3600) };
/// After the end of its job.
const GIVE_UP_AFTER: Duration = Duration::from_secs(24 * 3600);

/// The notification after a try. `fraction` (0 to 1) spreads tries.
pub fn after(
    before: &Notification,
    outcome: Outcome,
    ended: Timestamp,
    now: Timestamp,
    fraction: f64,
) -> Notification {
    let tries = before.tries.saturating_add(1);
    let (delivery, error, wait) = match outcome {
        Outcome::Delivered => (Delivery::Completed, None, None),
        Outcome::Refused(why) => (Delivery::Failed, Some(why), None),
        Outcome::Failed { why, .. } if now >= ended.plus(GIVE_UP_AFTER) => {
            (Delivery::Failed, Some(format!("given up after a day: {why}")), None)
        }
        Outcome::Failed { why, wait } => (Delivery::InProgress, Some(why), wait),
    };
    let pause = BACKOFF.delay(before.tries, fraction).max(wait.unwrap_or_default());
    Notification { delivery, tries, due: now.plus(pause.min(BACKOFF.longest)), error }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENDED: Timestamp = Timestamp(1_000_000);

    fn failed(wait: Option<Duration>) -> Outcome {
        Outcome::Failed { why: "it answered 500".into(), wait }
    }

    #[test]
    fn a_webhook_that_fails_is_tried_for_a_day_at_growing_intervals() {
        let mut notification = Notification::due(ENDED);
        let mut pauses = Vec::new();
        while let Some(now) = notification.next() {
            notification = after(&notification, failed(None), ENDED, now, 1.0);
            pauses.push(now.until(notification.due));
        }
        assert_eq!(notification.delivery, Delivery::Failed);
        let why = notification.error.unwrap();
        assert_eq!(why, "given up after a day: it answered 500");
        assert!(pauses.is_sorted() && pauses[0] == BACKOFF.first, "{pauses:?}");
        assert!((30..45).contains(&notification.tries), "{}", notification.tries);
        let total: Duration = pauses[..pauses.len() - 1].iter().sum();
        assert!(total >= GIVE_UP_AFTER && total <= GIVE_UP_AFTER + BACKOFF.longest, "{total:?}");
    }

    #[test]
    fn a_receiver_decides_when_it_is_tried_again_and_whether() {
        let first = Notification::due(ENDED);
        let wait = |s| after(&first, failed(Some(Duration::from_secs(s))), ENDED, ENDED, 1.0);
        assert_eq!(ENDED.until(wait(90).due), Duration::from_secs(90));
        assert_eq!(ENDED.until(wait(0).due), BACKOFF.first);
        assert_eq!(ENDED.until(wait(999_999).due), BACKOFF.longest);
        let gone = after(&first, Outcome::Refused("410 Gone".into()), ENDED, ENDED, 1.0);
        assert_eq!((gone.delivery, gone.next()), (Delivery::Failed, None));
        let done = after(&wait(90), Outcome::Delivered, ENDED, ENDED, 1.0);
        assert_eq!((done.delivery, done.tries, done.error), (Delivery::Completed, 2, None));
    }
}
