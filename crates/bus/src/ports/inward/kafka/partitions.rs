//! The partitions that the group has given to us, and a task for each that handles its records in
//! order.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use kernel::{Error, Timestamp};
use krafka::consumer::{
    ConsumerRebalanceListener, ConsumerRecord, OffsetAndMetadata, TopicPartition,
};
use krafka::error::{ErrorCode, KrafkaError};
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};

use super::publish::Publisher;
use crate::ports::inward::{self, Bare, DeadLetter, Handler, Incoming, Reply, ReplyTo, Settled};
use crate::ports::kafka::has_code;

/// Records that wait for the task of a partition, besides those of one poll.
const WAITING_MAX: usize = 16;
const FINISH_CHECK: Duration = Duration::from_millis(20);

/// What the tasks share.
#[derive(Clone)]
pub(super) struct Work {
    pub handler: Arc<dyn Handler>,
    pub replies: mpsc::Sender<Reply>,
    pub publisher: Arc<Publisher>,
    pub reply_topics: BTreeSet<String>,
    /// By topic: what its records are the body of, if they have no envelope.
    pub commands: BTreeMap<String, String>,
    pub bytes_max: usize,
    pub settled: mpsc::Sender<SettledRecord>,
}

/// A record that is done with.
pub(super) struct SettledRecord {
    partition: TopicPartition,
    offset: i64,
    /// Which time the partition was given to us.
    assignment: u64,
}

pub(super) struct Partitions {
    work: Work,
    state: Mutex<State>,
    /// Why a task could not go on.
    broken: watch::Sender<Option<String>>,
}

#[derive(Default)]
struct State {
    owned: HashMap<TopicPartition, Partition>,
    assignments: u64,
    tasks: JoinSet<()>,
}

struct Partition {
    assignment: u64,
    records: mpsc::Sender<ConsumerRecord>,
    /// Did not fit; the partition is paused until it is empty.
    waiting: VecDeque<ConsumerRecord>,
    paused: bool,
    task: AbortHandle,
}

impl Partitions {
    pub fn new(work: Work) -> Partitions {
        Partitions { work, state: Mutex::default(), broken: watch::Sender::new(None) }
    }

    pub fn replies(&self) -> mpsc::Sender<Reply> {
        self.work.replies.clone()
    }

    /// Takes records in, and returns the partitions that must be paused with how many wait.
    pub fn accept(&self, records: Vec<ConsumerRecord>) -> Vec<(TopicPartition, usize)> {
        let mut state = self.state.lock();
        for record in records {
            let partition = TopicPartition::new(record.topic.to_string(), record.partition);
            let partition = self.owned_partition(&mut state, partition);
            partition.waiting.push_back(record);
        }
        let mut full = Vec::new();
        for (name, partition) in &mut state.owned {
            partition.feed();
            if !partition.waiting.is_empty() && !partition.paused {
                partition.paused = true;
                full.push((name.clone(), partition.waiting.len()));
            }
        }
        full
    }

    /// Partitions that were paused and can take records again. Reaps the tasks that have ended.
    pub fn drained(&self) -> Vec<TopicPartition> {
        let mut state = self.state.lock();
        while let Some(ended) = state.tasks.try_join_next() {
            if ended.is_err_and(|error| error.is_panic()) {
                self.broken.send_replace(Some("the task of a partition panicked".into()));
            }
        }
        let mut drained = Vec::new();
        for (name, partition) in &mut state.owned {
            partition.feed();
            if partition.paused && partition.waiting.is_empty() {
                partition.paused = false;
                drained.push(name.clone());
            }
        }
        drained
    }

    /// The offsets to commit: the newest of each partition that is still ours, and was ours without
    /// interruption since the record was received.
    pub fn owned(
        &self,
        settled: impl Iterator<Item = SettledRecord>,
    ) -> HashMap<TopicPartition, OffsetAndMetadata> {
        let state = self.state.lock();
        let mut offsets = HashMap::new();
        for record in settled {
            let owner = state.owned.get(&record.partition);
            if owner.is_some_and(|owner| owner.assignment == record.assignment) {
                // Those of one partition come in order.
                offsets.insert(record.partition, OffsetAndMetadata::new(record.offset + 1));
            }
        }
        offsets
    }

    /// Waits until a task cannot go on.
    pub async fn broken(&self) -> Error {
        let mut broken = self.broken.subscribe();
        let why = broken.wait_for(Option::is_some).await.map(|why| why.clone());
        let why = why.ok().flatten().unwrap_or_default();
        Error::unavailable("handling records of Kafka", why)
    }

    /// Waits for the records that are being handled; those that wait are left.
    pub async fn finish(&self) {
        self.state.lock().owned.values_mut().for_each(|partition| {
            partition.waiting.clear();
            // The task ends after the records that it has; a handler abandons them if it must stop.
            let (closed, _) = mpsc::channel(1);
            partition.records = closed;
        });
        while self.has_tasks() {
            tokio::time::sleep(FINISH_CHECK).await;
        }
    }

