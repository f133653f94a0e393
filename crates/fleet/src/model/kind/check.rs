//! Validates kind files.

use super::file::KindFile;

type CheckResult = Result<(), (String, String)>;

pub fn check(file: &KindFile) -> CheckResult {
    let is_word = |text: &str, also: &str| {
        !text.is_empty()
            && text.len() <= 40
            && text.starts_with(|c: char| c.is_ascii_lowercase())
            && text
                .chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || also.contains(c))
    };
    let invalid = |field: &str, message: &str| Err((field.to_owned(), message.to_owned()));
    if !is_word(&file.kind, "-") || ["cluster", "service-account"].contains(&file.kind.as_str()) {
        return invalid("kind", "must be lower-case letters, digits and '-', and not `cluster`");
    }
    if !is_word(&file.plural, "-_") || RESERVED.contains(&file.plural.as_str()) {
        return invalid("plural", "must be lower-case letters and digits, and no other resource");
    }
    if !is_word(&file.api, "_-") {
        return invalid("api", "must be lower-case letters, digits, '_' and '-'");
    }
    if file.api == "v1" {
        return invalid("api", "`v1` is the kernel's");
    }
    if file.types.is_empty() {
        return invalid("types", "must have at least one instance type");
    }
    if file.types.iter().filter(|ty| ty.trial).count() > 1 {
        return invalid("types", "at most one may be a trial");
    }
    for (i, ty) in file.types.iter().enumerate() {
        if ty.sizes.is_empty() {
            return invalid(&format!("types[{i}].sizes"), "must have at least one size");
        }
        if ty.billing.is_empty() {
            return invalid(&format!("types[{i}].billing"), "must have at least one billing model");
        }
        if !ty.sizes.is_sorted_by_key(|size| size.units) {
            return invalid(&format!("types[{i}].sizes"), "must be in order, smallest first");
        }
        if let Some(j) = ty.sizes.iter().position(|size| size.units < 1) {
            return invalid(&format!("types[{i}].sizes[{j}].units"), "must be at least 1");
        }
    }
    for (name, field) in &file.fields {
        if !field.default.is_null() && !field.field_type.fits(&field.default) {
            let message = format!("must be a {}", field.field_type.name());
            return invalid(&format!("fields.{name}.default"), &message);
        }
    }
    if let Some(local) = &file.local {
        let probes = [local.ready.tcp, local.ready.http.is_some(), local.ready.line.is_some()];
        if probes.iter().filter(|set| **set).count() != 1 {
            return invalid("local.ready", "must be one of tcp: true, http: PATH and line: TEXT");
        }
    }
    Ok(())
}

/// Resources that every API has.
const RESERVED: &[&str] = &[
    "errors",
    "openapi",
    "cloud_providers",
    "instance_types",
    "service_accounts",
    "sso_providers",
    "clusters",
    "agent-clusters",
    "admin",
    "status",
    "obs-proxy-verification",
];

/// The line of a field, as well as a search in the text can find it.
pub fn line_of(text: &str, field: &str) -> usize {
    let lines: Vec<&str> = text.lines().collect();
    let mut at = 0;
    for step in field.split('.') {
        let name = step.split('[').next().unwrap_or(step);
        let found = lines.iter().skip(at).position(|line| {
            let line = line.trim_start().trim_start_matches("- ");
            let rest = line.strip_prefix(name).or_else(|| {
                let inside =
                    line.find(&format!("{name}:")).or_else(|| line.find(&format!("{name}?:")));
                inside.map(|from| &line[from + name.len()..])
            });
            rest.is_some_and(|rest| rest.starts_with(':') || rest.starts_with("?:"))
        });
        match found {
            Some(further) => at += further,
            None => break,
        }
    }
    at + 1
}
