//! Each experiment is published once, and the summary of a job after everything else of it.

use std::collections::BTreeSet;

use advisor::config::{Config, MessageKey};
use kernel::Class;
use serde_json::json;
use testkit::stores::Fresh;

use super::{events, published, render};
use crate::support::server::{Server, config, until};
use crate::support::small::Small;
use crate::support::stand_in::{Reply, StandIn};

testkit::on_every_store!(
    each_experiment_is_published_once_and_the_summary_last,
    experiments_that_fail_are_published_on_the_error_topic,
    a_second_job_publishes_everything_again_and_jobs_do_not_mix,
    names_keys_and_parts_are_settings,
    results_that_are_gone_are_an_error_and_those_of_a_deleted_job_are_not_wanted,
    nothing_of_what_is_not_a_job_is_published,
);

async fn cluster(small: &Small) -> StandIn {
    let small = small.clone();
    StandIn::new(move |seen| small.reply(seen)).await
}

async fn each_experiment_is_published_once_and_the_summary_last(fresh: &Fresh) {
    let small = Small::of(600);
    let source = cluster(&small).await;
    let server = Server::start(fresh, &config(&[("p", &source.url)])).await;
    let id = server.create(json!({ "datasource": "p" })).await.unwrap();
    server.completed(&id).await;
    let messages = published(&server).await;
    let (summary, rest) = messages.split_last().unwrap();
    assert_eq!((summary.topic.as_str(), summary.after_all), ("summary-topic", true));
    assert_eq!((summary.key.as_str(), &summary.body["experiments"]), (id.as_str(), &json!(null)));
    let shown = &summary.body["summary"];
    assert_eq!((&shown["status"], &shown["job_id"]), (&json!("COMPLETED"), &json!(id)));
    assert_eq!(
        (&shown["total_experiments"], &shown["processed_experiments"]),
        (&json!(600), &json!(600))
    );
    assert_eq!(
        (&shown["input"]["datasource"], &shown["notifications"]),
        (&json!("p"), &json!(null))
    );
    assert!(shown["job_start_time"].is_string() && shown["job_end_time"].is_string(), "{shown}");
    let expected: BTreeSet<String> =
        small.containers.iter().map(|name| small.experiment(name)).collect();
    let mut names = BTreeSet::new();
    for message in rest {
        assert_eq!((message.topic.as_str(), message.after_all), ("recommendations-topic", false));
        let [name] = message.experiments()[..] else { panic!("{message:?}") };
        assert_eq!(message.key, name);
        assert!(names.insert(name.to_owned()), "{name} twice");
        assert_eq!(message.body["summary"], json!({ "status": "IN_PROGRESS", "job_id": id }));
        let experiment = message.body["experiments"][name].as_object().unwrap();
        let members: Vec<&String> = experiment.keys().collect();
        assert_eq!(members, ["name", "status", "apis", "status_history"]);
        assert_eq!(experiment["status"], "PROCESSED");
        let apis = experiment["apis"].as_object().unwrap();
        assert_eq!(apis.keys().collect::<Vec<_>>(), ["recommendations"]);
        assert_eq!(apis["recommendations"]["response"][0]["experiment_name"], *name);
    }
    assert_eq!(names, expected);
    // From the start again, as after a restart in the middle: the same messages.
    let again = published(&Server::on(server.app.store.clone(), &config(&[])).await).await;
    let bodies =
        |all: &[super::Published]| all.iter().map(|one| one.body.clone()).collect::<Vec<_>>();
    assert_eq!(bodies(&again), bodies(&messages));
}

async fn experiments_that_fail_are_published_on_the_error_topic(fresh: &Fresh) {
    let small = Small::of(5);
    let (all, answering) = (small.clone(), small.clone());
    let source = StandIn::new(move |seen| {
        if seen.is_range() && all.asked(seen.query()).iter().any(|name| *name == "c3") {
            return Reply::error(422, "execution", "query would load too many samples");
        }
        answering.reply(seen)
    })
    .await;
    let server = Server::start(fresh, &config(&[("p", &source.url)])).await;
    let id = server.create(json!({ "datasource": "p" })).await.unwrap();
    server.completed(&id).await;
    let messages = published(&server).await;
    let topics: Vec<&str> = messages.iter().map(|message| message.topic.as_str()).collect();
    assert_eq!(topics.iter().filter(|topic| **topic == "recommendations-topic").count(), 4);
    assert_eq!(topics.last(), Some(&"summary-topic"));
    let [error] = &messages.iter().filter(|one| one.topic == "error-topic").collect::<Vec<_>>()[..]
    else {
        panic!("{topics:?}")
    };
    let name = small.experiment("c3");
    assert_eq!(error.experiments(), [name.as_str()]);
    let experiment = &error.body["experiments"][&name];
    assert_eq!(experiment["status"], "FAILED");
    let notice = &experiment["notifications"]["503"];
    assert_eq!((&notice["type"], &notice["code"]), (&json!("ERROR"), &json!(503)));
    assert!(notice["message"].as_str().unwrap().contains("too many samples"), "{notice}");
    assert_eq!(experiment["apis"]["create"]["request"]["experimentName"], *name);
    assert_eq!(experiment["apis"]["recommendations"], json!({}));
    assert_eq!(messages.last().unwrap().body["summary"]["notifications"]["503"]["code"], 503);
}

