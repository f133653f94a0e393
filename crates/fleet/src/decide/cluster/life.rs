//! The life of a cluster as one table: status and event to status.

use crate::decide::Then;
use crate::model::cluster::Status;

/// What can happen to a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Event {
    /// Its provider was asked for it.
    Asked,
    /// It is there: made by its provider, or it was there before.
    Made,
    /// Only its agent is known: there is nothing to make and nothing to put on it.
    Registered,
    /// Everything that it needs is on it, its agent too.
    Terraformed,
    AgentReady,
    AgentNotReady,
    /// It could not be made, or not within its time.
    GaveUp,
    /// What is wanted of one that failed was changed.
    Again,
    /// It should go.
    Delete,
    /// Nothing is left at its provider.
    Removed,
    /// Nothing of it is left anywhere.
    Cleaned,
}

impl Event {
    pub const ALL: [Event; 11] = [
        Event::Asked,
        Event::Made,
        Event::Registered,
        Event::Terraformed,
        Event::AgentReady,
        Event::AgentNotReady,
        Event::GaveUp,
        Event::Again,
        Event::Delete,
        Event::Removed,
        Event::Cleaned,
    ];
}

pub fn then(status: Status, event: Event) -> Then<Status> {
    use Event as E;
    use Status as S;
    match (status, event) {
        // On its way out there is one direction.
        (S::Deprovisioning, E::Removed) => Then::To(S::Cleanup),
        (S::Cleanup, E::Cleaned) => Then::Gone,
        (S::Deprovisioning | S::Cleanup, _) => Then::Stays,
        (_, E::Delete) => Then::To(S::Deprovisioning),
        (S::Accepted, E::Asked) => Then::To(S::Provisioning),
        (S::Accepted | S::Provisioning, E::Made) => Then::To(S::Provisioned),
        (S::Accepted | S::Provisioning | S::Provisioned, E::Registered) => Then::To(S::Waiting),
        (S::Provisioned, E::Terraformed) => Then::To(S::Waiting),
        (S::Waiting, E::AgentReady) => Then::To(S::Ready),
        (S::Ready, E::AgentNotReady) => Then::To(S::Waiting),
        (S::Accepted | S::Provisioning | S::Provisioned, E::GaveUp) => Then::To(S::Failed),
        (S::Failed, E::Again) => Then::To(S::Accepted),
        _ => Then::Stays,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Everything that changes something. All other pairs of the 88 must stay.
    const TABLE: &[(Status, Event, Then<Status>)] = {
        use Event as E;
        use Status as S;
        &[
            (S::Accepted, E::Asked, Then::To(S::Provisioning)),
            (S::Accepted, E::Made, Then::To(S::Provisioned)),
            (S::Accepted, E::Registered, Then::To(S::Waiting)),
            (S::Accepted, E::GaveUp, Then::To(S::Failed)),
            (S::Accepted, E::Delete, Then::To(S::Deprovisioning)),
            (S::Provisioning, E::Made, Then::To(S::Provisioned)),
            (S::Provisioning, E::Registered, Then::To(S::Waiting)),
            (S::Provisioning, E::GaveUp, Then::To(S::Failed)),
            (S::Provisioning, E::Delete, Then::To(S::Deprovisioning)),
            (S::Provisioned, E::Registered, Then::To(S::Waiting)),
            (S::Provisioned, E::Terraformed, Then::To(S::Waiting)),
            (S::Provisioned, E::GaveUp, Then::To(S::Failed)),
            (S::Provisioned, E::Delete, Then::To(S::Deprovisioning)),
            (S::Waiting, E::AgentReady, Then::To(S::Ready)),
            (S::Waiting, E::Delete, Then::To(S::Deprovisioning)),
            (S::Ready, E::AgentNotReady, Then::To(S::Waiting)),
            (S::Ready, E::Delete, Then::To(S::Deprovisioning)),
            (S::Failed, E::Again, Then::To(S::Accepted)),
            (S::Failed, E::Delete, Then::To(S::Deprovisioning)),
            (S::Deprovisioning, E::Removed, Then::To(S::Cleanup)),
            (S::Cleanup, E::Cleaned, Then::Gone),
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
    fn every_status_has_a_way_out_and_what_does_not_go_can_become_ready() {
        for start in Status::ALL {
            let (mut reached, mut gone, mut i) = (vec![start], false, 0);
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
            let going = matches!(start, Status::Deprovisioning | Status::Cleanup);
            assert_eq!(reached.contains(&Status::Ready), !going, "{start:?}");
        }
    }
}
