//! Reads one shard and recommends for its containers. A shard that is too large for the data source
//! is split until what is left can be read, or is one container, which then fails alone.

use std::collections::HashMap;
use std::sync::Arc;

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use kernel::{Error, files};

use super::accelerators::Detected;
use super::reader::Reader;
use crate::decide::maths::buckets::Scope;
use crate::decide::maths::columns::{Columns, Series};
use crate::decide::maths::recommend::{Options, Recommender, Workload};
use crate::decide::split::smaller;
use crate::model::inventory::{Attribution, Member};
use crate::model::measure::{Aggregate, Metric};
use crate::model::plan::Shard;
use crate::model::recommendation::{Formats, Recommendation};
use crate::ports::prometheus::attribution::Places;
use crate::ports::prometheus::pace::Class;
use crate::ports::prometheus::profile::ProfileError;
use crate::ports::prometheus::queries::{Queries, Query, Range};
use crate::ports::prometheus::scan::{Answer, Limits};
use crate::ports::prometheus::{Problem, QueryError, When};

/// Series that an answer may have besides one for each container of the shard: where a shard asks for
/// whole namespaces, there are those of containers that are gone. With 250 containers, an answer is
/// at most 12 MB of columns, and 17 answers are 200 MB.
const OTHER_SERIES_MAX: usize = 250;
/// The same of the five answers about GPUs and language runtimes, of which a container may have many:
/// 145 MB more.
const DETECTED_SERIES_MAX: usize = 1_000;

/// What all shards of a job have in common.
pub struct Job<'a> {
    pub reader: &'a Reader<'a>,
    pub queries: Queries<'a>,
    pub range: Range,
    pub members: Arc<[Member]>,
    pub options: Options,
    /// The thresholds of members that have their own, in percent.
    pub thresholds: Arc<HashMap<usize, f64>>,
    /// Called after each query.
    pub answered: &'a (dyn Fn() + Send + Sync),
}

/// What came out for a container, by its index among the members of the job.
pub type Outcome = (usize, Result<Recommendation, String>);

/// Why a job cannot go on.
#[derive(Debug)]
pub enum Stop {
    /// The data source does not answer, or not to us.
    Source(QueryError),
    Other(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Stop::Other(error)
    }
}

/// Why a shard was not read.
enum Unread {
    Stop(Stop),
    Query(QueryError),
}

/// All answers about a shard.
#[derive(Default)]
struct Measured {
    columns: Vec<(Metric, Aggregate, Answer)>,
    detected: Detected,
}

impl Measured {
    fn add(&mut self, answers: Vec<(Metric, Aggregate, Answer)>) {
        for (metric, aggregate, answer) in answers {
            if let Some(answer) = self.detected.take(metric, answer) {
                self.columns.push((metric, aggregate, answer));
            }
        }
    }
}

