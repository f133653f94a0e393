//! Splits the containers of a job into shards, which are read one at a time.
//!
//! A shard has so few containers and pods that Prometheus answers each of its queries well within its
//! own limits. Containers of one namespace stay together where they can: then the queries need no
//! list of container names. Equal members make equal shards, on every replica and after a restart.

use std::collections::BTreeSet;

use crate::model::inventory::{Attribution, Member};
use crate::model::plan::Shard;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub containers_max: usize,
    pub pods_max: u64,
}

impl Default for Limits {
    /// With 15 days of 15-minute steps, 1.5 of the 50 million samples that Prometheus loads at most.
    fn default() -> Self {
        Self { containers_max: 250, pods_max: 1000 }
    }
}

/// Splits members into shards. `narrowed` says that the job's filter may have left out containers of
/// a namespace.
pub fn split(all: &[Member], narrowed: bool, limits: Limits) -> Vec<Shard> {
    let mut shards = Vec::new();
    for attribution in [Attribution::Name, Attribution::Owner, Attribution::Namespace] {
        let mut indexes: Vec<usize> =
            (0..all.len()).filter(|index| all[*index].attribution() == attribution).collect();
        indexes.sort_by_key(|index| order(&all[*index]));
        let mut open = Shard { attribution, narrow: narrowed, members: Vec::new() };
        for namespace in indexes.chunk_by(|a, b| all[*a].namespace == all[*b].namespace) {
            if !fits(&open.members, namespace, all, limits) {
                shards.push(take(&mut open));
            }
            if fits(&[], namespace, all, limits) {
                open.members.extend(namespace);
            } else {
                shards.extend(cut(namespace, attribution, all, limits));
            }
        }
        shards.push(take(&mut open));
    }
    shards.retain(|shard| !shard.members.is_empty());
    // A namespace with shared names is in shards of both kinds, and whole in none of them.
    let shared = all.iter().filter(|member| member.shared_name);
    let shared: BTreeSet<&str> = shared.map(|member| member.namespace.as_str()).collect();
    for shard in &mut shards {
        let partial =
            shard.members.iter().any(|index| shared.contains(all[*index].namespace.as_str()));
        shard.narrow |= partial;
    }
    shards
}

/// The parts of a shard that a Prometheus refuses as too large: two, or for a single member one that
/// names it. Parts name their containers, because what is too large may be of others in the
/// namespaces. None if there is nothing smaller.
pub fn smaller(shard: &Shard, all: &[Member]) -> Vec<Shard> {
    if shard.members.len() < 2 {
        let wide = !shard.narrow && shard.attribution != Attribution::Namespace;
        return Vec::from_iter(wide.then(|| Shard { narrow: true, ..shard.clone() }));
    }
    let pods = |index: &usize| all.get(*index).map_or(1, |member| u64::from(member.pods));
    let namespace = |at: usize| all.get(shard.members[at]).map(|member| &member.namespace);
    let total: u64 = shard.members.iter().map(pods).sum();
    // How far a cut before a member is from halves of equal pods, and whether it cuts a namespace.
    let mut before = 0;
    let mut best = (true, u64::MAX, 1);
    for at in 1..shard.members.len() {
        before += pods(&shard.members[at - 1]);
        let uneven = before.abs_diff(total - before);
        let within = namespace(at - 1) == namespace(at);
        // A cut between namespaces is better unless it is far from the middle.
        let cut = (within || uneven > total / 2, uneven, at);
        best = best.min(cut);
    }
    let (first, second) = shard.members.split_at(best.2);
    let half = |members: &[usize]| Shard {
        attribution: shard.attribution,
        narrow: true,
        members: members.to_vec(),
    };
    vec![half(first), half(second)]
}

/// Containers of one namespace in shards of their own.
fn cut(indexes: &[usize], attribution: Attribution, all: &[Member], limits: Limits) -> Vec<Shard> {
    let mut shards = Vec::new();
    let mut open = Shard { attribution, narrow: true, members: Vec::new() };
    for index in indexes {
        if !fits(&open.members, &[*index], all, limits) {
            shards.push(take(&mut open));
        }
        open.members.push(*index);
    }
    shards.push(open);
    shards
}

/// Whether members and more make one shard. A single container always does, however many pods.
fn fits(members: &[usize], more: &[usize], all: &[Member], limits: Limits) -> bool {
    let count = members.len() + more.len();
    let pods: u64 = members.iter().chain(more).map(|index| u64::from(all[*index].pods)).sum();
    count <= 1 || (count <= limits.containers_max && pods <= limits.pods_max)
}

fn take(open: &mut Shard) -> Shard {
    Shard {
        attribution: open.attribution,
        narrow: open.narrow,
        members: std::mem::take(&mut open.members),
    }
}

