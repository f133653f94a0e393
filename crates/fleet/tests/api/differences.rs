//! What we chose to answer otherwise than the existing service. docs/compatibility.md shows the
//! same lists.

/// A recorded answer whose status or code is not ours.
pub struct Chosen {
    pub name: &'static str,
    /// Status, and the number of the error: `500/9`.
    pub was: &'static str,
    pub is: &'static str,
    pub why: &'static str,
}

/// A field that is there, or is not, or reads otherwise, wherever it is.
pub struct Field {
    /// As a difference shows it.
    pub shown: &'static str,
    pub field: &'static str,
    pub why: &'static str,
}

pub const ANSWERS: &[Chosen] = &[
    Chosen {
        name: "053-orderby-href",
        was: "500/9",
        is: "200",
        why: "`href` is documented as a column, so it orders (as the id does)",
    },
    Chosen {
        name: "054-orderby-version",
        was: "500/9",
        is: "200",
        why: "`version` is documented as a column, so it orders",
    },
    Chosen {
        name: "088-create-bad-billing",
        was: "500/9",
        is: "400/43",
        why: "an unknown billing model is the caller's mistake, not the server's",
    },
    Chosen {
        name: "111-promote-standard-already",
        was: "500/9",
        is: "400/8",
        why: "a promotion that is not possible is the caller's mistake",
    },
    Chosen {
        name: "112-promote-eval-notready",
        was: "500/9",
        is: "400/8",
        why: "a promotion that is not possible yet is the caller's mistake",
    },
];

pub const FIELDS: &[Field] = &[
    Field {
        shown: ".name: \"mas_sso\", \"mainstay\"",
        field: "`name` of `GET /sso_providers`",
        why: "names the sign-in system in use: `mainstay` is the built-in issuer",
    },
    Field {
        shown: "\"Kafka is being deleted\"",
        field: "body of `DELETE`, 202",
        why: "was empty, which some generated clients refuse: it has the shape of an error now, with code 0",
    },
    Field {
        shown: ".items[0].name: \"laa3\", \"laa2\"",
        field: "order of what `orderBy` does not tell apart",
        why: "is by name; was whatever the database came upon first",
    },
    Field {
        shown: "www-authenticate: \"\", ours is \"Bearer realm",
        field: "`WWW-Authenticate` of a 401",
        why: "is there for every 401, as HTTP wants it; was missing where the token was good but had no organisation",
    },
];
