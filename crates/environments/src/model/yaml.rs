//! Reads YAML into JSON, and remembers where each field begins. It reads a subset that means one
//! thing: no aliases, so that no few lines become a billion values, no tags, one document, and no
//! key twice.

use granit_parser::{Event, Parser, ScalarStyle, Span};
use serde_json::{Map, Number, Value};

use super::problem::{Marks, Position, Problem, Problems, join};

/// Larger files come from a program; it can publish several templates.
pub const BYTES_MAX: usize = 1024 * 1024;
pub const VALUES_MAX: usize = 200_000;
pub const DEPTH_MAX: usize = 32;

/// A file as it was read.
#[derive(Debug)]
pub struct Document {
    pub value: Value,
    pub marks: Marks,
}

/// Reads a file. Its problems have their lines, and lack only the name of the file.
pub fn read(text: &str) -> Result<Document, Problems> {
    let mut problems = Problems::default();
    if text.len() > BYTES_MAX {
        problems.add("", format!("has {} bytes", text.len()), format!("{BYTES_MAX} are allowed"));
        return Err(problems);
    }
    let mut options = granit_parser::options! {
        disallow_directives: true,
        flow_nesting_limit: DEPTH_MAX,
        block_nesting_limit: DEPTH_MAX,
    };
    options.set_emit_comments(false);
    let mut reader = Reader::default();
    for event in Parser::new_from_str_with_options(text, options) {
        let stopped = match event {
            Ok((event, span)) => reader.event(event, &span),
            Err(error) => {
                let marker = error.marker();
                let position = position(marker.line(), marker.col());
                Some(problem(position, "", error.kind().to_string(), ""))
            }
        };
        if let Some(problem) = stopped {
            reader.problems.push(problem);
            return Err(reader.problems);
        }
    }
    let Reader { root, marks, problems, .. } = reader;
    problems.unless_any(Document { value: root.unwrap_or(Value::Null), marks })
}

fn position(line: usize, column: usize) -> Position {
    let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    Position { line: number(line), column: number(column + 1) }
}

fn problem(at: Position, field: &str, wrong: impl Into<String>, right: &str) -> Problem {
    Problem {
        file: String::new(),
        position: Some(at),
        field: field.into(),
        wrong: wrong.into(),
        right: right.into(),
    }
}

/// A list or mapping that is not complete.
struct Open {
    path: String,
    value: Container,
}

enum Container {
    List(Vec<Value>),
    /// The fields, and the key whose value comes next.
    Map(Map<String, Value>, Option<String>),
}

#[derive(Default)]
struct Reader {
    open: Vec<Open>,
    root: Option<Value>,
    marks: Marks,
    problems: Problems,
    values: usize,
    documents: usize,
}

impl Reader {
    /// Returns what makes it senseless to read on.
    fn event(&mut self, event: Event<'_>, span: &Span) -> Option<Problem> {
        let at = position(span.start.line(), span.start.col());
        match event {
            Event::DocumentStart(..) => {
                self.documents += 1;
                let second = self.documents == 2;
                second.then(|| problem(at, "", "a second document begins here", "write one a file"))
            }
            Event::Alias(_) | Event::UnresolvedAlias(_) => Some(problem(
                at,
                &self.path_of_next(),
                "aliases are not supported",
                "write it out, or use a group",
            )),
            Event::Scalar(text, style, _, tag) => {
                if tag.is_some() {
                    return Some(self.tagged(span));
                }
                if self.expects_key() {
                    self.key(&text, at);
                    return None;
                }
                let path = self.path_of_next();
                let value = match style {
                    ScalarStyle::Plain => self.plain(&text, at, &path),
                    _ => Value::String(text.into_owned()),
                };
                self.begin(at, &path).or_else(|| {
                    self.add(value);
                    None
                })
            }
            Event::SequenceStart(.., tag) => {
                if tag.is_some() {
                    return Some(self.tagged(span));
                }
                self.enter(at, Container::List(Vec::new()))
            }
            Event::MappingStart(.., tag) => {
                if tag.is_some() {
                    return Some(self.tagged(span));
                }
                self.enter(at, Container::Map(Map::new(), None))
            }
            Event::SequenceEnd | Event::MappingEnd => {
                match self.open.pop()?.value {
                    Container::List(items) => self.add(Value::Array(items)),
                    Container::Map(fields, _) => self.add(Value::Object(fields)),
                }
                None
            }
            _ => None,
        }
    }

