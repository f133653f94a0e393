//! What an expression uses, read from its tokens. The engine says which names are free; this says how
//! each is used: `web[2].outputs.url` is one of many resources, `web` all of them.
//!
//! It may find more uses than there are, never fewer: a use too many is an edge too many.

use super::engine::{FILTERS, TESTS};
use super::split::Fault;
use crate::model::problem::suggestion;

/// One use of a name, with the constant part of the path after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    pub root: String,
    pub path: Vec<Segment>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Segment {
    Field(String),
    Item(u32),
    /// `[count.index]`: the one with the same number.
    SameItem,
    AnyItem,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token<'a> {
    Name(&'a str),
    Number(&'a str),
    /// Without its quotes; none if it has escapes, so that its value is not its text.
    Text(Option<&'a str>),
    Mark(char),
}

const WORDS: [&str; 13] = [
    "and", "or", "not", "in", "is", "if", "else", "true", "false", "none", "True", "False", "None",
];

/// All uses of names. Unknown filters and tests, methods, functions and `*` are faults.
pub fn scan(code: &str) -> Result<Vec<Access>, Fault> {
    let tokens = tokens(code);
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let before = at.checked_sub(1).map(|at| tokens[at]);
        match tokens[at] {
            Token::Mark('*') => {
                let right = "write `a|times(b)`, which multiplies numbers";
                return Err(("`*` is not supported".into(), right.into()));
            }
            Token::Name(name) => match before {
                Some(Token::Mark('.')) => {
                    if tokens.get(at + 1) == Some(&Token::Mark('(')) {
                        let right = format!("write a filter: `…|{name}`");
                        return Err((
                            format!("methods such as `.{name}()` are not supported"),
                            right,
                        ));
                    }
                }
                Some(Token::Mark('|')) => known("filter", name, &FILTERS)?,
                Some(Token::Name("is")) if name != "not" => known("test", name, &TESTS)?,
                Some(Token::Name("not")) if is_test(&tokens, at) => known("test", name, &TESTS)?,
                _ if WORDS.contains(&name) => {}
                // The name of an argument.
                _ if is_argument(&tokens, at) => {}
                _ if tokens.get(at + 1) == Some(&Token::Mark('(')) => {
                    let right = "write a filter: `value|name`";
                    return Err((
                        format!("there are no functions such as `{name}()`"),
                        right.into(),
                    ));
                }
                _ => {
                    let (path, next) = path(&tokens, at + 1);
                    found.push(Access { root: name.to_owned(), path });
                    at = next;
                    continue;
                }
            },
            _ => {}
        }
        at += 1;
    }
    Ok(found)
}

fn known(what: &str, name: &str, known: &[&str]) -> Result<(), Fault> {
    if known.contains(&name) {
        return Ok(());
    }
    Err((format!("there is no {what} `{name}`"), suggestion(name, known.iter().copied())))
}

/// `x is not name`.
fn is_test(tokens: &[Token<'_>], at: usize) -> bool {
    at >= 2 && tokens[at - 2] == Token::Name("is")
}

fn is_argument(tokens: &[Token<'_>], at: usize) -> bool {
    tokens.get(at + 1) == Some(&Token::Mark('=')) && tokens.get(at + 2) != Some(&Token::Mark('='))
}

/// The constant path from a token on, and where the first token is that must still be looked at: what
/// is in brackets and not constant has uses of its own.
fn path(tokens: &[Token<'_>], mut at: usize) -> (Vec<Segment>, usize) {
    let mut path = Vec::new();
    loop {
        match tokens.get(at..) {
            Some([Token::Mark('.'), Token::Name(field), rest @ ..])
                if rest.first() != Some(&Token::Mark('(')) =>
            {
                path.push(Segment::Field((*field).to_owned()));
                at += 2;
            }
            Some([Token::Mark('['), Token::Text(Some(field)), Token::Mark(']'), ..]) => {
                path.push(Segment::Field((*field).to_owned()));
                at += 3;
            }
            Some([Token::Mark('['), Token::Number(number), Token::Mark(']'), ..]) => {
                path.push(number.parse().map_or(Segment::AnyItem, Segment::Item));
                at += 3;
            }
            Some(
                [
                    Token::Mark('['),
                    Token::Name("count"),
                    Token::Mark('.'),
                    Token::Name("index"),
                    Token::Mark(']'),
                    ..,
                ],
            ) => {
                path.push(Segment::SameItem);
                // The brackets are looked at once more: they use `count`.
                return (with_fields_after(path, tokens, at + 5), at + 1);
            }
            Some([Token::Mark('['), ..]) => {
                path.push(Segment::AnyItem);
                return (path, at + 1);
            }
            _ => return (path, at),
        }
    }
}

/// Adds the fields after `[count.index]`.
fn with_fields_after(mut path: Vec<Segment>, tokens: &[Token<'_>], mut at: usize) -> Vec<Segment> {
    while let Some([Token::Mark('.'), Token::Name(field), ..]) = tokens.get(at..) {
        path.push(Segment::Field((*field).to_owned()));
        at += 2;
    }
    path
}

fn tokens(code: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut rest = code.trim_start();
    while let Some(first) = rest.chars().next() {
        let name = |c: char| c.is_alphanumeric() || c == '_';
        let length = match first {
            '"' | '\'' => {
                let (length, plain) = text(rest, first);
                tokens.push(Token::Text(plain));
                length
            }
            c if c.is_ascii_digit() => {
                let length = rest.find(|c: char| !name(c)).unwrap_or(rest.len());
                tokens.push(Token::Number(&rest[..length]));
                length
            }
            c if name(c) => {
                let length = rest.find(|c: char| !name(c)).unwrap_or(rest.len());
                tokens.push(Token::Name(&rest[..length]));
                length
            }
            c => {
                tokens.push(Token::Mark(c));
                c.len_utf8()
            }
        };
        rest = rest[length..].trim_start();
    }
    tokens
}

/// The length of a quoted text, and the text if it has no escapes.
fn text(code: &str, quote: char) -> (usize, Option<&str>) {
    let mut escaped = false;
    let mut has_escapes = false;
    for (at, c) in code.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => (escaped, has_escapes) = (true, true),
            c if c == quote => return (at + 1, (!has_escapes).then(|| &code[1..at])),
            _ => {}
        }
    }
    (code.len(), None)
}