    fn has_tasks(&self) -> bool {
        let mut state = self.state.lock();
        while state.tasks.try_join_next().is_some() {}
        !state.tasks.is_empty()
    }

    pub fn abort(&self) {
        self.state.lock().tasks.abort_all();
    }

    fn owned_partition<'a>(&self, state: &'a mut State, name: TopicPartition) -> &'a mut Partition {
        let State { owned, assignments, tasks } = state;
        owned.entry(name).or_insert_with_key(|name| {
            *assignments += 1;
            let (records, received) = mpsc::channel(WAITING_MAX);
            let task = Task {
                work: self.work.clone(),
                partition: name.clone(),
                assignment: *assignments,
                broken: self.broken.clone(),
            };
            let task = tasks.spawn(task.run(received));
            let waiting = VecDeque::new();
            Partition { assignment: *assignments, records, waiting, paused: false, task }
        })
    }

    /// Stops the tasks of partitions that others own from now on. What a task has half done is done
    /// again by the new owner; commands are carried out once by their id.
    fn give_up(&self, partitions: &[TopicPartition]) {
        let mut state = self.state.lock();
        for partition in partitions {
            if let Some(partition) = state.owned.remove(partition) {
                partition.task.abort();
            }
        }
    }
}

impl Partition {
    fn feed(&mut self) {
        while let Some(record) = self.waiting.pop_front() {
            if let Err(full) = self.records.try_send(record) {
                self.waiting.push_front(full.into_inner());
                return;
            }
        }
    }
}

impl ConsumerRebalanceListener for Partitions {
    async fn on_partitions_assigned(&self, partitions: &[TopicPartition]) {
        tracing::info!(?partitions, "partitions were assigned");
    }

    async fn on_partitions_revoked(&self, partitions: &[TopicPartition]) {
        tracing::info!(?partitions, "partitions were revoked");
        self.give_up(partitions);
    }

    async fn on_partitions_lost(&self, partitions: &[TopicPartition]) {
        tracing::warn!(?partitions, "partitions were lost");
        self.give_up(partitions);
    }
}

/// Handles the records of one partition, one after the other.
struct Task {
    work: Work,
    partition: TopicPartition,
    assignment: u64,
    broken: watch::Sender<Option<String>>,
}

impl Task {
    async fn run(self, mut records: mpsc::Receiver<ConsumerRecord>) {
        while let Some(record) = records.recv().await {
            match self.settle(&record).await {
                Ok(true) => {}
                // Nothing after it may be committed.
                Ok(false) => return,
                Err(error) => {
                    self.broken.send_replace(Some(error.to_string()));
                    return;
                }
            }
            let (partition, offset) = (self.partition.clone(), record.offset);
            let settled = SettledRecord { partition, offset, assignment: self.assignment };
            if self.work.settled.send(settled).await.is_err() {
                return;
            }
        }
    }

    /// Whether the record is done with.
    async fn settle(&self, record: &ConsumerRecord) -> kernel::Result<bool> {
        let Work { handler, replies, publisher, bytes_max, .. } = &self.work;
        let bytes = record.value.as_ref().map_or(0, |value| value.len());
        if bytes > *bytes_max {
            let reason = format!("{bytes} bytes are more than the {bytes_max} that are allowed");
            let why = DeadLetter { reason, field: None };
            handler.buried();
            publisher.dead_letter(record, &why, false).await?;
            return Ok(true);
        }
        match inward::handle(&**handler, self.incoming(record), replies).await {
            Settled::Done => Ok(true),
            Settled::Dead(why) => publisher.dead_letter(record, &why, true).await.map(|()| true),
            Settled::Abandoned => Ok(false),
        }
    }

    fn incoming(&self, record: &ConsumerRecord) -> Incoming {
        let header = |name| record.header_str(name).map(str::to_owned);
        let address = header("reply-to").filter(|topic| self.work.reply_topics.contains(topic));
        Incoming {
            body: record.value.clone().unwrap_or_default(),
            // A record has no author that the broker knows; who may write to the topic is.
            author: Some(record.topic.to_string()),
            traceparent: header("traceparent"),
            reply_to: address
                .map(|address| ReplyTo { address, correlation_id: header("correlation-id") }),
            bare: self.work.commands.get(&*record.topic).map(|command| bare(command, record)),
        }
    }
}

/// The id has the time as well: the offsets of a topic that is deleted and created begin again.
fn bare(command: &str, record: &ConsumerRecord) -> Bare {
    let ConsumerRecord { topic, partition, offset, timestamp, .. } = record;
    Bare {
        command: command.to_owned(),
        id: format!("{topic}.{partition}.{offset}.{timestamp}"),
        issued_at: Timestamp(*timestamp),
    }
}

/// Whether a commit was refused because the group is being rebalanced.
pub(super) fn is_rebalance(error: &KrafkaError) -> bool {
    let codes = [
        ErrorCode::RebalanceInProgress,
        ErrorCode::IllegalGeneration,
        ErrorCode::UnknownMemberId,
        ErrorCode::FencedInstanceId,
    ];
    codes.iter().any(|code| has_code(error, *code))
}