    fn tagged(&self, span: &Span) -> Problem {
        let at = span.tag_start().unwrap_or(span.start);
        let at = position(at.line(), at.col());
        problem(at, &self.path_of_next(), "tags are not supported", "quote what is a text")
    }

    /// Counts a value and marks where it begins.
    fn begin(&mut self, at: Position, path: &str) -> Option<Problem> {
        self.values += 1;
        if self.values > VALUES_MAX {
            return Some(problem(at, path, format!("more than {VALUES_MAX} values"), ""));
        }
        // A field begins at its key, which was marked before.
        if !matches!(self.open.last(), Some(Open { value: Container::Map(..), .. })) {
            self.marks.set(path, at);
        }
        None
    }

    fn enter(&mut self, at: Position, value: Container) -> Option<Problem> {
        if self.expects_key() {
            let path = self.path_of_next();
            return Some(problem(at, &path, "a key must be a text", ""));
        }
        if self.open.len() == DEPTH_MAX {
            return Some(problem(at, "", format!("is nested deeper than {DEPTH_MAX}"), ""));
        }
        let path = self.path_of_next();
        let stopped = self.begin(at, &path);
        self.open.push(Open { path, value });
        stopped
    }

    fn expects_key(&self) -> bool {
        matches!(self.open.last(), Some(Open { value: Container::Map(_, None), .. }))
    }

    fn key(&mut self, text: &str, at: Position) {
        let Some(Open { path, value: Container::Map(fields, key) }) = self.open.last_mut() else {
            return;
        };
        let field = join(path, text);
        if fields.contains_key(text) {
            self.problems.push(problem(at, &field, "is written twice", "keep one"));
        }
        self.marks.set(&field, at);
        *key = Some(text.to_owned());
    }

    fn path_of_next(&self) -> String {
        match self.open.last() {
            None => String::new(),
            Some(Open { path, value: Container::List(items) }) => {
                format!("{path}[{}]", items.len())
            }
            Some(Open { path, value: Container::Map(_, key) }) => {
                key.as_ref().map_or_else(|| path.clone(), |key| join(path, key))
            }
        }
    }

    fn add(&mut self, value: Value) {
        match self.open.last_mut() {
            None => self.root = Some(value),
            Some(Open { value: Container::List(items), .. }) => items.push(value),
            Some(Open { value: Container::Map(fields, key), .. }) => {
                let key = key.take().expect("a value of a mapping comes after its key");
                fields.insert(key, value);
            }
        }
    }

    /// A scalar without quotes, by the core schema of YAML 1.2: `no` and `010` are what they look like.
    fn plain(&mut self, text: &str, at: Position, path: &str) -> Value {
        match text {
            "" | "~" | "null" | "Null" | "NULL" => Value::Null,
            "true" | "True" | "TRUE" => Value::Bool(true),
            "false" | "False" | "FALSE" => Value::Bool(false),
            _ => number(text).unwrap_or_else(|| {
                let unfit = matches!(
                    text.trim_start_matches(['+', '-']),
                    ".inf" | ".Inf" | ".nan" | ".NaN"
                ) || text.bytes().all(|b| b.is_ascii_digit());
                if unfit {
                    let wrong = format!("`{text}` does not fit a number");
                    self.problems.push(problem(at, path, wrong, "quote it if it is a text"));
                }
                Value::String(text.to_owned())
            }),
        }
    }
}

