//! A decision that is applied and decided again comes to rest, in every state, and with a crash of
//! the operator between any two commands. Jobs that fail again and again are started once per
//! attempt.

use jiff::SignedDuration;
use serde_json::{Value, json};
use streams::decide::Action;
use streams::model::CrdVersion;
use streams::model::phase::Phase;

use crate::every::{Change, JOBS, PHASES, anothers};
use crate::world::{World, batch, capture, deleting, template};

const RECOVER: &str = "mainstay.io/recover";
const RECOVERED: &str = "mainstay.io/recovered";
const STATE: &str = "arcane/state";

/// The annotations that decisions depend on, for each version of the CRDs.
fn annotations(crd_version: CrdVersion) -> Vec<Value> {
    let recovered = |text: &str| json!({ RECOVER: "true", RECOVERED: text });
    let restart = json!({ "mainstay.io/restart": "2" });
    match crd_version {
        CrdVersion::V1 => vec![
            json!({}),
            restart,
            json!({ RECOVER: "true" }),
            recovered("1 2026-11-16T07:00:00Z"),
            recovered("1 2026-11-16T08:00:00Z"),
            recovered("8 2026-11-16T07:00:00Z"),
            recovered("not a count"),
            json!({ RECOVERED: "1 2026-11-16T07:00:00Z" }),
            json!({ "mainstay.io/pause": "true" }),
        ],
        CrdVersion::V1Beta1 => {
            let states = ["crash-loop", "suspended", "reload-requested", "restart-requested"];
            let states = states.map(|state| json!({ STATE: state }));
            [json!({}), restart].into_iter().chain(states).collect()
        }
    }
}

fn specs(crd_version: CrdVersion) -> Vec<Value> {
    let none = json!({ "execution": { "layoutVersion": "v2", "suspended": false } });
    let mut specs = vec![capture("v0", false), batch("v2", false), none];
    // v1beta1 is suspended by an annotation.
    if crd_version == CrdVersion::V1 {
        specs.push(capture("v2", true));
    }
    specs
}

fn label(phase: &str, crd_version: CrdVersion) -> &'static str {
    Phase::of(phase).label(crd_version)
}

#[derive(Clone)]
struct State {
    crd_version: CrdVersion,
    spec: Value,
    annotations: Value,
    phase: &'static str,
    job: (&'static str, Option<Change>),
    request: &'static str,
    cron_job: &'static str,
}

impl State {
    fn world(&self) -> World {
        let mut world = World::of(self.crd_version, &["secretRef"]);
        let phase = label(self.phase, self.crd_version);
        world.stream_with(phase, self.spec.clone(), self.annotations.clone());
        if let Some(change) = self.job.1 {
            world.job(crate::world::JOB, change);
        }
        match self.request {
            "none" => {}
            "initial" => drop(world.request("s1-initial-backfill-0ddb0", |_| {})),
            request => {
                world.request("b1", |r| r["spec"]["completed"] = json!(request == "completed"));
            }
        }
        match self.cron_job {
            "there" => drop(world.cron_job(|_| {})),
            "ending" => drop(world.cron_job(deleting)),
            _ => {}
        }
        world
    }

    /// Leaves out the combinations whose parts do not meet in any decision.
    fn matters(&self) -> bool {
        let annotated = self.annotations != json!({});
        let fails = self.phase == "Failed" || self.job.0.ends_with("failed");
        let of_line =
            self.crd_version == CrdVersion::V1Beta1 || !self.job.0.ends_with("-requested");
        of_line
            && (self.annotations.get(RECOVER).is_none() || fails)
            && (self.cron_job == "none" || !annotated)
            && (self.request != "initial" || matches!(self.phase, "" | "Backfilling" | "Failed"))
    }

    fn name(&self) -> String {
        let State { crd_version, spec, annotations, phase, job, request, cron_job } = self;
        format!(
            "{crd_version:?} {phase:?}, Job {}, request {request}, CronJob {cron_job}, {annotations}, {}",
            job.0,
            spec.to_string().chars().take(110).collect::<String>()
        )
    }
}

/// Every combination that can matter.
fn states(crd_version: CrdVersion, mut check: impl FnMut(&State)) -> usize {
    let jobs = JOBS.into_iter().chain([
        ("another's", Some(anothers as Change)),
        ("reload-requested", Some(reload_requested)),
        ("restart-requested", Some(restart_requested)),
    ]);
    let mut count = 0;
    for spec in specs(crd_version) {
        for annotations in annotations(crd_version) {
            for (phase, job) in
                PHASES.iter().flat_map(|phase| jobs.clone().map(|job| (*phase, job)))
            {
                for request in ["none", "open", "completed", "initial"] {
                    for cron_job in ["none", "there", "ending"] {
                        let (spec, annotations) = (spec.clone(), annotations.clone());
                        let state =
                            State { crd_version, spec, annotations, phase, job, request, cron_job };
                        if state.matters() {
                            check(&state);
                            count += 1;
                        }
                    }
                }
            }
        }
    }
    count
}

fn reload_requested(job: &mut Value) {
    job["metadata"]["annotations"][STATE] = json!("reload-requested");
}

fn restart_requested(job: &mut Value) {
    job["metadata"]["annotations"][STATE] = json!("restart-requested");
}

fn converges(state: &State, crash_after: Option<usize>) -> usize {
    match state.world().converge(crash_after) {
        Ok(story) => {
            assert!(story.created <= 1, "{} ({crash_after:?}): {story:#?}", state.name());
            story.steps.len()
        }
        Err(story) => panic!("{} ({crash_after:?}) never rests: {story:#?}", state.name()),
    }
}

fn every_state_converges(crd_version: CrdVersion) -> usize {
    states(crd_version, |state| {
        let actions = converges(state, None);
        // What the others add is seen without crashes.
        if state.cron_job == "none" && matches!(state.request, "none" | "open") {
            for crash_after in 1..=actions {
                converges(state, Some(crash_after));
            }
        }
    })
}

#[test]
fn every_state_of_v1_converges_with_at_most_one_job_created() {
    assert!(every_state_converges(CrdVersion::V1) > 7000);
}

#[test]
fn every_state_of_v1beta1_converges_with_at_most_one_job_created() {
    assert!(every_state_converges(CrdVersion::V1Beta1) > 7000);
}

/// What became of a stream whose Jobs fail as long as their image is `broken`.
struct Life {
    world: World,
    created: usize,
    failures: usize,
    /// Fails Jobs before the operator has written that they run.
    fails_at_once: bool,
}

impl Life {
    fn new(crd_version: CrdVersion, annotations: Value, fails_at_once: bool) -> Life {
        let mut world = World::of(crd_version, &["secretRef"]);
        world.template("stream", &template("broken"));
        world.template("backfill", &template("broken"));
        world.stream_with("", capture("v0", false), annotations);
        Life { world, created: 0, failures: 0, fails_at_once }
    }

