//! What we chose to answer otherwise than the existing service, and why. docs/advisor.md shows the same.

/// A difference of one recorded answer; of all of them if `name` is empty.
pub struct Chosen {
    /// The recording's name.
    pub name: &'static str,
    /// A part of what the comparison says.
    pub shown: &'static str,
    pub why: &'static str,
}

pub const ANY_ORIGIN: &str = "access-control-allow-origin: \"http://ui.example\", ours is \"*\"";
pub const CREDENTIALS: &str = "access-control-allow-credentials: \"true\", ours is \"\"";
pub const MAX_AGE: &str = "access-control-max-age: \"1800\", ours is \"600\"";
pub const MERGED: &str = ".apis.recommendations.response: new";
pub const NAMED: &str = ".name: new";
pub const REQUEST: &str = ".apis.create.request: new";
pub const PROCESSED: &str = ".status: \"PUBLISHED\", \"PROCESSED\"";
pub const HISTORY: &str = ".status_history: 3 items, 2 items";

pub const STATUS: &str = "status 500, ours is 400";
pub const RAW: &str = ".message: \"";
pub const NO_BODY: &str = "body: \"\", ours is";
pub const NOT_FOUND: &str = ".message: \"Error while loading existing profile";
pub const UNKNOWN_PATH: &str = "content-type: \"application/json;charset=utf-8\", ours is";
const CODE: &str = ".httpcode: 500, 400";
const TYPE: &str = "content-type: \"\", ours is \"application/json";
const BAD_INPUT: &str =
    "bad input is a 400, with the name of the field instead of a text of Java's";
const SAID: &str = "the error says what is wrong";
const NO_TABLE: &str = "its table was missing there; a 500 with SQL is a defect";
/// Of requests that are not JSON.
pub const BAD_JSON: &str = "java.lang.IllegalStateException";
pub const BAD_RESULTS: &str = "500, ours is 400";
pub const EMPTY_ERROR: &str = "body: \"\", ours is \"{\\\"message\\\":\\\"Not Found: ";
pub const NO_CONTENT_TYPE: &str = "content-type: \"\", ours is ";
pub const RAW_REASON: &str = "[/127.0.0.1] failed: Connection refused";
/// Of the refused request of a job.
pub const NO_JOB: &str = " for the jobId: ";
/// Of a recorded answer all of which is another.
pub const ACCEPTED: &str = "status 400, ours is 200";
pub const REFUSED: &str = "status 200, ours is 400";
pub const ENDED: &str = ".summary.status: \"IN_PROGRESS\", \"COMPLETED\"";
pub const END_TIME: &str = ".summary.job_end_time: new";
pub const NOTHING_TO_DO: &str = "\"message\":\"Nothing to do.\"";
pub const METADATA: &str = ".metadata";
pub const WEBHOOK: &str = ".webhook: new";
const KAFKA: &str = "a job does not wait for Kafka: what it publishes does";
const DURATION: &str = "what cannot be read is refused; there the job fails";
const FOUND: &str = "metadata is what the job found, whenever it is asked for";
const ENDS: &str = "a job that finds nothing ends, and says so";

