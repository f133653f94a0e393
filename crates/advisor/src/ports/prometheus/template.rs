//! Turns an expression that a profile has for one container into one for many: placeholders become
//! lists, and where names do not tell whose a measurement is, the owner of the pod is joined.

/// Replaces each pattern in one pass: what is put in is not searched again.
pub(super) fn substitute(template: &str, slots: &[(&str, String)]) -> String {
    let mut filled = String::with_capacity(template.len() * 2);
    let mut rest = template;
    while !rest.is_empty() {
        match slots.iter().find(|(pattern, _)| rest.starts_with(pattern)) {
            Some((pattern, value)) => {
                filled.push_str(value);
                rest = &rest[pattern.len()..];
            }
            None => {
                let c = rest.chars().next().expect("it is not empty");
                filled.push(c);
                rest = &rest[c.len_utf8()..];
            }
        }
    }
    filled
}

/// The owner of each pod, with the value 1, from the series of owners that a selector names. Of a pod
/// that has changed its owner it is the one now: a join with two would fail the whole query.
pub(super) fn owners(selector: &str) -> String {
    format!(
        "group by (namespace, pod, workload, workload_type) (topk by (namespace, pod) (1, \
         {selector} * 2 or max_over_time({selector}[$MEASUREMENT_DURATION_IN_MIN$m])))"
    )
}

/// `operator by (labels) (inner)`, which is the whole of an expression.
#[derive(Debug, PartialEq)]
pub(super) struct Aggregation<'a> {
    pub operator: &'a str,
    pub labels: Vec<&'a str>,
    pub inner: &'a str,
}

pub(super) fn aggregation(expression: &str) -> Option<Aggregation<'_>> {
    let expression = expression.trim();
    let (operator, rest) = identifier(expression)?;
    let (by, rest) = identifier(rest.trim_start())?;
    let (labels, rest) = parenthesised(rest.trim_start())?;
    let (inner, rest) = parenthesised(rest.trim_start())?;
    let whole = by.eq_ignore_ascii_case("by") && rest.trim().is_empty();
    let labels = labels.split(',').map(str::trim).filter(|label| !label.is_empty()).collect();
    whole.then_some(Aggregation { operator, labels, inner })
}

/// The call or aggregation that a text begins with: `f(x)`, and what comes after it.
pub(super) fn call(text: &str) -> Option<(&str, &str)> {
    let (_, rest) = identifier(text)?;
    let (_, rest) = parenthesised(rest)?;
    Some(text.split_at(text.len() - rest.len()))
}

fn identifier(text: &str) -> Option<(&str, &str)> {
    let letter = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let end = text.find(|c| !letter(c)).unwrap_or(text.len());
    (end > 0).then(|| text.split_at(end))
}

/// What stands between a text's first character, which opens a parenthesis, and the one that closes
/// it; and what comes after. Parentheses in strings do not count.
fn parenthesised(text: &str) -> Option<(&str, &str)> {
    if !text.starts_with('(') {
        return None;
    }
    let mut depth = 0;
    let mut string = None;
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match (string, c) {
            _ if escaped => escaped = false,
            (Some('"' | '\''), '\\') => escaped = true,
            (Some(quote), c) if c == quote => string = None,
            (Some(_), _) => {}
            (None, '"' | '\'' | '`') => string = Some(c),
            (None, '(') => depth += 1,
            (None, ')') => {
                depth -= 1;
                if depth == 0 {
                    return Some((&text[1..at], &text[at + 1..]));
                }
            }
            _ => {}
        }
    }
    None
}

/// The recording rules that an expression reads: names with colons, outside of strings.
pub(super) fn recording_rules(expression: &str) -> Vec<&str> {
    let outside = expression.split('"').step_by(2);
    let letter = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let names = outside.flat_map(|text| text.split(move |c| !letter(c)));
    let rule = |name: &&str| {
        name.trim_matches(':').contains(':') && name.starts_with(|c: char| c.is_ascii_alphabetic())
    };
    names.filter(rule).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_in_is_not_searched_again() {
        let slots = [("$A$", "$B$".to_owned()), ("$B$", "é$A$".to_owned())];
        assert_eq!(substitute("x{$A$} $B$ $C$ é", &slots), "x{$B$} é$A$ $C$ é");
    }

    #[test]
    fn an_aggregation_is_the_whole_expression() {
        let text = r#"avg by(container, namespace) (rate(x{a="(b)\")", c!=')'}[15m]))"#;
        let found = aggregation(text).unwrap();
        assert_eq!((found.operator, found.labels), ("avg", vec!["container", "namespace"]));
        assert_eq!(found.inner, r#"rate(x{a="(b)\")", c!=')'}[15m])"#);
        for other in [
            "up",
            "sum(up)",
            "sum without (pod) (up)",
            "sum by (pod) (up) / 2",
            "max_over_time(sum by(namespace) (up)[15m:])",
            "sum by (pod) (up",
            "",
        ] {
            assert_eq!(aggregation(other), None, "{other}");
        }
        assert_eq!(call("f(g(x)[1m]) + 1"), Some(("f(g(x)[1m])", " + 1")));
    }

    #[test]
    fn recording_rules_are_named_with_colons() {
        let text = r#"avg_over_time(a:b:sum{x="c:d"}[5m:]) + e[15m:] + f:g"#;
        assert_eq!(recording_rules(text), ["a:b:sum", "f:g"]);
    }
}
