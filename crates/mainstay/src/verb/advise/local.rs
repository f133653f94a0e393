//! What the containers of a cluster should request, read from its Prometheus by this process.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use advisor::decide::maths::recommend::Options;
use advisor::model::bulk::BulkRequest;
use advisor::model::datasource::{Authentication, Datasource};
use advisor::model::experiment_name::NameTemplate;
use advisor::ports::prometheus::Prometheus;
use advisor::work::survey::{Phase, Progress, Survey, SurveyRequest, survey};
use kernel::outbound::{Outbound, Tls};
use kernel::secret::SecretSource;
use kernel::{Ambient, Error as KernelError};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::Chosen;
use super::shown::{Format, Shown};
use crate::error::Result;
use crate::{output, progress};

/// What experiments call the data source, unless it has a name.
const DATASOURCE: &str = "prometheus-1";

#[derive(Debug, clap::Args)]
pub struct Local {
    /// The Prometheus, Thanos or Mimir to read, up to but without `/api/v1`
    #[arg(long, value_name = "URL", env = "MAINSTAY_PROMETHEUS", required = true)]
    prometheus: Option<String>,
    #[command(flatten)]
    chosen: Chosen,
    #[command(flatten)]
    shown: Shown,
    /// `json` and `yaml` have everything, `csv` one line for each container
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,
    /// A file with a bearer token for the Prometheus; it may change while it is read
    #[arg(long, value_name = "FILE", conflicts_with = "username")]
    token_file: Option<PathBuf>,
    /// A user of the Prometheus
    #[arg(long, requires = "password_file")]
    username: Option<String>,
    /// A file with that user's password
    #[arg(long, value_name = "FILE", requires = "username")]
    password_file: Option<PathBuf>,
    /// Trust the certificates of this authority [default: the system's]
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// Give up after so many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 3600,
        value_parser = clap::value_parser!(u64).range(1..))]
    timeout_s: u64,
    /// Wait for the answer: without a server that is always so
    #[arg(long, hide = true)]
    wait: bool,
}

impl Local {
    pub async fn run(self) -> Result<()> {
        let ambient = Ambient::system();
        let outbound = Outbound::new(Default::default(), ambient.clone(), Arc::new(|_| {}))?;
        let client = Prometheus::new("prometheus", &self.datasource(), &outbound)?;
        let request = self.request()?;
        let now = jiff::Timestamp::from_millisecond(ambient.now().0)
            .map_err(|error| KernelError::internal("the time of this machine", error))?;
        let line = progress::Progress::new();
        let shown = |progress: &Progress| show(&line, progress);
        let stop = CancellationToken::new();
        let surveying = async {
            let found = survey(&client, &request, now, shown).await;
            stop.cancel();
            found
        };
        // A token that expires during the survey may be replaced in its file.
        let (found, ()) = tokio::join!(surveying, outbound.keep_secrets(stop.clone()));
        let found = found?;
        drop(line);

        self.notices(&found);
        self.shown.show(self.output, &found.advice, &client.to_string(), now)
    }

    fn datasource(&self) -> Datasource {
        let url = self.prometheus.as_deref().unwrap_or_default();
        let file = |path: &PathBuf| SecretSource::File(path.clone());
        let authentication = match (&self.token_file, &self.username, &self.password_file) {
            (Some(token), ..) => Authentication::Bearer { token: file(token) },
            (None, Some(username), Some(password)) => {
                Authentication::Basic { username: username.clone(), password: file(password) }
            }
            _ => Authentication::None,
        };
        let tls = Tls { ca_file: self.ca_file.clone(), ..Tls::default() };
        Datasource { authentication, tls, ..Datasource::at(url) }
    }

    fn request(&self) -> Result<SurveyRequest> {
        let bulk = json!({ "filter": self.chosen.filter() }).to_string();
        let bulk = BulkRequest::parse(bulk.as_bytes())
            .map_err(|error| KernelError::invalid(error.field, error.problem))?;
        Ok(SurveyRequest {
            bulk,
            datasource: DATASOURCE.into(),
            names: NameTemplate::default(),
            options: Options::default(),
            deadline: Some(Duration::from_secs(self.timeout_s)),
        })
    }

    fn notices(&self, found: &Survey) {
        found.notices.iter().for_each(|notice| output::say(notice));
        let failed = found.advice.iter().filter(|advice| advice.outcome.is_err()).count();
        if failed > 0 {
            output::say(&format!(
                "{failed} of {} containers could not be read",
                found.advice.len()
            ));
        }
    }
}

fn show(line: &progress::Progress, progress: &Progress) {
    match progress.phase {
        Phase::Discovering => line.count("looking for containers", 0, 0),
        Phase::Reading => line.count("containers", progress.done, progress.total),
    }
}