pub const CHOSEN: &[Chosen] = &[
    Chosen { name: "", shown: ANY_ORIGIN, why: "who may read answers is `http.cors_origins`" },
    Chosen {
        name: "",
        shown: CREDENTIALS,
        why: "credentials of a browser are for pages of the same origin",
    },
    Chosen { name: "", shown: MAX_AGE, why: "as on every route" },
    Chosen {
        name: "",
        shown: MERGED,
        why: "recommendations are shown whenever they are asked for, not only with a bare token",
    },
    Chosen { name: "", shown: NAMED, why: "as the memory mode and the documents have it" },
    Chosen { name: "", shown: REQUEST, why: "as the memory mode and the documents have it" },
    Chosen { name: "", shown: HISTORY, why: "for the same reason as `PUBLISHED`" },
    Chosen {
        name: "",
        shown: PROCESSED,
        why: "whether a sink has published is the sink's to say: `mainstay bus status`",
    },
    Chosen { name: "createMetricProfile_empty", shown: STATUS, why: BAD_INPUT },
    Chosen { name: "createMetricProfile_empty", shown: CODE, why: BAD_INPUT },
    Chosen { name: "createMetricProfile_empty", shown: RAW, why: BAD_INPUT },
    Chosen { name: "createMetadataProfile_empty", shown: STATUS, why: BAD_INPUT },
    Chosen { name: "createMetadataProfile_empty", shown: CODE, why: BAD_INPUT },
    Chosen { name: "createMetadataProfile_empty", shown: RAW, why: BAD_INPUT },
    Chosen { name: "createLayer_empty", shown: RAW, why: BAD_INPUT },
    Chosen {
        name: "createExperimentTrial_bad",
        shown: RAW,
        why: "no trials are run here, whatever the body says",
    },
    Chosen { name: "deleteMetricProfile_noname", shown: NO_BODY, why: SAID },
    Chosen { name: "deleteMetricProfile_noname", shown: TYPE, why: SAID },
    Chosen { name: "dsmetadata_delete", shown: NO_BODY, why: SAID },
    Chosen { name: "dsmetadata_delete", shown: TYPE, why: SAID },
    Chosen { name: "deletePerformanceProfile", shown: STATUS, why: NO_TABLE },
    Chosen { name: "deletePerformanceProfile", shown: CODE, why: NO_TABLE },
    Chosen { name: "deletePerformanceProfile", shown: NOT_FOUND, why: NO_TABLE },
    Chosen { name: "deletePerformanceProfile_unknown", shown: STATUS, why: NO_TABLE },
    Chosen { name: "deletePerformanceProfile_unknown", shown: CODE, why: NO_TABLE },
    Chosen { name: "deletePerformanceProfile_unknown", shown: NOT_FOUND, why: NO_TABLE },
    Chosen { name: "createPerformanceProfile", shown: "status 400, ours is 201", why: NO_TABLE },
    Chosen { name: "createPerformanceProfile", shown: ".httpcode: 400, 201", why: NO_TABLE },
    Chosen { name: "createPerformanceProfile", shown: ".status: \"ERROR\"", why: NO_TABLE },
    Chosen {
        name: "createPerformanceProfile",
        shown: ".message: \"could not execute",
        why: NO_TABLE,
    },
    Chosen {
        name: "unknown_path",
        shown: UNKNOWN_PATH,
        why: "a path that no API has is answered as everywhere in Mainstay",
    },
    Chosen {
        name: "unknown_path",
        shown: ".error: new",
        why: "a path that no API has is answered as everywhere in Mainstay",
    },
    Chosen {
        name: "unknown_path",
        shown: ": missing",
        why: "a path that no API has is answered as everywhere in Mainstay",
    },
    Chosen {
        name: "createExperiment_badjson",
        shown: BAD_JSON,
        why: "what is wrong is said in words, not in those of a Java library",
    },
    Chosen { name: "updateResults_badjson", shown: BAD_RESULTS, why: "the client's mistake" },
    Chosen { name: "updateResults_badjson", shown: "500, 400", why: "the client's mistake" },
    Chosen { name: "updateResults_badjson", shown: "com.google.gson", why: "as for bad JSON" },
    Chosen {
        name: "deleteExperiment_unknown",
        shown: EMPTY_ERROR,
        why: "every error says what is wrong, in the documented body",
    },
    Chosen { name: "deleteExperiment_unknown", shown: NO_CONTENT_TYPE, why: "for its body" },
    Chosen {
        name: "deleteExperiment_rm",
        shown: EMPTY_ERROR,
        why: "every error says what is wrong, in the documented body",
    },
    Chosen { name: "deleteExperiment_rm", shown: NO_CONTENT_TYPE, why: "for its body" },
    Chosen {
        name: "generateRecommendations_datasource_down",
        shown: RAW_REASON,
        why: "the reason is that of our client, without what it is wrapped in",
    },
    Chosen {
        name: "bulk_post_array",
        shown: RAW,
        why: "what is wrong is said in words, not in those of a Java library",
    },
    Chosen {
        name: "bulk_post_badjson",
        shown: RAW,
        why: "what is wrong is said in words, not in those of a Java library",
    },
    Chosen {
        name: "bulk_post_empty_body",
        shown: RAW,
        why: "what is wrong is said in words, not in those of a Java library",
    },
    Chosen {
        name: "bulk_post_unknown_datasource",
        shown: ".message: \"Datasource %s is not serviceable.",
        why: "the error says which data sources there are",
    },
    Chosen {
        name: "bulk_post_datasource_down",
        shown: RAW_REASON,
        why: "the reason is that of our client",
    },
    Chosen { name: "bulk_post_kafka_unreachable", shown: ACCEPTED, why: KAFKA },
    Chosen { name: "bulk_post_kafka_unreachable", shown: "", why: KAFKA },
    Chosen { name: "bulk_post_bad_measurement_duration", shown: REFUSED, why: DURATION },
    Chosen { name: "bulk_post_bad_measurement_duration", shown: "", why: DURATION },
    Chosen { name: "", shown: NO_JOB, why: "a request that is refused makes no job" },
    Chosen { name: "", shown: ENDED, why: ENDS },
    Chosen { name: "", shown: END_TIME, why: ENDS },
    Chosen { name: "", shown: NOTHING_TO_DO, why: ENDS },
    Chosen { name: "bulk_post_empty_filter_objects_status", shown: METADATA, why: FOUND },
    Chosen { name: "bulk_post_filter_no_container_status", shown: METADATA, why: FOUND },
    Chosen { name: "bulk_post_time_range_old_status", shown: METADATA, why: FOUND },
    Chosen {
        name: "bulk_post_unknown_metadata_profile_status",
        shown: METADATA,
        why: "a job whose profile is not known reads nothing",
    },
    Chosen {
        name: "bulk_default_datasource_down_status",
        shown: RAW_REASON,
        why: "the reason is that of our client",
    },
    Chosen {
        name: "bulk_post_time_range_no_millis_status",
        shown: "",
        why: "a time needs no milliseconds: such a job fails there",
    },
    Chosen {
        name: "bulk_get_webhook_job",
        shown: WEBHOOK,
        why: "what became of the webhook is kept, and shown if it is asked for",
    },
];
