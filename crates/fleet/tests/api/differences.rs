//! What we chose to answer otherwise than the existing service. docs/compatibility.md shows the
//! same lists.

/// A recorded answer whose status or code is not ours.
pub struct Chosen {
    /// The recording's name.
    pub name: &'static str,
    pub request: &'static str,
    /// Status, and the number of the error: `500/9`.
    pub was: &'static str,
    pub is: &'static str,
    pub why: &'static str,
}

/// Something that is there, or is not, or reads otherwise, wherever it is.
pub struct Field {
    /// As a comparison shows it.
    pub shown: &'static str,
    pub field: &'static str,
    pub why: &'static str,
}

pub const ANSWERS: &[Chosen] = &[
    Chosen {
        name: "053-orderby-href",
        request: "`GET /kafkas?orderBy=href`",
        was: "500/9",
        is: "200",
        why: "`href` is documented as a column, so it orders (as the id does)",
    },
    Chosen {
        name: "054-orderby-version",
        request: "`GET /kafkas?orderBy=version`",
        was: "500/9",
        is: "200",
        why: "`version` is documented as a column, so it orders",
    },
    Chosen {
        name: "088-create-bad-billing",
        request: "`POST /kafkas` with an unknown `billing_model`",
        was: "500/9",
        is: "400/43",
        why: "it is the caller's mistake, not the server's",
    },
    Chosen {
        name: "111-promote-standard-already",
        request: "`POST /kafkas/{id}/promote` of what is not of billing model `eval`",
        was: "500/9",
        is: "400/8",
        why: "it is the caller's mistake, not the server's",
    },
    Chosen {
        name: "112-promote-eval-notready",
        request: "`POST /kafkas/{id}/promote` of what is not ready",
        was: "500/9",
        is: "400/8",
        why: "it is the caller's mistake, not the server's",
    },
    Chosen {
        name: "150-sa-list",
        request: "`GET /service_accounts` while the sign-in system is away",
        was: "500/9",
        is: "200",
        why: "the accounts are known here; nobody need be asked for a list",
    },
];

pub const FIELDS: &[Field] = &[
    Field {
        shown: "\"Kafka is being deleted\"",
        field: "body of `DELETE`, 202",
        why: "was empty, which some generated clients refuse; has the shape of an error, code 0",
    },
    Field {
        shown: "keys missing [\"account_number\"], more []",
        field: "`account_number` for admins",
        why: "is left out: it was asked for at the account service, once for each item of a list",
    },
    Field {
        shown: ".name: \"mas_sso\", \"mainstay\"",
        field: "`name` of `GET /sso_providers`",
        why: "names the sign-in system in use: `mainstay` is the built-in issuer",
    },
    Field {
        shown: ".items[0].name: \"laa3\", \"laa2\"",
        field: "order of what `orderBy` does not tell apart",
        why: "is by name; was whatever the database came upon first",
    },
    Field {
        shown: "www-authenticate: \"\", ours is \"Bearer realm",
        field: "`WWW-Authenticate` of a 401",
        why: "is always there, as HTTP wants it; was missing when the token had no organisation",
    },
    Field {
        shown: "vary: also accept-encoding",
        field: "`Vary`",
        why: "also names `accept-encoding`: every answer may be compressed",
    },
    Field {
        shown: "access-control-allow-origin: only if configured",
        field: "`Access-Control-Allow-Origin`",
        why: "was `*` for every page; is sent only to origins of `http.cors_origins`, where `\"*\"` allows all",
    },
    Field {
        shown: "access-control-allow-headers: all of them",
        field: "`Access-Control-Allow-Headers` and `-Methods` of a preflight",
        why: "name all that are allowed, not only those that were asked for",
    },
];

/// What our OpenAPI documents say otherwise than the contracts.
pub const DOCUMENTS: &[(&str, &str)] = &[
    ("createServiceAccount 200", "is documented as 202, which the existing service answers, too"),
    ("deleteServiceAccountById 204", "has no body, as 204 means"),
    ("getVersionMetadata 200", "`server_version` is there for dinosaurs, too"),
    ("values", "is called `Values`, as in the other contract"),
    ("MetricsFederationResult", "is a text, and needs no name"),
];

/// Rows of the page's tables, in order; heads and rules are left out.
fn rows(page: &str) -> Vec<Vec<String>> {
    let lines = page.lines().filter(|line| line.starts_with('|') && !line.starts_with("|--"));
    let cells =
        |line: &str| line.trim_matches('|').split('|').map(|c| c.trim().to_owned()).collect();
    lines.map(cells).collect()
}

#[test]
fn the_page_on_compatibility_lists_exactly_these() {
    let page = include_str!("../../../../docs/compatibility.md");
    let texts = |cells: &[&str]| cells.iter().map(|cell| (*cell).to_owned()).collect::<Vec<_>>();
    let mut wanted = vec![texts(&["Request", "Existing", "Ours", "Why"])];
    wanted.extend(ANSWERS.iter().map(|of| texts(&[of.request, of.was, of.is, of.why])));
    wanted.push(texts(&["What", "How it differs"]));
    wanted.extend(FIELDS.iter().map(|of| texts(&[of.field, of.why])));
    wanted.push(texts(&["In the contract", "In our document"]));
    wanted.extend(DOCUMENTS.iter().map(|(of, why)| texts(&[&format!("`{of}`"), why])));
    assert_eq!(rows(page), wanted);
}
