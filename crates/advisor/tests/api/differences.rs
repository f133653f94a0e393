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
];