/// Members by namespace, and within it by workload: the owners of a shard are a short list.
fn order(member: &Member) -> (&str, &str, &str, &str) {
    (&member.namespace, &member.workload, &member.workload_type, &member.container)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMITS: Limits = Limits { containers_max: 10, pods_max: 40 };

    fn member(
        namespace: &str,
        workload: &str,
        container: &str,
        pods: u32,
        shared_name: bool,
    ) -> Member {
        Member {
            namespace: namespace.into(),
            workload: workload.into(),
            workload_type: "deployment".into(),
            container: container.into(),
            image: "image".into(),
            pods,
            shared_name,
        }
    }

    fn namespace(name: &str, containers: usize, pods: u32) -> Vec<Member> {
        (0..containers).map(|i| member(name, "w", &format!("c{i:03}"), pods, false)).collect()
    }

    fn sizes(shards: &[Shard]) -> Vec<(usize, bool)> {
        shards.iter().map(|shard| (shard.members.len(), shard.narrow)).collect()
    }

    #[test]
    fn namespaces_stay_whole_where_they_can() {
        let all = [
            namespace("a", 4, 1),
            namespace("b", 4, 1),
            namespace("c", 4, 1),
            namespace("d", 23, 1),
        ];
        let shards = split(&all.concat(), false, LIMITS);
        assert_eq!(sizes(&shards), [(8, false), (4, false), (10, true), (10, true), (3, true)]);
        assert_eq!(shards[0].selection(&all.concat()).containers, None);
        let names = shards[4].selection(&all.concat()).containers.unwrap();
        assert_eq!(names.into_iter().collect::<Vec<_>>(), ["c020", "c021", "c022"]);
    }

    #[test]
    fn pods_count_and_one_container_of_many_is_a_shard() {
        let all = [namespace("a", 1, 5000), namespace("b", 3, 15), namespace("c", 1, 5)];
        assert_eq!(
            sizes(&split(&all.concat(), false, LIMITS)),
            [(1, false), (2, true), (1, true), (1, false)]
        );
    }

    #[test]
    fn what_a_filter_left_out_is_not_read() {
        let all = namespace("a", 2, 1);
        assert_eq!(sizes(&split(&all, true, LIMITS)), [(2, true)]);
        assert_eq!(split(&[], true, LIMITS), []);
    }

    #[test]
    fn shared_names_are_apart_and_the_rest_of_their_namespace_is_named() {
        let mut all = namespace("a", 2, 1);
        all.extend(namespace("b", 2, 1));
        all.extend([member("b", "one", "app", 1, true), member("b", "two", "app", 1, true)]);
        let shards = split(&all, false, LIMITS);
        assert_eq!(sizes(&shards), [(4, true), (2, true)]);
        let owners = shards[1].selection(&all);
        assert_eq!(owners.attribution, Attribution::Owner);
        assert_eq!(owners.workloads.unwrap().into_iter().collect::<Vec<_>>(), ["one", "two"]);
    }

    #[test]
    fn half_a_shard_is_half_of_its_pods() {
        let all = [namespace("a", 3, 1), namespace("b", 3, 1)].concat();
        let shard = &split(&all, false, LIMITS)[0];
        let halves = smaller(shard, &all);
        assert_eq!(sizes(&halves), [(3, true), (3, true)]);
        let quarters = smaller(&halves[0], &all);
        assert_eq!(sizes(&quarters), [(1, true), (2, true)]);
        assert_eq!(smaller(&quarters[0], &all), []);
    }

    #[test]
    fn a_single_container_is_named_before_it_fails() {
        let all = namespace("a", 1, 1);
        let wide = &split(&all, false, LIMITS)[0];
        assert_eq!(sizes(std::slice::from_ref(wide)), [(1, false)]);
        let narrow = smaller(wide, &all);
        assert_eq!(sizes(&narrow), [(1, true)]);
        assert_eq!(smaller(&narrow[0], &all), []);
    }

    fn members() -> impl Strategy<Value = Vec<Member>> {
        let one = (0..6_u8, 0..4_u8, 0..8_u8, 1..30_u32, any::<bool>());
        prop::collection::vec(one, 0..120).prop_map(|all| {
            let member =
                |(namespace, workload, container, pods, shared): (u8, u8, u8, u32, bool)| {
                    let (namespace, workload) = (format!("n{namespace}"), format!("w{workload}"));
                    member(&namespace, &workload, &format!("c{container}"), pods, shared)
                };
            all.into_iter().map(member).collect()
        })
    }

    proptest! {
        #[test]
        fn every_member_is_in_one_shard_that_is_within_the_limits(all in members(), narrowed in any::<bool>()) {
            let shards = split(&all, narrowed, LIMITS);
            let mut indexes: Vec<usize> = shards.iter().flat_map(|shard| shard.members.clone()).collect();
            indexes.sort_unstable();
            prop_assert_eq!(indexes, (0..all.len()).collect::<Vec<_>>());
            for shard in &shards {
                let pods: u32 = shard.members(&all).map(|member| member.pods).sum();
                let fits = shard.members.len() <= 10 && pods <= 40;
                prop_assert!(fits || shard.members.len() == 1);
                prop_assert!(shard.members(&all).all(|member| member.attribution() == shard.attribution));
                // A shard that names no containers has all of its namespaces.
                let outside = (0..all.len()).filter(|index| !shard.members.contains(index));
                let namespaces = shard.selection(&all).namespaces;
                let mut outside = outside.map(|index| &all[index].namespace);
                prop_assert!(shard.narrow || !outside.any(|namespace| namespaces.contains(namespace)));
            }
        }

        #[test]
        fn parts_are_the_whole_and_end_with_single_members(all in members()) {
            for shard in split(&all, false, Limits::default()) {
                let mut open = vec![shard.clone()];
                let mut single = Vec::new();
                while let Some(shard) = open.pop() {
                    let parts = smaller(&shard, &all);
                    if parts.is_empty() {
                        prop_assert_eq!(shard.members.len(), 1);
                        single.extend(shard.members);
                    } else {
                        open.extend(parts.into_iter().rev());
                    }
                }
                prop_assert_eq!(single, shard.members);
            }
        }
    }
}
