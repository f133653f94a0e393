//! Writes text into PromQL. Nothing else of this crate does, so that no value of a user or of a
//! cluster can become a part of a query's grammar.

use crate::model::filter::{Matcher, Test};

/// A string of PromQL.
pub fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                quoted.push('\\');
                quoted.push(c);
            }
            '\n' => quoted.push_str("\\n"),
            c if c.is_control() => quoted.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// A string of PromQL whose regular expression matches exactly one of the values. Prometheus anchors
/// it, and looks alternatives without other operators up in its index.
pub fn one_of<'a>(values: impl IntoIterator<Item = &'a str>) -> String {
    let mut regex = String::new();
    for value in values {
        if !regex.is_empty() {
            regex.push('|');
        }
        for c in value.chars() {
            if matches!(
                c,
                '\\' | '.' | '+' | '*' | '?' | '(' | ')' | '|' | '[' | ']' | '{' | '}' | '^' | '$'
            ) {
                regex.push('\\');
            }
            regex.push(c);
        }
    }
    quoted(&regex)
}

/// The matchers as they stand between braces.
pub fn matchers(matchers: &[Matcher]) -> String {
    let written = matchers.iter().map(|Matcher { label, test }| match test {
        Test::Present => format!("{label}!=\"\""),
        Test::AnyOf(values) => format!("{label}=~{}", one_of(values.iter().map(String::as_str))),
        Test::NoneOf(values) => format!("{label}!~{}", one_of(values.iter().map(String::as_str))),
    });
    written.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Reads a string of PromQL back: what it stands for, and what comes after it.
    fn unquote(text: &str) -> (String, &str) {
        let mut chars = text.strip_prefix('"').unwrap().char_indices();
        let mut value = String::new();
        while let Some((at, c)) = chars.next() {
            match c {
                '"' => return (value, &text[at + 2..]),
                '\n' => panic!("a line break in a string"),
                '\\' => match chars.next().unwrap().1 {
                    'n' => value.push('\n'),
                    'u' => {
                        let digits: String = chars.by_ref().take(4).map(|(_, c)| c).collect();
                        value.push(
                            char::from_u32(u32::from_str_radix(&digits, 16).unwrap()).unwrap(),
                        );
                    }
                    c @ ('"' | '\\') => value.push(c),
                    c => panic!("escaped {c}"),
                },
                c => value.push(c),
            }
        }
        panic!("the string does not end");
    }

    /// Splits a regular expression of literals into them.
    fn alternatives(regex: &str) -> Vec<String> {
        let mut values = vec![String::new()];
        let mut chars = regex.chars();
        while let Some(c) = chars.next() {
            match c {
                '|' => values.push(String::new()),
                '\\' => values.last_mut().unwrap().push(chars.next().unwrap()),
                '.' | '+' | '*' | '?' | '(' | ')' | '[' | ']' | '{' | '}' | '^' | '$' => {
                    panic!("operator {c}")
                }
                c => values.last_mut().unwrap().push(c),
            }
        }
        values
    }

    #[test]
    fn values_are_literal() {
        assert_eq!(one_of(["kube-system", "a.b"]), r#""kube-system|a\\.b""#);
        assert_eq!(one_of([r#"x"} or up{a="#]), r#""x\"\\} or up\\{a=""#);
        assert_eq!(quoted("a\nb\u{7}"), r#""a\nb\u0007""#);
        let label = |test| Matcher::new("namespace", test);
        let written = [
            label(Test::Present),
            label(Test::AnyOf(vec!["a".into(), "b".into()])),
            label(Test::NoneOf(vec!["c.*".into()])),
        ];
        assert_eq!(matchers(&written), r#"namespace!="", namespace=~"a|b", namespace!~"c\\.\\*""#);
    }

    proptest! {
        #[test]
        fn any_values_are_read_back_and_end_where_they_end(
            values in prop::collection::vec("\\PC{1,8}|[\"\\\\|.*(){}\\[\\]^$+?\n\u{1}]{1,8}", 1..5)
        ) {
            let written = one_of(values.iter().map(String::as_str));
            let (regex, after) = unquote(&written);
            prop_assert_eq!(after, "");
            prop_assert_eq!(alternatives(&regex), values);
        }
    }
}
