//! What is wrong with a template or with parameters: where, what, and what would be right. All of it
//! at once, because a person who fixes one mistake at a time runs the same check many times.

use std::collections::HashMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// A file with more mistakes is of another format; nobody reads on.
pub const PROBLEMS_MAX: usize = 100;

/// A position in a file; both count from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Position {
    pub line: u32,
    pub column: u32,
}

/// One mistake.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub file: String,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub position: Option<Position>,
    /// The path of the field, such as `resources.web.input.ports[0]`; empty for the whole file.
    pub field: String,
    pub wrong: String,
    /// What to write instead; empty if that follows from what is wrong.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub right: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.file.is_empty() {
            write!(f, "{}:", self.file)?;
        }
        if let Some(Position { line, column }) = self.position {
            write!(f, "{line}:{column}:")?;
        }
        if !self.file.is_empty() || self.position.is_some() {
            f.write_str(" ")?;
        }
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.wrong)?;
        if !self.right.is_empty() {
            write!(f, "; {}", self.right)?;
        }
        Ok(())
    }
}

/// All mistakes that were found, in the order of the file once they are located.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Problems(Vec<Problem>);

impl Problems {
    /// Adds one. What is beyond [`PROBLEMS_MAX`] is left out.
    pub fn add(
        &mut self,
        field: impl Into<String>,
        wrong: impl Into<String>,
        right: impl Into<String>,
    ) {
        self.push(Problem {
            file: String::new(),
            position: None,
            field: field.into(),
            wrong: wrong.into(),
            right: right.into(),
        });
    }

    pub fn push(&mut self, problem: Problem) {
        if self.0.len() < PROBLEMS_MAX {
            self.0.push(problem);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.0.iter()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The value, if nothing was wrong.
    pub fn unless_any<T>(self, value: T) -> Result<T, Problems> {
        if self.is_empty() { Ok(value) } else { Err(self) }
    }

    /// Names the file and the lines of the fields, and sorts by them.
    #[must_use]
    pub fn located(mut self, file: &str, marks: &Marks) -> Problems {
        for problem in &mut self.0 {
            problem.file = file.into();
            problem.position = problem.position.or_else(|| marks.find(&problem.field));
        }
        self.0.sort_by_key(|problem| problem.position);
        self
    }
}

impl IntoIterator for Problems {
    type Item = Problem;
    type IntoIter = std::vec::IntoIter<Problem>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.0.iter().enumerate() {
            write!(f, "{}{problem}", if i == 0 { "" } else { "\n" })?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

impl From<Problems> for kernel::Error {
    /// The field is that of the first; the message has all.
    fn from(problems: Problems) -> kernel::Error {
        let field = problems.0.first().map_or("", |first| first.field.as_str());
        let field = if field.is_empty() { "template" } else { field };
        kernel::Error::invalid(field, problems.to_string())
    }
}

/// Where each field of a file begins, by its path.
#[derive(Debug, Clone, Default)]
pub struct Marks(HashMap<String, Position>);

impl Marks {
    pub fn set(&mut self, path: &str, position: Position) {
        self.0.insert(path.into(), position);
    }

    /// Where a field begins, or what it would be in if it is missing.
    pub fn find(&self, path: &str) -> Option<Position> {
        let mut path = path;
        loop {
            if let Some(position) = self.0.get(path) {
                return Some(*position);
            }
            if path.is_empty() {
                return None;
            }
            path = path.rfind(['.', '[']).map_or("", |at| &path[..at]);
        }
    }
}

/// The path of a field of what `path` names; without a field, of that itself.
pub fn join(path: &str, field: &str) -> String {
    match (path, field) {
        ("", only) | (only, "") => only.to_owned(),
        (path, field) => format!("{path}.{field}"),
    }
}

/// The name that was probably meant: a typing mistake or two away.
pub fn closest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let distances =
        known.into_iter().map(|known| (strsim::damerau_levenshtein(name, known), known));
    let (distance, best) = distances.min()?;
    let length = name.chars().count().max(best.chars().count());
    (distance * 3 <= length.max(3)).then_some(best)
}

/// `did you mean x?`, or what there is to choose from.
pub fn suggestion<'a>(name: &str, known: impl IntoIterator<Item = &'a str> + Clone) -> String {
    if let Some(best) = closest(name, known.clone()) {
        return format!("did you mean `{best}`?");
    }
    let mut known: Vec<&str> = known.into_iter().collect();
    known.sort_unstable();
    const SHOWN: usize = 20;
    match known.len() {
        0 => String::new(),
        1..=SHOWN => format!("known are: {}", known.join(", ")),
        all => format!("known are: {}, and {} more", known[..SHOWN].join(", "), all - SHOWN),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_one_line_that_an_editor_can_jump_to() {
        let mut problems = Problems::default();
        problems.add("resources.web.cuont", "unknown field", "did you mean `count`?");
        problems.add("name", "is missing", "");
        let mut marks = Marks::default();
        marks.set("", Position { line: 1, column: 1 });
        marks.set("resources.web.cuont", Position { line: 7, column: 5 });
        let problems = problems.located("shop.yaml", &marks);
        assert_eq!(
            problems.to_string(),
            "shop.yaml:1:1: name: is missing\n\
             shop.yaml:7:5: resources.web.cuont: unknown field; did you mean `count`?"
        );
        let json = serde_json::to_value(&problems).unwrap();
        assert_eq!(json[1]["line"], 7);
        assert_eq!(serde_json::from_value::<Problems>(json).unwrap(), problems);
    }

    #[test]
    fn only_near_names_are_suggested() {
        assert_eq!(closest("exeuctor", ["executor", "count"]), Some("executor"));
        assert_eq!(closest("db", ["cache", "web"]), None);
        assert_eq!(closest("bd", ["db"]), Some("db"));
        assert_eq!(suggestion("x", ["web", "db"]), "known are: db, web");
    }
}
