//! The life cycle of a cluster as one table: from phase and event to phase.

use crate::decide::Transition;
use crate::model::cluster::Phase;

/// What can happen to a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Event {
    /// Its provider was asked to create it.
    ProvisionRequested,
    /// It exists: its provider created it, or it existed before.
    Provisioned,
    /// Only its agent is known: there is nothing to create and nothing to install.
    Registered,
    /// Everything that it needs is installed, including its agent.
    AgentInstalled,
    AgentReady,
    AgentNotReady,
    /// It could not be created, or not in time.
    ProvisionFailed,
    /// The spec of a failed cluster was changed.
    Retried,
    /// Its deletion was requested.
    Delete,
    /// Nothing is left at its provider.
    Removed,
    /// Nothing of it is left.
    Cleaned,
}

pub fn next_phase(phase: Phase, event: Event) -> Transition<Phase> {
    use Event as E;
    use Phase as S;
    match (phase, event) {
        // A deletion is never reverted.
        (S::Deprovisioning, E::Removed) => Transition::To(S::Cleanup),
        (S::Cleanup, E::Cleaned) => Transition::Removed,
        (S::Deprovisioning | S::Cleanup, _) => Transition::None,
        (_, E::Delete) => Transition::To(S::Deprovisioning),
        (S::Accepted, E::ProvisionRequested) => Transition::To(S::Provisioning),
        (S::Accepted | S::Provisioning, E::Provisioned) => Transition::To(S::Provisioned),
        (S::Accepted | S::Provisioning | S::Provisioned, E::Registered) => {
            Transition::To(S::Waiting)
        }
        (S::Provisioned, E::AgentInstalled) => Transition::To(S::Waiting),
        (S::Waiting, E::AgentReady) => Transition::To(S::Ready),
        (S::Ready, E::AgentNotReady) => Transition::To(S::Waiting),
        (S::Accepted | S::Provisioning | S::Provisioned, E::ProvisionFailed) => {
            Transition::To(S::Failed)
        }
        (S::Failed, E::Retried) => Transition::To(S::Accepted),
        _ => Transition::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENTS: [Event; 11] = [
        Event::ProvisionRequested,
        Event::Provisioned,
        Event::Registered,
        Event::AgentInstalled,
        Event::AgentReady,
        Event::AgentNotReady,
        Event::ProvisionFailed,
        Event::Retried,
        Event::Delete,
        Event::Removed,
        Event::Cleaned,
    ];

    /// All pairs that change something. All other pairs of the 88 must not.
    const TABLE: &[(Phase, Event, Transition<Phase>)] = {
        use Event as E;
        use Phase as S;
        &[
            (S::Accepted, E::ProvisionRequested, Transition::To(S::Provisioning)),
            (S::Accepted, E::Provisioned, Transition::To(S::Provisioned)),
            (S::Accepted, E::Registered, Transition::To(S::Waiting)),
            (S::Accepted, E::ProvisionFailed, Transition::To(S::Failed)),
            (S::Accepted, E::Delete, Transition::To(S::Deprovisioning)),
            (S::Provisioning, E::Provisioned, Transition::To(S::Provisioned)),
            (S::Provisioning, E::Registered, Transition::To(S::Waiting)),
            (S::Provisioning, E::ProvisionFailed, Transition::To(S::Failed)),
            (S::Provisioning, E::Delete, Transition::To(S::Deprovisioning)),
            (S::Provisioned, E::Registered, Transition::To(S::Waiting)),
            (S::Provisioned, E::AgentInstalled, Transition::To(S::Waiting)),
            (S::Provisioned, E::ProvisionFailed, Transition::To(S::Failed)),
            (S::Provisioned, E::Delete, Transition::To(S::Deprovisioning)),
            (S::Waiting, E::AgentReady, Transition::To(S::Ready)),
            (S::Waiting, E::Delete, Transition::To(S::Deprovisioning)),
            (S::Ready, E::AgentNotReady, Transition::To(S::Waiting)),
            (S::Ready, E::Delete, Transition::To(S::Deprovisioning)),
            (S::Failed, E::Retried, Transition::To(S::Accepted)),
            (S::Failed, E::Delete, Transition::To(S::Deprovisioning)),
            (S::Deprovisioning, E::Removed, Transition::To(S::Cleanup)),
            (S::Cleanup, E::Cleaned, Transition::Removed),
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
            let (mut reached, mut gone, mut i) = (vec![start], false, 0);
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
            let going = matches!(start, Phase::Deprovisioning | Phase::Cleanup);
            assert_eq!(reached.contains(&Phase::Ready), !going, "{start:?}");
        }
    }
}
