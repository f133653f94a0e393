//! Sends to the webhook of a job that it has ended. At least once: a crash between the answer of the
//! receiver and our note of it repeats the call, under the same id.

use std::time::Duration;

use axum::body::Bytes;
use kernel::driver::{Attempt, Requeue};
use kernel::{Change, Result};

use super::cancellable;
use super::job::{Job, JobWorker, draft};
use crate::decide::notification::after;
use crate::model::job::{JobStatus, shard_key};
use crate::model::notification::{Notification, Outcome};
use crate::model::wire::webhook::Body;
use crate::ports::webhook::secret;
use crate::store;

/// When there are too many at the same time.
const BUSY_PAUSE: Duration = Duration::from_secs(2);

impl JobWorker {
    /// One try.
    pub(super) async fn notify(
        &self,
        attempt: &Attempt,
        job: &Job,
        before: &Notification,
    ) -> Result<(Change, Requeue)> {
        let Some(_place) = self.0.webhooks.place() else {
            return Ok((Change::default(), Requeue::After(BUSY_PAUSE)));
        };
        let outcome = cancellable(attempt, self.post(attempt, job)).await?;
        if let Outcome::Refused(why) | Outcome::Failed { why, .. } = &outcome {
            tracing::info!(job = job.id, why, "the webhook of a job was not delivered");
        }
        let (now, fraction) = (attempt.now(), attempt.ambient().fraction());
        let ended = job.status.ended_at.unwrap_or(job.updated_at);
        let notification = after(before, outcome, ended, now, fraction);
        let status = JobStatus { webhook: Some(notification), ..job.status.clone() };
        let write = draft(&attempt.object, job.phase, &status).report("notified", now);
        // What comes next is decided from what was written.
        Ok((Change { hop: true, ..Change::from(write) }, Requeue::After(Duration::ZERO)))
    }

    async fn post(&self, attempt: &Attempt, job: &Job) -> Result<Outcome> {
        let body = self.body(job).await?;
        let url = job.spec.request.webhook_url().unwrap_or_default();
        let secret = secret(&self.0.app, &job.org);
        Ok(self.0.webhooks.post(url, &secret, &job.id, attempt.ambient(), body).await)
    }

    /// The whole job, or all but its experiments if it has very many.
    async fn body(&self, job: &Job) -> Result<Bytes> {
        let (app, max) = (&self.0.app, self.0.config.webhook_experiments_max);
        if job.status.total > max {
            return Ok(Body::new(job).without_experiments(max).into());
        }
        let metadata = store::metadata(app, &job.id).await?;
        let mut body = Body::new(job).experiments();
        for number in 0..job.status.shards as usize {
            let results = store::results(app, &shard_key(&job.id, number)).await?;
            let Some(results) = results else { continue };
            for number in 0..results.len() {
                if let Some(line) = results.line(number)? {
                    body.add(&line);
                }
            }
        }
        Ok(body.finish(metadata.as_ref()).into())
    }
}
