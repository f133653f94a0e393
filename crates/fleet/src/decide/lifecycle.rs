//! The life of an instance as one table: status and event to status.

use super::Then;
use crate::model::instance::Status;

/// What can happen to an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Event {
    /// A cluster was found for it.
    Placed,
    /// Everything that it needs outside the data plane is there.
    Prepared,
    /// The agent says that it runs, and its names lead there.
    Ready,
    /// The agent says that it is broken.
    Broken,
    /// The agent's cluster has no room for it.
    Refused,
    Suspended,
    /// Nothing of it is left on the data plane.
    Removed,
    /// Someone wants it gone: its owner, an admin, the deny list, its end of life.
    Delete,
    Suspend,
    Resume,
    /// It took too long, or what it needs cannot be had.
    GiveUp,
    /// The cluster that it was on is gone for good.
    ClusterGone,
    /// Nothing of it is left anywhere.
    Cleaned,
}

impl Event {
    pub const ALL: [Event; 13] = [
        Event::Placed,
        Event::Prepared,
        Event::Ready,
        Event::Broken,
        Event::Refused,
        Event::Suspended,
        Event::Removed,
        Event::Delete,
        Event::Suspend,
        Event::Resume,
        Event::GiveUp,
        Event::ClusterGone,
        Event::Cleaned,
    ];
}

pub fn then(status: Status, event: Event) -> Then<Status> {
    use Event as E;
    use Status as S;
    match (status, event) {
        // On its way out there is one direction.
        (S::Deprovision, E::Removed) => Then::To(S::Deleting),
        (S::Deleting, E::Cleaned) => Then::Gone,
        (S::Deprovision | S::Deleting, _) => Then::Stays,
        (_, E::Delete) => Then::To(S::Deprovision),
        // What nobody uses yet is placed elsewhere; else its data went with the cluster.
        (S::Accepted | S::Preparing, E::ClusterGone) => Then::To(S::Accepted),
        (S::Provisioning, E::ClusterGone) => Then::To(S::Provisioning),
        (S::Failed, E::ClusterGone) => Then::Stays,
        (_, E::ClusterGone) => Then::To(S::Failed),
        (S::Accepted, E::Placed) => Then::To(S::Preparing),
        (S::Preparing, E::Prepared) => Then::To(S::Provisioning),
        // It stays in provisioning, and is placed elsewhere.
        (S::Provisioning, E::Refused) => Then::To(S::Provisioning),
        (S::Provisioning | S::Failed | S::Resuming, E::Ready) => Then::To(S::Ready),
        (S::Suspending, E::Suspended) => Then::To(S::Suspended),
        (S::Suspended, E::Resume) => Then::To(S::Resuming),
        (S::Ready, E::Suspend) => Then::To(S::Suspending),
        // Also the end of an entitlement suspends, whatever its state on the way up.
        (S::Accepted | S::Preparing | S::Provisioning | S::Resuming, E::Suspend) => {
            Then::To(S::Suspending)
        }
        (S::Suspending | S::Suspended | S::Failed, E::Broken) => Then::Stays,
        (_, E::Broken) => Then::To(S::Failed),
        (S::Accepted | S::Preparing | S::Provisioning | S::Resuming, E::GiveUp) => {
            Then::To(S::Failed)
        }
        _ => Then::Stays,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Everything that changes something. All other pairs of the 130 must stay.
    const TABLE: &[(Status, Event, Then<Status>)] = {
        use Event as E;
        use Status as S;
        &[
            (S::Accepted, E::Placed, Then::To(S::Preparing)),
            (S::Accepted, E::Broken, Then::To(S::Failed)),
            (S::Accepted, E::Delete, Then::To(S::Deprovision)),
            (S::Accepted, E::Suspend, Then::To(S::Suspending)),
            (S::Accepted, E::GiveUp, Then::To(S::Failed)),
            (S::Preparing, E::Prepared, Then::To(S::Provisioning)),
            (S::Preparing, E::Broken, Then::To(S::Failed)),
            (S::Preparing, E::Delete, Then::To(S::Deprovision)),
            (S::Preparing, E::Suspend, Then::To(S::Suspending)),
            (S::Preparing, E::GiveUp, Then::To(S::Failed)),
            (S::Provisioning, E::Ready, Then::To(S::Ready)),
            (S::Provisioning, E::Refused, Then::To(S::Provisioning)),
            (S::Provisioning, E::Broken, Then::To(S::Failed)),
            (S::Provisioning, E::Delete, Then::To(S::Deprovision)),
            (S::Provisioning, E::Suspend, Then::To(S::Suspending)),
            (S::Provisioning, E::GiveUp, Then::To(S::Failed)),
            (S::Ready, E::Broken, Then::To(S::Failed)),
            (S::Ready, E::Delete, Then::To(S::Deprovision)),
            (S::Ready, E::Suspend, Then::To(S::Suspending)),
            (S::Failed, E::Ready, Then::To(S::Ready)),
            (S::Failed, E::Delete, Then::To(S::Deprovision)),
            (S::Suspending, E::Suspended, Then::To(S::Suspended)),
            (S::Suspending, E::Delete, Then::To(S::Deprovision)),
            (S::Suspended, E::Resume, Then::To(S::Resuming)),
            (S::Suspended, E::Delete, Then::To(S::Deprovision)),
            (S::Resuming, E::Ready, Then::To(S::Ready)),
            (S::Resuming, E::Broken, Then::To(S::Failed)),
            (S::Resuming, E::Delete, Then::To(S::Deprovision)),
            (S::Resuming, E::Suspend, Then::To(S::Suspending)),
            (S::Resuming, E::GiveUp, Then::To(S::Failed)),
            (S::Accepted, E::ClusterGone, Then::To(S::Accepted)),
            (S::Preparing, E::ClusterGone, Then::To(S::Accepted)),
            (S::Provisioning, E::ClusterGone, Then::To(S::Provisioning)),
            (S::Ready, E::ClusterGone, Then::To(S::Failed)),
            (S::Suspending, E::ClusterGone, Then::To(S::Failed)),
            (S::Suspended, E::ClusterGone, Then::To(S::Failed)),
            (S::Resuming, E::ClusterGone, Then::To(S::Failed)),
            (S::Deprovision, E::Removed, Then::To(S::Deleting)),
            (S::Deleting, E::Cleaned, Then::Gone),
        ]
    };

    #[test]
    fn every_status_and_event_is_in_the_table_or_changes_nothing() {
        for status in Status::ALL {
            for event in Event::ALL {
                let listed = TABLE.iter().find(|(s, e, _)| (*s, *e) == (status, event));
                let expected = listed.map_or(Then::Stays, |(_, _, then)| *then);
                assert_eq!(then(status, event), expected, "{status:?} {event:?}");
            }
        }
    }

    #[test]
    fn every_status_leads_to_ready_or_failed_or_out_and_always_out() {
        for start in Status::ALL {
            let mut reached = vec![start];
            let mut gone = false;
            let mut i = 0;
            while let Some(&status) = reached.get(i) {
                for event in Event::ALL {
                    match then(status, event) {
                        Then::To(next) if !reached.contains(&next) => reached.push(next),
                        Then::Gone => gone = true,
                        _ => {}
                    }
                }
                i += 1;
            }
            assert!(gone, "{start:?} has no way out");
            let up = reached.contains(&Status::Ready);
            assert!(up || start.is_going(), "{start:?} cannot become ready");
        }
    }
}
