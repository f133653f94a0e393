//! Reads the data source of one experiment and recommends for it, outside of jobs.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use kernel::Error;
use parking_lot::Mutex;

use super::Advisor;
use super::discovery::Discovery;
use super::profiles;
use super::reader::Reader;
use super::shard::{Job, Outcome, Stop};
use crate::decide::split::{Limits, split};
use crate::model::bulk::{BulkRequest, ExperimentType};
use crate::model::experiment::{Experiment, METADATA_PROFILE, Type};
use crate::model::filter::{Filter, Selector};
use crate::model::inventory::Member;
use crate::model::recommendation::Recommendation;
use crate::model::tenant::Tenant;
use crate::ports::prometheus::queries::{Queries, Range};

/// Recommends for each member of an experiment, in their order, from the 15 days before `end`; or
/// says why it cannot.
pub async fn measure(
    advisor: &Advisor,
    tenant: Tenant<'_>,
    experiment: &Experiment,
    end: Timestamp,
) -> Result<Vec<Recommendation>, String> {
    let datasource = experiment.datasource.as_deref().unwrap_or_default();
    let source = advisor.sources.find(tenant.org, datasource).await.map_err(|e| e.with_causes())?;
    let source =
        source.ok_or_else(|| format!("data source `{datasource}` is not known any more"))?;
    let reader = Reader::new(&source.client, &source.gate);
    read(advisor, tenant, &reader, experiment, end).await.map_err(|stop| match stop {
        Stop::Source(error) => error.why,
        Stop::Other(error) => error.with_causes(),
    })
}

async fn read(
    advisor: &Advisor,
    tenant: Tenant<'_>,
    reader: &Reader<'_>,
    experiment: &Experiment,
    end: Timestamp,
) -> Result<Vec<Recommendation>, Stop> {
    let options = advisor.options();
    let store = advisor.app.store.as_ref();
    let unknown = |sort: &str, name: &str| {
        let why = format!("the {sort} profile `{name}` of the experiment does not exist");
        Stop::Other(Error::Transient(why))
    };
    let name = experiment.metadata_profile.as_deref().unwrap_or(METADATA_PROFILE);
    let metadata = profiles::metadata(store, tenant, name).await?;
    let metadata = metadata.ok_or_else(|| unknown("metadata", name))?;
    let name = &experiment.performance_profile;
    let metrics = profiles::metrics(store, tenant, name).await?;
    let metrics = metrics.ok_or_else(|| unknown("metric", name))?;
    let asked = experiment.members();
    let discovery = Discovery {
        reader,
        bulk: &around(experiment, &asked),
        names: &advisor.names,
        metadata: &metadata,
        metrics: &metrics,
        measurement_min: options.measurement_min,
        now: end,
        answered: &|| {},
        found: &|_| {},
        containers_max: usize::MAX,
    };
    let discovered = discovery.run().await?;
    let members: Arc<[Member]> =
        asked.into_iter().map(|member| placed(member, &discovered.plan.members)).collect();
    let profile = metrics.profile(discovered.with_recording_rules);
    let thresholds: HashMap<usize, f64> =
        (0..members.len()).map(|index| (index, experiment.threshold)).collect();
    let outcomes: Mutex<Vec<Outcome>> = Mutex::default();
    let job = Job {
        reader,
        queries: Queries { profile: &profile, series: &[], minutes: options.measurement_min },
        range: Range::until(end),
        members: members.clone(),
        options,
        thresholds: Arc::new(thresholds),
        answered: &|| {},
    };
    for shard in split(&members, true, Limits::default()) {
        job.read(shard, |some| outcomes.lock().extend(some)).await?;
    }
    let mut outcomes = outcomes.into_inner();
    outcomes.sort_by_key(|(index, _)| *index);
    let failed = |why| Stop::Other(Error::Transient(why));
    outcomes.into_iter().map(|(_, outcome)| outcome.map_err(failed)).collect()
}

/// A request for all containers of the names, in the namespace of the experiment: those of other
/// workloads show whether a name alone tells whose a measurement is.
fn around(experiment: &Experiment, members: &[Member]) -> BulkRequest {
    let namespaces: BTreeSet<String> = members.iter().map(|it| it.namespace.clone()).collect();
    let (types, containers) = match experiment.experiment_type {
        Type::Namespace => (ExperimentType::Namespace, None),
        Type::Container => {
            let containers = members.iter().map(|member| member.container.clone()).collect();
            (ExperimentType::Container, Some(containers))
        }
    };
    let include = Selector {
        namespace: Some(namespaces.into_iter().collect()),
        containers,
        ..Selector::default()
    };
    BulkRequest {
        filter: Some(Filter { include: Some(include), exclude: None }),
        experiment_types: Some(BTreeSet::from([types])),
        ..BulkRequest::default()
    }
}

/// A member as it is in the cluster. If it is not there any more, its name stands for it, unless that
/// is now the name of another workload's container.
fn placed(member: Member, found: &[Member]) -> Member {
    let same_name = |other: &&Member| {
        other.namespace == member.namespace && other.container == member.container
    };
    let same_workload = |other: &Member| {
        other.workload == member.workload
            && other.workload_type.eq_ignore_ascii_case(&member.workload_type)
    };
    let mut others = found.iter().filter(same_name);
    let (mut own, mut shared_name) = (None, false);
    for other in &mut others {
        if same_workload(other) {
            own = Some(other);
        } else {
            shared_name = !member.is_namespace();
        }
    }
    match own {
        Some(own) => Member { image: member.image, shared_name, ..own.clone() },
        None => Member { shared_name, ..member },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(workload: &str, workload_type: &str) -> Member {
        Member {
            workload: workload.into(),
            workload_type: workload_type.into(),
            container: "app".into(),
            ..Member::of_namespace("shop", 7)
        }
    }

    #[test]
    fn the_owner_is_asked_only_where_another_workload_has_the_name() {
        let asked = || Member { pods: 1, ..member("web", "Deployment") };
        let (own, other) = (member("web", "deployment"), member("job", "deployment"));
        assert_eq!(placed(asked(), std::slice::from_ref(&own)), own);
        let shared = placed(asked(), &[own.clone(), other.clone()]);
        assert_eq!(shared, Member { shared_name: true, ..own });
        assert_eq!(placed(asked(), &[]), asked());
        assert!(placed(asked(), &[other]).shared_name, "what is measured is not its own");
    }
}
