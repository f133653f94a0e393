//! Bugs that are put into the store in memory on purpose, to see that the simulator finds them.

use kernel::change::{Change, Work, Write};
use kernel::queue::State;

use crate::memory::Tables;

/// A bug put in on purpose, to see that the simulator finds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    SkipFenceCheck,
    DropWakeUps,
    ReleaseTwice,
    ForgetCommands,
    IgnoreLimits,
    LoseEvents,
    IgnoreRevisions,
    TrustCallersClocks,
    /// Single objects are read from a cache that no write invalidates.
    StaleCache,
    /// The command of a schedule is named by the time of its run, and not by the planned one.
    NameRunsByTheClock,
}

impl Tables {
    pub(crate) fn spoil(&mut self, bug: Bug, changes: &mut [Change]) {
        for change in changes {
            match bug {
                Bug::SkipFenceCheck => {
                    if let Some(
                        Work::RenewLease { key, fence, .. } | Work::Complete { key, fence, .. },
                    ) = &mut change.work
                    {
                        match self.queue.get_mut(key) {
                            Some(row) => (row.state, row.fence) = (State::Running, *fence),
                            None => change.work = None,
                        }
                    }
                    if let Some(Write::Update(object) | Write::Transition(object)) =
                        &mut change.write
                    {
                        object.revision =
                            self.objects.get(&object.key).map_or(0, |(_, stored)| stored.revision);
                    }
                    change.expects.clear();
                }
                Bug::DropWakeUps => {
                    change.wake_dependents = false;
                    change.wake_dependencies = false;
                    if !matches!(change.write, Some(Write::Create(_))) {
                        change.wakes.clear();
                    }
                }
                Bug::ForgetCommands => change.command = None,
                Bug::IgnoreLimits => change.takes.iter_mut().for_each(|take| take.limit = i64::MAX),
                Bug::IgnoreRevisions => {
                    change.expects.clear();
                    if let Some(Write::Update(object) | Write::Transition(object)) =
                        &mut change.write
                    {
                        object.revision =
                            self.objects.get(&object.key).map_or(0, |(_, stored)| stored.revision);
                    }
                }
                Bug::ReleaseTwice
                | Bug::LoseEvents
                | Bug::TrustCallersClocks
                | Bug::StaleCache
                | Bug::NameRunsByTheClock => {}
            }
        }
    }
}
