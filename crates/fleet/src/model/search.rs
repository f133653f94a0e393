//! The search language of lists: `name like 'a%' and (status = ready or region in (x, y))`.
//! The result is a tree that the index evaluates, never SQL.

use crate::model::error_code::ErrorCode;
use kernel::Result;

/// Searchable columns. The name is the last: the index stores it apart from the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Column {
    Region,
    CloudProvider,
    Status,
    Owner,
    ClusterId,
    InstanceType,
    Name,
}

const COLUMNS: [(&str, Column); 7] = [
    ("region", Column::Region),
    ("name", Column::Name),
    ("cloud_provider", Column::CloudProvider),
    ("status", Column::Status),
    ("owner", Column::Owner),
    ("cluster_id", Column::ClusterId),
    ("instance_type", Column::InstanceType),
];

/// The most AND, OR and NOT of a search.
const JOINS_MAX: usize = 10;
/// The deepest nesting of parentheses: bounds the parser's recursion.
const DEPTH_MAX: usize = 32;
const LENGTH_MAX: usize = 4_096;

#[derive(Debug, Clone, PartialEq)]
pub enum Filter {
    Is(Column, Condition),
    And(Box<Filter>, Box<Filter>),
    Or(Box<Filter>, Box<Filter>),
}

/// A condition on a value.
#[derive(Debug, Clone, PartialEq)]
pub struct Condition {
    negated: bool,
    test: Test,
}

#[derive(Debug, Clone, PartialEq)]
enum Test {
    Like(Pattern),
    /// `=` and `<>` have one value.
    In(Vec<String>),
}

impl Condition {
    pub fn holds(&self, text: &str) -> bool {
        let holds = match &self.test {
            Test::Like(pattern) => pattern.matches(text),
            Test::In(wants) => wants.iter().any(|want| want == text),
        };
        holds != self.negated
    }
}

/// `%` is any text, `_` one character, `\` escapes.
#[derive(Debug, Clone, PartialEq)]
pub struct Pattern {
    parts: Vec<Piece>,
    ignore_case: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Piece {
    Char(char),
    One,
    Any,
}

impl Pattern {
    fn new(text: &str, ignore_case: bool) -> Pattern {
        let mut parts = Vec::new();
        let mut chars = text.chars();
        while let Some(c) = chars.next() {
            match c {
                '%' if parts.last() == Some(&Piece::Any) => {}
                '%' => parts.push(Piece::Any),
                '_' => parts.push(Piece::One),
                '\\' => parts.extend(chars.next().map(Piece::Char)),
                c if ignore_case => parts.extend(c.to_lowercase().map(Piece::Char)),
                c => parts.push(Piece::Char(c)),
            }
        }
        Pattern { parts, ignore_case }
    }

    fn matches(&self, text: &str) -> bool {
        if self.ignore_case && !text.is_ascii() {
            return self.matches_exactly(&text.to_lowercase());
        }
        self.matches_exactly(text)
    }

    fn same(&self, c: char, found: char) -> bool {
        c == if self.ignore_case { found.to_ascii_lowercase() } else { found }
    }