fn number(text: &str) -> Option<Value> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if let Some(digits) = text.strip_prefix("0x") {
        return Some(u64::from_str_radix(digits, 16).ok()?.into());
    }
    if let Some(digits) = text.strip_prefix("0o") {
        return Some(u64::from_str_radix(digits, 8).ok()?.into());
    }
    if !unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return None;
    }
    if unsigned.bytes().all(|b| b.is_ascii_digit()) {
        let text = text.strip_prefix('+').unwrap_or(text);
        return text
            .parse::<i64>()
            .map(Value::from)
            .or_else(|_| text.parse::<u64>().map(Value::from))
            .ok();
    }
    let float = |c: char| c.is_ascii_digit() || matches!(c, '.' | 'e' | 'E' | '+' | '-');
    if !unsigned.chars().all(float) {
        return None;
    }
    Number::from_f64(text.parse().ok()?).map(Value::Number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn value(text: &str) -> Value {
        read(text).unwrap().value
    }

    fn wrong(text: &str) -> String {
        read(text).unwrap_err().located("f", &Marks::default()).to_string()
    }

    #[test]
    fn plain_scalars_follow_yaml_1_2() {
        let text = "a: no\nb: 010\nc: 1.5\nd: 0x1F\ne: ~\nf: 'true'\ng: True\nh: 1.2.3\ni: -7\n\
                    j: 2026-01-01\nk: 12e3\nl: |\n  two\n  lines\nm: {x: [1, y]}\nn: -\n8080: x\n";
        assert_eq!(
            value(text.replace("n: -\n", "").as_str()),
            json!({
                "a": "no", "b": 10, "c": 1.5, "d": 31, "e": null, "f": "true", "g": true,
                "h": "1.2.3", "i": -7, "j": "2026-01-01", "k": 12000.0, "l": "two\nlines\n",
                "m": {"x": [1, "y"]}, "8080": "x",
            })
        );
    }

    #[test]
    fn every_field_has_its_line() {
        let document = read("a:\n  b:\n    - 1\n    - c: 2\n").unwrap();
        let at = |path: &str| document.marks.find(path).map(|at| (at.line, at.column));
        assert_eq!(at("a"), Some((1, 1)));
        assert_eq!(at("a.b"), Some((2, 3)));
        assert_eq!(at("a.b[0]"), Some((3, 7)));
        assert_eq!(at("a.b[1].c"), Some((4, 7)));
        // What is missing is reported where it should be.
        assert_eq!(at("a.b[1].x"), Some((4, 7)));
        assert_eq!(at("z"), Some((1, 1)));
    }

    #[test]
    fn what_means_two_things_is_a_problem_with_its_line() {
        assert_eq!(wrong("a: 1\na: 2\nb: 1\nb: 2\n").lines().count(), 2);
        assert_eq!(
            wrong("a: &x 1\nb: *x\n"),
            "f:2:4: b: aliases are not supported; write it out, or use a group"
        );
        assert_eq!(
            wrong("a: !!binary x\n"),
            "f:1:4: a: tags are not supported; quote what is a text"
        );
        assert_eq!(
            wrong("a: 1\n---\nb: 1\n"),
            "f:2:1: a second document begins here; write one a file"
        );
        assert!(wrong("a: [1, 2\nb: 3\n").starts_with("f:"));
        assert!(wrong("? [a]\n: 1\n").contains("a key must be a text"));
        assert!(wrong("a: .inf\n").contains("does not fit"));
        assert!(wrong("%YAML 1.1\n---\na: 1\n").starts_with("f:1:"));
    }

    #[test]
    fn bombs_are_refused_before_they_grow() {
        let laughs = "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n";
        assert!(wrong(laughs).contains("aliases are not supported"));
        assert!(read(&"[".repeat(100_000)).is_err());
        assert!(read(&"- ".repeat(100_000)).is_err());
        assert!(wrong(&"a".repeat(BYTES_MAX + 1)).contains("bytes"));
        let many = format!("[{}]", "1,".repeat(VALUES_MAX + 1));
        assert!(wrong(&many).contains("more than 200000 values"));
        let deep = format!("{}1{}", "[".repeat(DEPTH_MAX), "]".repeat(DEPTH_MAX));
        assert!(read(&deep).is_ok());
        assert!(read(&format!("[{deep}]")).is_err());
    }
}
