//! The life cycle of an instance as one table: from phase and event to phase.

use crate::decide::Transition;
use crate::model::instance::Phase;

/// What can happen to an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Event {
    /// A cluster was selected for it.
    Placed,
    /// Everything that it needs outside the data plane exists.
    Prepared,
    /// The agent reports it as running, and its DNS names are in place.
    Ready,
    /// The agent reports it as broken.
    Broken,
    /// Its cluster has no capacity for it.
    Rejected,
    Suspended,
    /// Nothing of it is left on the data plane.
    Removed,
    /// Its deletion was requested: by its owner, an admin, the deny list, its expiry.
    Delete,
    Suspend,
    Resume,
    /// A timeout passed, or something that it needs was refused.
    GiveUp,
    /// Its cluster is gone for good.
    ClusterGone,
    /// Nothing of it is left.
    Cleaned,
}

pub fn next_phase(phase: Phase, event: Event) -> Transition<Phase> {
    use Event as E;
    use Phase as S;
    match (phase, event) {
        // A deletion is never reverted.
        (S::Deprovision, E::Removed) => Transition::To(S::Deleting),
        (S::Deleting, E::Cleaned) => Transition::Removed,
        (S::Deprovision | S::Deleting, _) => Transition::None,
        (_, E::Delete) => Transition::To(S::Deprovision),
        // An instance that is not used yet is placed elsewhere; else its data is gone with the cluster.
        (S::Accepted | S::Preparing, E::ClusterGone) => Transition::To(S::Accepted),
        (S::Provisioning, E::ClusterGone) => Transition::To(S::Provisioning),
        (S::Failed, E::ClusterGone) => Transition::None,
        (_, E::ClusterGone) => Transition::To(S::Failed),
        (S::Accepted, E::Placed) => Transition::To(S::Preparing),
        (S::Preparing, E::Prepared) => Transition::To(S::Provisioning),
        // It stays in provisioning, and is placed elsewhere.
        (S::Provisioning, E::Rejected) => Transition::To(S::Provisioning),
        (S::Provisioning | S::Failed | S::Resuming, E::Ready) => Transition::To(S::Ready),
        (S::Suspending, E::Suspended) => Transition::To(S::Suspended),
        (S::Suspended, E::Resume) => Transition::To(S::Resuming),
        (S::Ready, E::Suspend) => Transition::To(S::Suspending),
        // The end of an entitlement suspends an instance in any phase before ready, too.
        (S::Accepted | S::Preparing | S::Provisioning | S::Resuming, E::Suspend) => {
            Transition::To(S::Suspending)
        }
        (S::Suspending | S::Suspended | S::Failed, E::Broken) => Transition::None,
        (_, E::Broken) => Transition::To(S::Failed),
        (S::Accepted | S::Preparing | S::Provisioning | S::Resuming, E::GiveUp) => {
            Transition::To(S::Failed)
        }
        _ => Transition::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENTS: [Event; 13] = [
        Event::Placed,
        Event::Prepared,
        Event::Ready,
        Event::Broken,
        Event::Rejected,
        Event::Suspended,
        Event::Removed,
        Event::Delete,
        Event::Suspend,
        Event::Resume,
        Event::GiveUp,
        Event::ClusterGone,
        Event::Cleaned,
    ];

    /// All pairs that change something. All other pairs of the 130 must not.
    const TABLE: &[(Phase, Event, Transition<Phase>)] = {
        use Event as E;
        use Phase as S;
        &[
            (S::Accepted, E::Placed, Transition::To(S::Preparing)),
            (S::Accepted, E::Broken, Transition::To(S::Failed)),
            (S::Accepted, E::Delete, Transition::To(S::Deprovision)),
            (S::Accepted, E::Suspend, Transition::To(S::Suspending)),
            (S::Accepted, E::GiveUp, Transition::To(S::Failed)),
            (S::Preparing, E::Prepared, Transition::To(S::Provisioning)),
            (S::Preparing, E::Broken, Transition::To(S::Failed)),
            (S::Preparing, E::Delete, Transition::To(S::Deprovision)),
            (S::Preparing, E::Suspend, Transition::To(S::Suspending)),
            (S::Preparing, E::GiveUp, Transition::To(S::Failed)),
            (S::Provisioning, E::Ready, Transition::To(S::Ready)),
            (S::Provisioning, E::Rejected, Transition::To(S::Provisioning)),
            (S::Provisioning, E::Broken, Transition::To(S::Failed)),
            (S::Provisioning, E::Delete, Transition::To(S::Deprovision)),
            (S::Provisioning, E::Suspend, Transition::To(S::Suspending)),
            (S::Provisioning, E::GiveUp, Transition::To(S::Failed)),
            (S::Ready, E::Broken, Transition::To(S::Failed)),
            (S::Ready, E::Delete, Transition::To(S::Deprovision)),
            (S::Ready, E::Suspend, Transition::To(S::Suspending)),
            (S::Failed, E::Ready, Transition::To(S::Ready)),
            (S::Failed, E::Delete, Transition::To(S::Deprovision)),
            (S::Suspending, E::Suspended, Transition::To(S::Suspended)),
            (S::Suspending, E::Delete, Transition::To(S::Deprovision)),
            (S::Suspended, E::Resume, Transition::To(S::Resuming)),
            (S::Suspended, E::Delete, Transition::To(S::Deprovision)),
            (S::Resuming, E::Ready, Transition::To(S::Ready)),
            (S::Resuming, E::Broken, Transition::To(S::Failed)),
            (S::Resuming, E::Delete, Transition::To(S::Deprovision)),
            (S::Resuming, E::Suspend, Transition::To(S::Suspending)),
            (S::Resuming, E::GiveUp, Transition::To(S::Failed)),
            (S::Accepted, E::ClusterGone, Transition::To(S::Accepted)),
            (S::Preparing, E::ClusterGone, Transition::To(S::Accepted)),
            (S::Provisioning, E::ClusterGone, Transition::To(S::Provisioning)),
            (S::Ready, E::ClusterGone, Transition::To(S::Failed)),
            (S::Suspending, E::ClusterGone, Transition::To(S::Failed)),
            (S::Suspended, E::ClusterGone, Transition::To(S::Failed)),
            (S::Resuming, E::ClusterGone, Transition::To(S::Failed)),
            (S::Deprovision, E::Removed, Transition::To(S::Deleting)),
            (S::Deleting, E::Cleaned, Transition::Removed),
        ]
    };

    #[test]
    fn every_phase_and_event_is_in_the_table_or_changes_nothing() {
        for phase in Phase::ALL {
            for event in EVENTS {
                let listed = TABLE.iter().find(|(s, e, _)| (*s, *e) == (phase, event));
                let expected = listed.map_or(Transition::None, |(_, _, then)| *then);
                assert_eq!(next_phase(phase, event), expected, "{phase:?} {event:?}");
            }
        }
    }

    #[test]
    fn every_phase_leads_to_removal_and_unless_deleting_to_ready() {
        for start in Phase::ALL {
            let mut reached = vec![start];
            let mut gone = false;
            let mut i = 0;
            while let Some(&phase) = reached.get(i) {
                for event in EVENTS {
                    match next_phase(phase, event) {
                        Transition::To(next) if !reached.contains(&next) => reached.push(next),
                        Transition::Removed => gone = true,
                        _ => {}
                    }
                }
                i += 1;
            }
            assert!(gone, "{start:?} cannot be removed");
            let up = reached.contains(&Phase::Ready);
            assert!(up || start.is_going(), "{start:?} cannot become ready");
        }
    }
}