async fn a_second_job_publishes_everything_again_and_jobs_do_not_mix(fresh: &Fresh) {
    let small = Small::of(40);
    let source = cluster(&small).await;
    let server = Server::start(fresh, &config(&[("p", &source.url)])).await;
    let mut jobs = Vec::new();
    for number in 0..4 {
        // The containers of two jobs are the same.
        let names: Vec<String> = (0..20).map(|i| format!("c{}", (number % 2) * 20 + i)).collect();
        let body = json!({ "datasource": "p", "filter": { "include": { "containers": names } } });
        jobs.push((server.create(body).await.unwrap(), names));
    }
    for (id, _) in &jobs {
        server.completed(id).await;
    }
    let messages = published(&server).await;
    for (id, names) in jobs {
        let mine: Vec<_> =
            messages.iter().filter(|one| one.body["summary"]["job_id"] == *id).collect();
        assert_eq!(mine.len(), 21);
        assert!(mine[20].after_all && mine[20].topic == "summary-topic");
        let mut published: Vec<&str> = mine.iter().flat_map(|one| one.experiments()).collect();
        published.sort_unstable();
        let mut expected: Vec<String> = names.iter().map(|name| small.experiment(name)).collect();
        expected.sort();
        assert_eq!(published, expected);
    }
}

async fn names_keys_and_parts_are_settings(fresh: &Fresh) {
    let small = Small::of(2);
    let source = cluster(&small).await;
    let mut settings = config(&[("p", &source.url)]);
    settings.topics.recommendations = "sizes".into();
    settings.topics.recommendations_include = "summary,experiments|status".into();
    settings.topics.summary_include = "summary|status|nonsense".into();
    settings.topics.key = MessageKey::Job;
    let server = Server::start(fresh, &settings).await;
    let id = server.create(json!({ "datasource": "p" })).await.unwrap();
    server.completed(&id).await;
    let messages = published(&server).await;
    assert!(messages.iter().all(|message| message.key == id), "{messages:?}");
    assert_eq!(messages[0].topic, "sizes");
    let name = messages[0].experiments()[0];
    assert_eq!(messages[0].body["experiments"][name], json!({ "status": "PROCESSED" }));
    let summary = &messages[0].body["summary"];
    assert_eq!(
        (&summary["total_experiments"], &summary["processed_experiments"]),
        (&json!(2), &json!(0))
    );
    assert_eq!(messages[2].body, json!({ "summary": { "status": "COMPLETED" } }));

    let published_with = async |change: fn(&mut Config)| {
        let mut settings = config(&[]);
        change(&mut settings);
        published(&Server::on(server.app.store.clone(), &settings).await).await
    };
    let only = published_with(|it| it.topics.only = vec!["summary-topic".into()]).await;
    assert_eq!(only.len(), 1);
    assert!(only[0].after_all);
    let no_key = published_with(|it| it.topics.key = MessageKey::None).await;
    assert!(no_key.len() == 3 && no_key.iter().all(|message| message.key.is_empty()));
    let no_experiments =
        published_with(|it| it.topics.recommendations_include = "summary|job_id".into()).await;
    assert_eq!(no_experiments[0].body, json!({ "summary": { "job_id": id } }));
    let no_summary =
        published_with(|it| it.topics.recommendations_include = "experiments|status".into()).await;
    assert_eq!(no_summary[0].body.as_object().unwrap().keys().collect::<Vec<_>>(), ["experiments"]);
}

async fn results_that_are_gone_are_an_error_and_those_of_a_deleted_job_are_not_wanted(
    fresh: &Fresh,
) {
    let source = cluster(&Small::of(2)).await;
    let mut settings = config(&[("p", &source.url)]);
    let server = Server::start(fresh, &settings).await;
    let deleted = server.create(json!({ "datasource": "p" })).await.unwrap();
    server.completed(&deleted).await;
    server.delete(&deleted).await;
    until("it is gone", async || server.objects("bulk-job").await.is_empty()).await;
    drop(server);
    // Ended jobs are not kept.
    settings.jobs_days = 0;
    let server = Server::start(fresh, &settings).await;
    let purged = server.create(json!({ "datasource": "p" })).await.unwrap();
    until("it is gone", async || server.objects("bulk-job").await.is_empty()).await;
    let (mut seen, mut errors) = (Vec::new(), Vec::new());
    for event in events(&server).await {
        match render(&server, &event).await {
            Ok(messages) => seen.extend(messages),
            Err(error) => errors.push(error),
        }
    }
    assert_eq!(errors.len(), 2, "{errors:?}");
    for error in errors {
        assert_ne!(error.class(), Class::Transient, "it would be tried for ever");
        let why =
            format!("the results of bulk job {purged} were removed before they were published");
        assert!(error.to_string().starts_with(&why), "{error}");
    }
    let topics: Vec<&str> = seen.iter().map(|message| message.topic.as_str()).collect();
    assert_eq!(topics, ["summary-topic", "summary-topic"]);
}

async fn nothing_of_what_is_not_a_job_is_published(fresh: &Fresh) {
    let small = Small::of(1);
    let source = cluster(&small).await;
    let server = Server::start(fresh, &config(&[("p", &source.url)])).await;
    let id = server.create(json!({ "datasource": "p" })).await.unwrap();
    server.completed(&id).await;
    let before = published(&server).await.len();
    // Asked for alone, whatever job the caller names.
    let name = small.experiment("c0").replace('|', "%7C");
    for job in ["", &id, "unknown"] {
        let path = format!("/generateRecommendations?experiment_name={name}&job_id={job}");
        let answer = server.call("POST", &path, "").await;
        assert_eq!(answer.status, 201, "{}", answer.text);
    }
    let messages = published(&server).await;
    assert_eq!(messages.len(), before);
    assert_eq!(messages.last().unwrap().topic, "summary-topic");
    for event in events(&server).await {
        if event.subject.kind() == "bulk-shard" {
            assert!(render(&server, &event).await.unwrap().is_empty());
        }
    }
}
