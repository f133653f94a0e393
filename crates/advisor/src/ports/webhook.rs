//! The webhooks of jobs: signed, and only to addresses that users may reach through us.

use std::time::Duration;

use axum::body::Bytes;
use kernel::outbound::webhook::{self, Answer, Message};
use kernel::outbound::{Outbound, Target};
use kernel::telemetry::Secret;
use kernel::{Ambient, App, Error, Result};
use tokio::sync::{Semaphore, SemaphorePermit};
use url::Url;

use crate::model::notification::Outcome;

/// From the first byte sent to the last received. A body may have some megabytes.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Of this process at the same time. Receivers that hang hold up neither jobs nor the memory.
const POSTING_MAX: usize = 8;

/// The receivers of all jobs.
pub struct Webhooks {
    outbound: Outbound,
    target: Target,
    private_addresses: bool,
    posting: Semaphore,
}

impl Webhooks {
    pub fn new(outbound: &Outbound, private_addresses: bool) -> Webhooks {
        let target = webhook::target(outbound, "webhooks of jobs", TIMEOUT);
        Webhooks {
            outbound: outbound.clone(),
            target: if private_addresses { target } else { target.guard_ssrf() },
            private_addresses,
            posting: Semaphore::new(POSTING_MAX),
        }
    }

    /// Checks a URL that a user gives.
    pub async fn check(&self, url: &str) -> Result<Url> {
        const FIELD: &str = "webhook.url";
        if !self.private_addresses {
            return self.outbound.user_url(FIELD, url).await;
        }
        let parsed = Url::parse(url).ok();
        let parsed =
            parsed.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        let parsed = parsed.filter(|url| url.username().is_empty() && url.password().is_none());
        let wrong = "must be http(s)://HOST[:PORT][/PATH], without a user or a password";
        parsed.ok_or_else(|| Error::invalid(FIELD, wrong))
    }

    /// A place among those that post; none if there are too many.
    pub fn place(&self) -> Option<SemaphorePermit<'_>> {
        self.posting.try_acquire().ok()
    }

    /// Posts the body once. `id` is the same for each try.
    pub async fn post(
        &self,
        url: &str,
        secret: &Secret,
        id: &str,
        ambient: &Ambient,
        body: Bytes,
    ) -> Outcome {
        let Ok(url) = Url::parse(url) else {
            return Outcome::Refused("webhook.url is not a URL".into());
        };
        let (at, content_type) = (ambient.now(), "application/json");
        let message = Message { url: &url, secret, id, at, content_type, body };
        let posted = async {
            webhook::deliver(&self.target, webhook::request(&self.target, message)?).await
        };
        match posted.await {
            Ok(Answer::Taken) => Outcome::Delivered,
            Ok(Answer::Gone) => Outcome::Refused("it answered 410 Gone".into()),
            Ok(Answer::TooLarge) => Outcome::Refused(
                "it answered 413: the body is too large (advisor.webhook_experiments_max)".into(),
            ),
            Err(error) => Outcome::Failed { wait: error.retry_after(), why: error.with_causes() },
        }
    }
}

/// What the jobs of an organisation are signed with. Derived, so it is stored nowhere.
pub fn secret(app: &App, org: &str) -> Secret {
    webhook::secret_text(&app.blobs.derive(&format!("webhooks of jobs of {org}")))
}
