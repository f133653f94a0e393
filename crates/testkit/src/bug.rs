//! Bugs that are put into the store in memory on purpose, to see that the simulator finds them.

use kernel::blob::BlobWrite;
use kernel::change::{Change, EventDraft, Work, WriteKind};
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
    /// A blob replaces what was written since it was read.
    IgnoreBlobVersions,
    /// That a command was rejected is not remembered.
    ForgetRejections,
    /// A reader that lost its lease moves the position all the same.
    IgnoreCursorFences,
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
                    self.read_again(change);
                    change.expects.clear();
                }
                Bug::DropWakeUps => {
                    change.wake_dependents = false;
                    change.wake_dependencies = false;
                    if change.write.as_ref().is_none_or(|write| write.kind != WriteKind::Create) {
                        change.wakes.clear();
                    }
                }
                Bug::ForgetCommands => change.command = None,
                Bug::IgnoreLimits => change.takes.iter_mut().for_each(|take| take.limit = i64::MAX),
                Bug::IgnoreRevisions => {
                    change.expects.clear();
                    self.read_again(change);
                }
                Bug::ReleaseTwice
                | Bug::LoseEvents
                | Bug::TrustCallersClocks
                | Bug::StaleCache
                | Bug::NameRunsByTheClock => {}
                Bug::IgnoreBlobVersions => {
                    for blob in &mut change.blobs {
                        if let BlobWrite::Put { expected, .. } = blob {
                            *expected = None;
                        }
                    }
                }
                Bug::ForgetRejections => {
                    let rejected = |event: &EventDraft| event.kind == "mainstay.command.rejected";
                    if change.event.as_ref().is_some_and(rejected) {
                        change.command = None;
                    }
                }
                Bug::IgnoreCursorFences => {
                    if let Some(cursor) = &mut change.cursor {
                        let stored = self.cursors.get(&cursor.name).map_or(0, |there| there.fence);
                        cursor.fence = cursor.fence.max(stored);
                    }
                }
            }
        }
    }

    /// Makes a write name the revision that is stored.
    fn read_again(&self, change: &mut Change) {
        if let Some(write) = &mut change.write
            && write.kind != WriteKind::Create
        {
            let stored = self.objects.get(&write.object.key);
            write.object.revision = stored.map_or(0, |(_, stored)| stored.revision);
        }
    }
}
