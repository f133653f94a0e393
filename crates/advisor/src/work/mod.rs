//! What the advisor does: reads data sources and recommends.

mod accelerators;
mod bulk_shard;
pub(crate) mod discovery;
mod experiment;
mod job;
mod lines;
mod measure;
mod notify;
mod profiles;
mod reader;
mod recommended;
mod shard;
pub mod survey;

pub use bulk_shard::ShardWorker;
pub use experiment::ExperimentWorker;
pub use job::JobWorker;

use std::sync::Arc;

use kernel::driver::Attempt;
use kernel::{App, Error, Result};

use crate::config::Config;
use crate::decide::maths::recommend::Options;
use crate::model::experiment_name::NameTemplate;
use crate::ports::prometheus::sources::Sources;
use crate::ports::webhook::Webhooks;

/// What the workers share.
pub struct Advisor {
    pub app: App,
    pub config: Config,
    pub names: NameTemplate,
    pub sources: Arc<Sources>,
    pub webhooks: Arc<Webhooks>,
}

impl Advisor {
    /// How recommendations are computed.
    fn options(&self) -> Options {
        Options { plots: self.config.plots, ..Options::default() }
    }

    /// The places for shards that read a data source at the same time. Those of the configuration are
    /// read by all organisations.
    fn reads_counter(&self, org: &str, datasource: &str) -> String {
        let org = if self.config.datasources.contains_key(datasource) { "" } else { org };
        format!("advisor/reads/{org}/{datasource}")
    }
}

/// Ends work whose result is no longer wanted.
async fn cancellable<T>(
    attempt: &Attempt,
    work: impl Future<Output = Result<T>> + Send,
) -> Result<T> {
    let done = attempt.cancelled().run_until_cancelled(work).await;
    done.unwrap_or_else(|| Err(Error::Transient("the attempt was cancelled".into())))
}