impl Job<'_> {
    /// Reads a shard, and reports its containers as soon as they are done.
    pub async fn read(&self, shard: Shard, done: impl Fn(Vec<Outcome>)) -> Result<(), Stop> {
        let mut open = vec![shard];
        while let Some(shard) = open.pop() {
            let error = match self.measure(&shard).await {
                Ok(measured) => {
                    done(self.recommend(shard, measured).await);
                    continue;
                }
                Err(Unread::Stop(stop)) => return Err(stop),
                Err(Unread::Query(error)) => error,
            };
            if error.problem == Problem::TimedOut {
                // It answers nothing at all, or it takes too long for this shard.
                self.reader.handshake().await.map_err(Stop::Source)?;
            }
            let of_size = error.problem.is_of_size();
            let parts = if of_size { smaller(&shard, &self.members) } else { Vec::new() };
            let containers = shard.members.len();
            let problem = error.problem.label();
            if parts.is_empty() {
                tracing::warn!(containers, problem, %error, "reading a shard failed");
                let failed = |index: usize| (index, Err(error.why.clone()));
                done(shard.members.into_iter().map(failed).collect());
            } else {
                tracing::debug!(containers, problem, %error, "split a shard");
                open.extend(parts.into_iter().rev());
            }
        }
        Ok(())
    }

    /// Reads what all containers have, and whether any has a GPU or a language runtime. Only then the
    /// rest of that is read.
    async fn measure(&self, shard: &Shard) -> Result<Measured, Unread> {
        let selection = shard.selection(&self.members);
        let mut queries = self.queries.of_selection(&selection).map_err(bad_profile)?;
        if shard.attribution != Attribution::Namespace {
            queries.extend(self.queries.detection(&selection).map_err(bad_profile)?);
        }
        let mut measured = Measured::default();
        let count = queries.len();
        measured.add(self.read_all(shard, 0, queries).await?);
        let places = Places::of(shard.members(&self.members), shard.attribution);
        let gpus = measured.detected.considered(&places);
        if !gpus.is_empty() {
            let cores = self.queries.accelerator_cores(&selection).map_err(bad_profile)?;
            let memory = self.queries.frame_buffers(&gpus).map_err(bad_profile)?;
            measured.add(self.read_all(shard, count, vec![cores, memory]).await?);
        }
        Ok(measured)
    }

    async fn read_all(
        &self,
        shard: &Shard,
        first: usize,
        queries: Vec<Query>,
    ) -> Result<Vec<(Metric, Aggregate, Answer)>, Unread> {
        let pods = shard.members(&self.members).map(|member| u64::from(member.pods)).sum();
        let read = |(index, query): (usize, Query)| async move {
            let Query { metric, aggregate, text } = query;
            let class = Class::new(first + index, pods);
            let others = if Detected::has(metric) { DETECTED_SERIES_MAX } else { OTHER_SERIES_MAX };
            let limits = Limits::of(shard.members.len() + others, self.range.points());
            let answer = self.reader.read(&text, When::Over(self.range), limits, class).await;
            (self.answered)();
            Ok((metric, aggregate, answer?))
        };
        let at_once = queries.len().max(1);
        // The pace decides how many of them are sent.
        let all = stream::iter(queries.into_iter().enumerate()).map(read).buffer_unordered(at_once);
        all.try_collect().await.map_err(|error: QueryError| match error.problem {
            Problem::Unreachable | Problem::Denied | Problem::Throttled => {
                Unread::Stop(Stop::Source(error))
            }
            _ => Unread::Query(error),
        })
    }

    /// Some hundred containers take tens of milliseconds, which no other task should wait for.
    async fn recommend(&self, shard: Shard, measured: Measured) -> Vec<Outcome> {
        let (members, options) = (self.members.clone(), self.options);
        let thresholds = self.thresholds.clone();
        files::blocking(move || recommend(&shard, &members, &measured, options, &thresholds)).await
    }
}

fn bad_profile(error: ProfileError) -> Unread {
    Unread::Stop(Stop::Other(Error::invalid("profile", error.to_string())))
}

fn recommend(
    shard: &Shard,
    members: &[Member],
    measured: &Measured,
    options: Options,
    thresholds: &HashMap<usize, f64>,
) -> Vec<Outcome> {
    let count = shard.members.len();
    let places = Places::of(shard.members(members), shard.attribution);
    let mut columns = vec![Columns::default(); count];
    for (metric, aggregate, answer) in &measured.columns {
        for (labels, times, values) in answer.series() {
            if let Some(place) = places.find(labels)
                && let Ok(series) = Series::new(times, values)
            {
                columns[place].set(*metric, *aggregate, series);
            }
        }
    }
    let gpus = measured.detected.gpus(&places, count);
    let runtimes = measured.detected.runtimes(&places, count);
    let mut recommender = Recommender::new(options);
    let scope = match shard.attribution {
        Attribution::Namespace => Scope::Namespace,
        Attribution::Name | Attribution::Owner => Scope::Container,
    };
    let mut outcome = |(place, (index, columns)): (usize, (&usize, Columns<'_>))| {
        let workload = Workload {
            scope,
            columns: if is_measured(&columns) { columns } else { Columns::default() },
            formats: Formats::PROMETHEUS,
            accelerator: gpus[place],
            covered_min: None,
            runtimes: &runtimes[place],
        };
        let percent = thresholds.get(index).copied();
        recommender.set_options(Options {
            cpu_threshold_percent: percent.unwrap_or(options.cpu_threshold_percent),
            memory_threshold_percent: percent.unwrap_or(options.memory_threshold_percent),
            ..options
        });
        (*index, Ok(recommender.recommend(&workload)))
    };
    shard.members.iter().zip(columns).enumerate().map(&mut outcome).collect()
}

/// Without any CPU usage the existing service reads nothing else of a container.
fn is_measured(columns: &Columns<'_>) -> bool {
    use Aggregate::{Avg, Max, Min, Sum};
    let usage = [Avg, Sum, Min, Max].map(|by| columns.get(Metric::CpuUsage, by));
    usage.iter().any(|series| series.samples().next().is_some())
}