    fn matches_exactly(&self, text: &str) -> bool {
        // Backtracks only to the last `%`, so the cost is at most the product of both lengths.
        let (mut rest, mut p) = (text.chars(), 0);
        let mut back: Option<(usize, std::str::Chars<'_>)> = None;
        loop {
            let here = rest.clone();
            let Some(found) = rest.next() else { break };
            match self.parts.get(p) {
                Some(Piece::Any) => {
                    rest = here.clone();
                    back = Some((p, here));
                    p += 1;
                }
                Some(Piece::One) => p += 1,
                Some(Piece::Char(c)) if self.same(*c, found) => p += 1,
                _ => match &mut back {
                    Some((any, from)) => {
                        from.next();
                        rest = from.clone();
                        p = *any + 1;
                    }
                    None => return false,
                },
            }
        }
        self.parts[p..].iter().all(|piece| *piece == Piece::Any)
    }
}

impl Filter {
    pub fn parse(text: &str) -> Result<Filter> {
        if text.len() > LENGTH_MAX {
            return Err(ErrorCode::Search.error(format!(
                "[{LENGTH_MAX}] error parsing the filter: longer than {LENGTH_MAX} characters"
            )));
        }
        let tokens = scan(text)?;
        let mut parser = Parser { tokens, at: 0, end: text.chars().count() + 1, joins: 0 };
        let filter = parser.any(0)?;
        match parser.tokens.get(parser.at) {
            None => Ok(filter),
            Some(token) => Err(unexpected(token)),
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
struct Token {
    /// Counted in characters, from 1.
    position: usize,
    what: Symbol,
}

#[derive(Debug, Clone, PartialEq)]
enum Symbol {
    Open,
    Close,
    Comma,
    Equal,
    Unequal,
    Word(String),
    Quoted(String),
}

impl Token {
    /// Whether it is this word, in any case.
    fn is_word(&self, word: &str) -> bool {
        matches!(&self.what, Symbol::Word(found) if found.eq_ignore_ascii_case(word))
    }
}

fn error_at(position: usize, why: impl std::fmt::Display) -> kernel::Error {
    ErrorCode::Search.error(format!("[{position}] error parsing the filter: {why}"))
}

fn unexpected(token: &Token) -> kernel::Error {
    let text = match &token.what {
        Symbol::Open => "(",
        Symbol::Close => ")",
        Symbol::Comma => ",",
        Symbol::Equal => "=",
        Symbol::Unequal => "<>",
        Symbol::Word(word) => word,
        Symbol::Quoted(text) => text,
    };
    error_at(token.position, format!("unexpected token `{text}`"))
}

fn scan(text: &str) -> Result<Vec<Token>> {
    let mut tokens = Vec::new();
    let mut chars = text.chars().zip(1..).peekable();
    while let Some((c, position)) = chars.next() {
        let what = match c {
            c if c.is_whitespace() => continue,
            '(' => Symbol::Open,
            ')' => Symbol::Close,
            ',' => Symbol::Comma,
            '=' => Symbol::Equal,
            '<' if chars.next_if(|(c, _)| *c == '>').is_some() => Symbol::Unequal,
            '<' | '>' | '!' | ';' | '"' | '`' => {
                return Err(error_at(position, format!("unexpected token `{c}`")));
            }
            '\'' => {
                let mut quoted = String::new();
                loop {
                    match chars.next() {
                        Some(('\'', _)) => break,
                        Some(('\\', _)) => match chars.next() {
                            Some(('\'', _)) => quoted.push('\''),
                            Some((c, _)) => quoted.extend(['\\', c]),
                            None => return Err(error_at(position, "the quote has no end")),
                        },
                        Some((c, _)) => quoted.push(c),
                        None => return Err(error_at(position, "the quote has no end")),
                    }
                }
                Symbol::Quoted(quoted)
            }
            first => {
                let mut word = String::from(first);
                while let Some((c, _)) =
                    chars.next_if(|(c, _)| !c.is_whitespace() && !"(),=<>'!;\"`".contains(*c))
                {
                    word.push(c);
                }
                Symbol::Word(word)
            }
        };
        tokens.push(Token { position, what });
    }
    Ok(tokens)
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
    end: usize,
    joins: usize,
}

impl Parser {
    fn next(&mut self) -> Result<Token> {
        let token = self.tokens.get(self.at).cloned();
        self.at += 1;
        token.ok_or_else(|| {
            error_at(self.end, "the search ends where more was expected, such as name = demo")
        })
    }

    /// Consumes the next token if it is this word, in any case.
    fn keyword(&mut self, word: &str) -> bool {
        let is_next = self.tokens.get(self.at).is_some_and(|token| token.is_word(word));
        self.at += usize::from(is_next);
        is_next
    }

    fn join(&mut self) -> Result<()> {
        self.joins += 1;
        let position = self.tokens.get(self.at - 1).map_or(self.end, |token| token.position);
        if self.joins > JOINS_MAX {
            let why = format!("maximum number of permitted joins ({JOINS_MAX}) exceeded");
            return Err(error_at(position, why));
        }
        Ok(())
    }

    fn any(&mut self, depth: usize) -> Result<Filter> {
        let mut filter = self.all(depth)?;
        while self.keyword("or") {
            self.join()?;
            filter = Filter::Or(Box::new(filter), Box::new(self.all(depth)?));
        }
        Ok(filter)
    }

    fn all(&mut self, depth: usize) -> Result<Filter> {
        let mut filter = self.one(depth)?;
        while self.keyword("and") {
            self.join()?;
            filter = Filter::And(Box::new(filter), Box::new(self.one(depth)?));
        }
        Ok(filter)
    }

    fn one(&mut self, depth: usize) -> Result<Filter> {
        let token = self.next()?;
        let name = match &token.what {
            Symbol::Open if depth < DEPTH_MAX => {
                let filter = self.any(depth + 1)?;
                let close = self.next()?;
                let is_closed = close.what == Symbol::Close;
                return if is_closed { Ok(filter) } else { Err(unexpected(&close)) };
            }
            Symbol::Open => return Err(error_at(token.position, "too many parentheses")),
            Symbol::Word(name) => name,
            _ => return Err(unexpected(&token)),
        };
        let column = COLUMNS.iter().find(|(column, _)| column.eq_ignore_ascii_case(name));
        let Some((_, column)) = column else {
            let names = COLUMNS.map(|(name, _)| name).join(" ");
            let why = format!("invalid column name: '{name}', valid values are: [{names}]");
            return Err(error_at(token.position, why));
        };
        Ok(Filter::Is(*column, self.condition()?))
    }

    fn condition(&mut self) -> Result<Condition> {
        let mut operator = self.next()?;
        let mut negated = operator.what == Symbol::Unequal;
        if negated || operator.what == Symbol::Equal {
            return Ok(Condition { negated, test: Test::In(vec![self.value()?]) });
        }
        if operator.is_word("not") {
            negated = true;
            self.join()?;
            operator = self.next()?;
        }
        let test = if operator.is_word("in") {
            Test::In(self.values()?)
        } else if operator.is_word("like") || operator.is_word("ilike") {
            Test::Like(Pattern::new(&self.value()?, operator.is_word("ilike")))
        } else {
            return Err(unexpected(&operator));
        };
        Ok(Condition { negated, test })
    }

    fn value(&mut self) -> Result<String> {
        let token = self.next()?;
        match token.what {
            Symbol::Word(text) | Symbol::Quoted(text) => Ok(text),
            _ => Err(unexpected(&token)),
        }
    }

    fn values(&mut self) -> Result<Vec<String>> {
        let open = self.next()?;
        if open.what != Symbol::Open {
            return Err(unexpected(&open));
        }
        let mut values = vec![self.value()?];
        loop {
            let token = self.next()?;
            match token.what {
                Symbol::Comma => values.push(self.value()?),
                Symbol::Close => return Ok(values),
                _ => return Err(unexpected(&token)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn finds(search: &str) -> bool {
        let value = |column| match column {
            Column::Name => "demo-1",
            Column::Status => "ready",
            Column::Owner => "o'brien",
            Column::Region => "us-east-1",
            _ => "",
        };
        holds(&Filter::parse(search).unwrap(), &value)
    }

    fn holds(filter: &Filter, value: &dyn Fn(Column) -> &'static str) -> bool {
        match filter {
            Filter::Is(column, test) => test.holds(value(*column)),
            Filter::And(a, b) => holds(a, value) && holds(b, value),
            Filter::Or(a, b) => holds(a, value) || holds(b, value),
        }
    }

    fn why(search: &str) -> String {
        Filter::parse(search).unwrap_err().to_string()
    }

    #[test]
    fn a_search_finds_what_it_describes() {
        for yes in [
            "name = demo-1",
            "NAME like 'demo%'",
            "name ilike DEMO-_",
            "name <> x and status in (ready, 'failed')",
            "name = x or (status = ready and region not in (a,b))",
            "owner = 'o\\'brien'",
            "name = x and status = ready or region = us-east-1",
            "name not like 'x%'",
        ] {
            assert!(finds(yes), "{yes}");
        }
        for no in ["name = demo", "name like 'emo%'", "status not in (ready)", "name like DEMO%"] {
            assert!(!finds(no), "{no}");
        }
    }

    #[test]
    fn an_error_names_its_position() {
        let table = [
            (
                "nope = x",
                "[1] error parsing the filter: invalid column name: 'nope', valid values are: [region name cloud_provider status owner cluster_id instance_type]",
            ),
            ("name > x", "[6] error parsing the filter: unexpected token `>`"),
            ("name = a b", "[10] error parsing the filter: unexpected token `b`"),
            (
                "(name = a",
                "[10] error parsing the filter: the search ends where more was expected, such as name = demo",
            ),
            ("name = 'a", "[8] error parsing the filter: the quote has no end"),
            ("name in ()", "[10] error parsing the filter: unexpected token `)`"),
        ];
        for (search, expected) in table {
            assert_eq!(why(search), expected, "{search}");
        }
        let many = ["name = a"; 12].join(" or ");
        assert_eq!(
            why(&many),
            "[130] error parsing the filter: maximum number of permitted joins (10) exceeded"
        );
        assert!(why(&"(".repeat(50)).contains("too many parentheses"));
    }

    proptest! {
        #[test]
        fn no_input_panics(text in "\\PC{0,80}") {
            let _ = Filter::parse(&text);
        }

        #[test]
        fn a_pattern_agrees_with_its_meaning(pattern in "[ab%_]{0,6}", text in "[ab]{0,6}") {
            fn means(p: &[u8], t: &[u8]) -> bool {
                match p.first() {
                    None => t.is_empty(),
                    Some(b'%') => (0..=t.len()).any(|n| means(&p[1..], &t[n..])),
                    Some(b'_') => !t.is_empty() && means(&p[1..], &t[1..]),
                    Some(c) => t.first() == Some(c) && means(&p[1..], &t[1..]),
                }
            }
            let expected = means(pattern.as_bytes(), text.as_bytes());
            prop_assert_eq!(Pattern::new(&pattern, false).matches(&text), expected);
        }
    }
}
