//! What a job will read: made once by discovery, so that every replica reads the same.

use serde::{Deserialize, Serialize};

use super::inventory::{Attribution, Member, Selection};

/// All that a job reads. Each of its shards has its own part of it, too.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    pub members: Vec<Member>,
    pub shards: Vec<Shard>,
}

/// Containers that are read together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shard {
    pub attribution: Attribution,
    /// Whether its namespaces have containers that are not in it, so that its queries name those
    /// that are.
    pub narrow: bool,
    /// Indexes into the members of the job.
    pub members: Vec<usize>,
}

impl Shard {
    pub fn members<'a>(&self, all: &'a [Member]) -> impl Iterator<Item = &'a Member> {
        self.members.iter().filter_map(|index| all.get(*index))
    }

    /// What its queries ask for.
    pub fn selection(&self, all: &[Member]) -> Selection {
        Selection::of(self.members(all), self.attribution, self.narrow)
    }
}