    fn mend(&mut self) {
        self.world.template("stream", &template("stream"));
        self.world.template("backfill", &template("backfill"));
    }

    fn fail_job(&mut self) {
        self.world.now += SignedDuration::from_secs(1);
        self.world.end_job("Failed");
        self.failures += 1;
    }

    fn job_breaks(&self) -> bool {
        let Some(job) = &self.world.objects.job else { return false };
        let broken =
            job.pointer("/spec/template/spec/containers/0/image") == Some(&json!("broken"));
        broken && !job["status"]["conditions"].is_array()
    }

    /// Until nothing is left to wait for, or `failures` have happened.
    fn run(&mut self, failures: usize) {
        for _ in 0..200 {
            let decision = self.world.decide();
            if decision.actions.is_empty() {
                if self.job_breaks() {
                    if self.failures == failures {
                        return;
                    }
                    self.fail_job();
                } else if let Some(at) = decision.requeue_at {
                    assert!(at > self.world.now, "it looks again without end");
                    self.world.now = at;
                } else {
                    return;
                }
                continue;
            }
            for action in &decision.actions {
                self.world.apply(action);
                self.created += usize::from(matches!(action, Action::StartJob { .. }));
            }
            if self.fails_at_once && self.job_breaks() && self.failures < failures {
                self.fail_job();
            }
        }
        panic!("{} Jobs were created, and it goes on", self.created);
    }

    fn phase(&self) -> Phase {
        self.world.index.stream(&self.world.key()).unwrap().phase
    }
}

#[test]
fn a_stream_that_always_fails_gets_one_job_per_attempt_and_then_stays_failed() {
    for fails_at_once in [false, true] {
        let mut life = Life::new(CrdVersion::V1, json!({ RECOVER: "true" }), fails_at_once);
        life.run(usize::MAX);
        // The first start and seven attempts after it.
        assert_eq!((life.created, life.failures, life.phase()), (8, 8, Phase::Failed));
        // 30 s, doubled each time, at most 30 min.
        let waited = life.world.now.duration_since(crate::world::now()).as_secs();
        assert!((3690..3750).contains(&waited), "{waited} s");
    }
}

#[test]
fn a_stream_recovers_once_its_template_is_mended_after_any_number_of_failures() {
    for fails_at_once in [false, true] {
        for failures in 1..=6 {
            let mut life = Life::new(CrdVersion::V1, json!({ RECOVER: "true" }), fails_at_once);
            life.run(failures);
            life.mend();
            // The attempt that is under way, if one is, still has the old template.
            life.run(failures + 1);
            assert_eq!(life.phase(), Phase::Backfilling, "after {failures}");
            assert_eq!(life.created, life.failures + 1, "after {failures}");
            life.world.end_job("Complete");
            life.run(failures + 1);
            assert_eq!(life.phase(), Phase::Running, "after {failures}");
            assert_eq!(life.created, life.failures + 2, "after {failures}");
        }
    }
}

#[test]
fn a_stream_of_v1beta1_is_started_once_when_its_crash_loop_is_taken_off() {
    let mut life = Life::new(CrdVersion::V1Beta1, json!({}), false);
    for failures in 1..=3 {
        life.run(failures);
        assert_eq!((life.created, life.phase()), (failures, Phase::Failed));
        life.world.annotate(STATE, None);
        // `mainstay stream restart` and `start` give a new value as well.
        life.world.annotate("mainstay.io/restart", Some(&failures.to_string()));
    }
    life.mend();
    life.run(3);
    assert_eq!((life.created, life.phase()), (4, Phase::Running));
}

#[test]
fn removing_the_annotations_ends_or_resets_the_attempts() {
    let mut life = Life::new(CrdVersion::V1, json!({ RECOVER: "true" }), false);
    life.run(3);
    life.world.annotate(RECOVERED, None);
    life.run(usize::MAX);
    assert_eq!((life.created, life.phase()), (3 + 8, Phase::Failed));

    let mut life = Life::new(CrdVersion::V1, json!({ RECOVER: "true" }), false);
    life.run(3);
    life.world.annotate(RECOVER, None);
    life.run(usize::MAX);
    assert_eq!((life.created, life.failures, life.phase()), (4, 4, Phase::Failed));
}
