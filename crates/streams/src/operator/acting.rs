//! The cluster, for those who act on it: nothing is asked once this process may no longer act, and
//! everything that is asked is counted.

use std::sync::Arc;

use async_trait::async_trait;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use tokio::time::Instant;

use crate::cluster::{Answer, Call, Cluster, Refused, Told, Watched, What};
use crate::lease::Tenure;
use crate::metrics::{Asked, Metrics};

pub struct Acting {
    pub cluster: Arc<dyn Cluster>,
    pub tenure: Arc<Tenure>,
    pub metrics: Arc<Metrics>,
}

#[async_trait]
impl Cluster for Acting {
    fn watch(&self, what: Watched) -> BoxStream<'static, Told> {
        let resource = watched(&what);
        let metrics = self.metrics.clone();
        let told = self.cluster.watch(what).inspect(move |told| {
            let status = match told {
                Told::All(_) => "ok",
                Told::Trouble(refused) => status(refused),
                Told::Is(_) | Told::Gone(..) => return,
            };
            metrics.called(Asked { verb: "list", resource, status }, None);
        });
        told.boxed()
    }

    async fn call(&self, call: Call) -> Result<Answer, Refused> {
        let (verb, resource) = asked(&call);
        let begun = Instant::now();
        // Whoever may not act may want to.
        let lease = matches!(call, Call::ReadLease(_) | Call::WriteLease(..));
        let answer = match self.tenure.until() {
            _ if lease => self.cluster.call(call).await,
            Some(until) => match tokio::time::timeout_at(until, self.cluster.call(call)).await {
                Ok(answer) => answer,
                Err(_) => Err(Refused::Away("this process may no longer act".into())),
            },
            None => return Err(Refused::Away("this process may not act".into())),
        };
        let status = answer.as_ref().err().map_or("ok", status);
        self.metrics.called(Asked { verb, resource, status }, Some(begun.elapsed()));
        answer
    }
}

fn asked(call: &Call) -> (&'static str, &'static str) {
    let resource = |what: &What| match what {
        What::Class(_) => "classes",
        What::Stream(_) => "streams",
        What::Job => "jobs",
        What::Cron => "cronjobs",
        What::Request => "backfillrequests",
        What::Event => "events",
    };
    match call {
        Call::Create(what, _) => ("create", resource(what)),
        Call::Delete { what, .. } => ("delete", resource(what)),
        Call::Patch { what, .. } => ("patch", resource(what)),
        Call::Fate { .. } => ("list", "events"),
        Call::ReadLease(_) => ("get", "leases"),
        Call::WriteLease(..) => ("update", "leases"),
    }
}

pub fn watched(what: &Watched) -> &'static str {
    match what {
        Watched::Classes(_) => "classes",
        Watched::Streams(_) => "streams",
        Watched::Jobs => "jobs",
        Watched::Crons => "cronjobs",
        Watched::Requests => "backfillrequests",
        Watched::Templates(_) => "templates",
        Watched::Secrets => "secrets",
    }
}

fn status(refused: &Refused) -> &'static str {
    match refused {
        Refused::NotFound => "not_found",
        Refused::Exists => "exists",
        Refused::Conflict => "conflict",
        Refused::Forbidden(_) => "forbidden",
        Refused::Invalid(_) => "invalid",
        Refused::Busy(_) => "busy",
        Refused::Away(_) => "away",
    }
}
