//! The advisor as a domain of the server.

use std::sync::Arc;

use async_trait::async_trait;
use kernel::driver::Workers;
use kernel::http::Routes;
use kernel::kind::{KindInfo, Presenter};
use kernel::{App, Domain, Result, Running};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::api::topics::JobRenderer;
use crate::api::{AdvisorApi, ApiState};
use crate::commands::{
    CancelBulkJob, CreateBulkJob, CreateExperiment, Declare, DeleteBulkJob, DeleteDatasource,
    DeleteExperiment, DeleteMetadata, ImportMetadata, PutDatasource, RecommendExperiment,
    UploadResults,
};
use crate::config::Config;
use crate::metrics::{ActiveJobs, Calls, Scrape};
use crate::model::declared::Sort;
use crate::model::experiment::EXPERIMENT;
use crate::model::experiment_name::NameTemplate;
use crate::model::job::{JOB, SHARD};
use crate::model::metadata::DATASOURCE_METADATA;
use crate::model::user_source::DATASOURCE;
use crate::ports::kubernetes::Cluster;
use crate::ports::prometheus::sources::Sources;
use crate::ports::webhook::Webhooks;
use crate::work::{Advisor, ExperimentWorker, JobWorker, ShardWorker};

pub struct AdvisorDomain {
    pub config: Config,
}

#[async_trait]
impl Domain for AdvisorDomain {
    fn name(&self) -> &'static str {
        "advisor"
    }

    fn kinds(&self) -> Vec<KindInfo> {
        vec![
            KindInfo::new(JOB, "bulk-jobs", Presenter::Whole),
            KindInfo::new(SHARD, "bulk-shards", Presenter::Hidden),
            KindInfo::new(EXPERIMENT, "experiments", Presenter::Whole),
            KindInfo::new(DATASOURCE, "datasources", Presenter::Whole),
            KindInfo::new(DATASOURCE_METADATA, "datasource-metadata", Presenter::Whole),
        ]
        .into_iter()
        .chain(Sort::ALL.map(|sort| KindInfo::new(sort.label(), sort.plural(), Presenter::Whole)))
        .collect()
    }

    async fn start(
        &self,
        app: &App,
        tasks: &TaskTracker,
        stop: &CancellationToken,
    ) -> Result<Running> {
        self.config.check()?;
        let Config { datasources, private_addresses, .. } = &self.config;
        let names = NameTemplate::parse(&self.config.experiment_name);
        let missing = names.missing();
        if !missing.is_empty() {
            let missing = missing.join(", ");
            tracing::warn!(
                missing,
                "advisor.experiment_name lacks placeholders: containers of one name share an \
                 experiment"
            );
        }
        let sources = Arc::new(Sources::new(app, datasources, *private_addresses)?);
        let calls = Arc::new(Calls::default());
        let webhooks = Arc::new(Webhooks::new(&app.outbound, *private_addresses));
        let advisor = Arc::new(Advisor {
            app: app.clone(),
            config: self.config.clone(),
            names,
            sources: sources.clone(),
            webhooks: webhooks.clone(),
            calls: calls.clone(),
        });
        app.renderers().add(Arc::new(JobRenderer::new(app, &self.config.topics)))?;
        let commands = app.commands();
        commands.add(Arc::new(PutDatasource { sources: sources.clone() }))?;
        commands.add(Arc::new(DeleteDatasource { sources: sources.clone() }))?;
        commands.add(Arc::new(ImportMetadata { sources: sources.clone() }))?;
        commands.add(Arc::new(DeleteMetadata))?;
        Declare::all().try_for_each(|command| commands.add(Arc::new(command)))?;
        commands.add(Arc::new(CreateBulkJob { sources: sources.clone(), webhooks }))?;
        commands.add(Arc::new(CancelBulkJob))?;
        commands.add(Arc::new(DeleteBulkJob))?;
        commands.add(Arc::new(CreateExperiment { sources }))?;
        commands.add(Arc::new(DeleteExperiment))?;
        commands.add(Arc::new(RecommendExperiment))?;
        commands.add(Arc::new(UploadResults { config: self.config.clone() }))?;
        let active = Arc::new(ActiveJobs::default());
        let jobs = active.load(app.tail()).await?;
        let stop = stop.clone();
        tasks.spawn(async move { jobs.run(stop).await });
        let scrape = Scrape { calls: calls.clone(), active };
        app.metrics.register(|registry| registry.register_collector(Box::new(scrape)));
        let api = AdvisorApi(Arc::new(ApiState {
            config: self.config.clone(),
            sources: advisor.sources.clone(),
            names: advisor.names.clone(),
            cluster: Cluster::connect(self.config.kubeconfig.as_deref(), &app.outbound).await?,
            anonymous: self.config.open_as.as_ref().map(|open_as| Arc::new(open_as.principal())),
            calls,
        }));
        let workers: Workers = vec![
            Arc::new(JobWorker(advisor.clone())),
            Arc::new(ShardWorker(advisor.clone())),
            Arc::new(ExperimentWorker::new(advisor)),
        ];
        Ok(Running { routes: Routes::new().mount(api), workers })
    }
}
