//! Reads an answer of Prometheus as it streams in, straight into columns of times and values.
//!
//! A [`Scanner`] is fed chunks of any size. It keeps the end of a chunk only where a token is cut, so
//! memory is that of the columns. Members may come in any order and unknown ones are skipped, which
//! is what Thanos, Mimir and newer versions need.

mod answer;
mod number;
mod token;

pub use answer::{Answer, Labels, Limits, ScanError};

use answer::Columns;
use token::{Fault, Token, fault};

/// What a token may have besides its text, such as whitespace around a comma.
const AROUND_BYTES_MAX: usize = 1024;

/// Where the scanner is in the document. Every state begins between two tokens, except `Skip`.
#[derive(Debug, Clone, Copy, PartialEq)]
enum State {
    Start,
    /// Before a name or the end of an object.
    Member {
        of: Level,
        first: bool,
    },
    /// After the name of a member and its colon.
    Value(Member),
    /// Before an element or the end of a list.
    Element {
        of: List,
        first: bool,
    },
    Skip {
        of: Level,
        skip: Skip,
    },
    End,
    /// After an error, which every later call repeats.
    Failed,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Level {
    Answer,
    Data,
    Series,
    Labels,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum List {
    Series,
    Samples,
    Warnings,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Member {
    Data,
    Result,
    Labels,
    /// The value of the label whose name was read last.
    Label,
    Samples,
    Sample,
    Warnings,
    Text(Text),
    Other(Level),
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Text {
    Status,
    ErrorType,
    Error,
    ResultType,
}

/// A value that nothing asks for. It ends before a comma or bracket of the object that it is in.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Skip {
    depth: u32,
    in_string: bool,
    escaped: bool,
}

#[derive(Debug)]
pub struct Scanner {
    state: State,
    limits: Limits,
    /// Bytes before those that are still to be read.
    offset: u64,
    /// The beginning of a token of which the rest has not come.
    cut: Vec<u8>,
    columns: Columns,
    error: Option<ScanError>,
}

impl Scanner {
    pub fn new(limits: Limits) -> Self {
        Self {
            state: State::Start,
            limits,
            offset: 0,
            cut: Vec::new(),
            columns: Columns::default(),
            error: None,
        }
    }

    /// Reads the next bytes. After an error nothing more is read.
    pub fn feed(&mut self, chunk: &[u8]) -> Result<(), ScanError> {
        if self.cut.is_empty() {
            let used = self.run(chunk)?;
            self.cut.extend_from_slice(&chunk[used..]);
        } else {
            let mut input = std::mem::take(&mut self.cut);
            input.extend_from_slice(chunk);
            let used = self.run(&input)?;
            input.drain(..used);
            self.cut = input;
        }
        Ok(())
    }

    /// What was read, if the answer is complete and one of success.
    pub fn finish(self) -> Result<Answer, ScanError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        if self.state != State::End {
            return Err(ScanError::Truncated { bytes: self.offset + self.cut.len() as u64 });
        }
        self.columns.finish()
    }

    fn run(&mut self, input: &[u8]) -> Result<usize, ScanError> {
        let mut used = 0;
        loop {
            used += token::whitespace(&input[used..]);
            if used == input.len() {
                break;
            }
            match self.step(&input[used..]) {
                Ok(Some(more)) => used += more,
                // What is kept is read again with each chunk, so it must be little.
                Ok(None) if input.len() - used > self.limits.text_bytes_max + AROUND_BYTES_MAX => {
                    let fault = Fault { at: 0, expected: "less whitespace" };
                    return Err(self.fail(fault.into(), used));
                }
                Ok(None) => break,
                Err(error) => return Err(self.fail(error, used)),
            }
        }
        self.offset += used as u64;
        Ok(used)
    }

    fn fail(&mut self, error: StepError, used: usize) -> ScanError {
        let error = error.at(self.offset + used as u64);
        self.state = State::Failed;
        self.error = Some(error.clone());
        error
    }

    /// Reads one token, and says how long it was.
    fn step(&mut self, input: &[u8]) -> Result<Option<usize>, StepError> {
        match self.state {
            State::Start => {
                self.open(input, b'{', State::Member { of: Level::Answer, first: true })
            }
            State::Member { of, first } => self.member(input, of, first),
            State::Value(member) => self.value(input, member),
            State::Element { of, first } => self.element(input, of, first),
            State::Skip { of, skip } => Ok(Some(self.skip(input, of, skip))),
            State::End => Ok(fault(0, "nothing after the answer")?),
            State::Failed => Err(StepError::Scan(self.error.clone().expect("it was kept"))),
        }
    }

    fn open(&mut self, input: &[u8], mark: u8, then: State) -> Result<Option<usize>, StepError> {
        let expected = if mark == b'{' { "an object" } else { "a list" };
        let opened = token::mark(input, mark, expected)?;
        Ok(opened.map(|((), used)| {
            self.state = then;
            used
        }))
    }

    fn member(&mut self, input: &[u8], of: Level, first: bool) -> Result<Option<usize>, StepError> {
        let mut used = 0;
        match input[0] {
            b'}' => {
                self.close(of)?;
                return Ok(Some(1));
            }
            b',' if !first => {
                used = 1 + token::whitespace(&input[1..]);
            }
            b'"' if first => {}
            _ => fault(0, "a member or the end of an object")?,
        }
        let name = token::name(&input[used..], self.limits.text_bytes_max);
        let Some((name, more)) = moved(used, name)? else { return Ok(None) };
        let member = match (of, &*name) {
            (Level::Answer, "status") => Member::Text(Text::Status),
            (Level::Answer, "data") => Member::Data,
            (Level::Answer, "errorType") => Member::Text(Text::ErrorType),
            (Level::Answer, "error") => Member::Text(Text::Error),
            (Level::Answer, "warnings") => Member::Warnings,
            (Level::Data, "resultType") => Member::Text(Text::ResultType),
            (Level::Data, "result") => Member::Result,
            (Level::Series, "metric") => Member::Labels,
            (Level::Series, "values") => Member::Samples,
            (Level::Series, "value") => Member::Sample,
            (Level::Labels, name) => {
                self.columns.label_name(name);
                Member::Label
            }
            _ => Member::Other(of),
        };
        self.state = State::Value(member);
        Ok(Some(used + more))
    }

    fn close(&mut self, of: Level) -> Result<(), StepError> {
        self.state = match of {
            Level::Answer => State::End,
            Level::Data => State::Member { of: Level::Answer, first: false },
            Level::Series => {
                self.columns.end_series()?;
                State::Element { of: List::Series, first: false }
            }
            Level::Labels => State::Member { of: Level::Series, first: false },
        };
        Ok(())
    }

    fn value(&mut self, input: &[u8], member: Member) -> Result<Option<usize>, StepError> {
        let within = |of| State::Member { of, first: false };
        match member {
            Member::Data | Member::Result | Member::Warnings | Member::Text(_) => {
                // Go writes an empty pointer, list or object as null.
                let of = if member == Member::Result { Level::Data } else { Level::Answer };
                match token::null(input)? {
                    None => return Ok(None),
                    Some((true, used)) => {
                        self.state = within(of);
                        return Ok(Some(used));
                    }
                    Some((false, _)) => {}
                }
            }
            _ => {}
        }
        match member {
            Member::Data => self.open(input, b'{', State::Member { of: Level::Data, first: true }),
            Member::Result => self.result(input),
            Member::Labels => {
                self.columns.begin_labels()?;
                self.open(input, b'{', State::Member { of: Level::Labels, first: true })
            }
            Member::Samples => {
                self.columns.begin_samples()?;
                self.open(input, b'[', State::Element { of: List::Samples, first: true })
            }
            Member::Warnings => {
                self.open(input, b'[', State::Element { of: List::Warnings, first: true })
            }
            Member::Other(_) if matches!(input[0], b',' | b':' | b'}' | b']') => {
                Ok(fault(0, "a value")?)
            }
            Member::Other(of) => {
                self.state = State::Skip { of, skip: Skip::default() };
                Ok(Some(0))
            }
            Member::Label => {
                let Some((text, used)) = token::string(input, self.limits.text_bytes_max)? else {
                    return Ok(None);
                };
                self.columns.label_value(&text, &self.limits)?;
                self.state = within(Level::Labels);
                Ok(Some(used))
            }
            Member::Text(text) => {
                let Some((value, used)) = token::string(input, self.limits.text_bytes_max)? else {
                    return Ok(None);
                };
                self.columns.text(text, value.into_owned());
                let of = if text == Text::ResultType { Level::Data } else { Level::Answer };
                self.state = within(of);
                Ok(Some(used))
            }
            Member::Sample => {
                let Some(((time, value), used)) = token::sample(input)? else { return Ok(None) };
                self.columns.begin_samples()?;
                self.columns.sample(time, value, &self.limits)?;
                self.state = within(Level::Series);
                Ok(Some(used))
            }
        }
    }

    /// A list of series, or the one sample of a scalar.
    fn result(&mut self, input: &[u8]) -> Result<Option<usize>, StepError> {
        let Some(((), used)) = token::mark(input, b'[', "a list")? else { return Ok(None) };
        let first = used + token::whitespace(&input[used..]);
        match input.get(first) {
            None => Ok(None),
            Some(b'{' | b']') => {
                self.columns.begin_result()?;
                self.state = State::Element { of: List::Series, first: true };
                Ok(Some(first))
            }
            Some(_) => {
                let Some(((time, value), used)) = token::sample(input)? else { return Ok(None) };
                self.columns.begin_result()?;
                self.columns.scalar(time, value, &self.limits)?;
                self.state = State::Member { of: Level::Data, first: false };
                Ok(Some(used))
            }
        }
    }

    fn element(&mut self, input: &[u8], of: List, first: bool) -> Result<Option<usize>, StepError> {
        let mut used = 0;
        match input[0] {
            b']' => {
                self.state = match of {
                    List::Series => State::Member { of: Level::Data, first: false },
                    List::Samples => State::Member { of: Level::Series, first: false },
                    List::Warnings => State::Member { of: Level::Answer, first: false },
                };
                return Ok(Some(1));
            }
            b',' if !first => used = 1 + token::whitespace(&input[1..]),
            _ if first => {}
            _ => fault(0, "a comma or the end of a list")?,
        }
        let rest = &input[used..];
        match of {
            List::Series => {
                let Some(((), more)) = moved(used, token::mark(rest, b'{', "a series"))? else {
                    return Ok(None);
                };
                self.columns.begin_series(&self.limits)?;
                self.state = State::Member { of: Level::Series, first: true };
                Ok(Some(used + more))
            }
            List::Samples => {
                // Each sample of the fast path includes the comma after it, so that what follows
                // must be another sample: as after a comma.
                let more = self.columns.usual_samples(rest, &self.limits)?;
                let rest = &rest[more..];
                let Some(((time, value), last)) = moved(used + more, token::sample(rest))? else {
                    self.state = State::Element { of, first: first && more == 0 };
                    return Ok((more > 0).then(|| self.before_comma(used + more)));
                };
                self.columns.sample(time, value, &self.limits)?;
                self.state = State::Element { of, first: false };
                Ok(Some(used + more + last))
            }
            List::Warnings => {
                let text = token::string(rest, self.limits.text_bytes_max);
                let Some((text, more)) = moved(used, text)? else { return Ok(None) };
                self.columns.warning(&text);
                self.state = State::Element { of, first: false };
                Ok(Some(used + more))
            }
        }
    }

    /// Leaves the comma that the fast path has read to the next step, which expects one.
    fn before_comma(&self, used: usize) -> usize {
        used - 1
    }

    fn skip(&mut self, input: &[u8], of: Level, mut skip: Skip) -> usize {
        for (at, byte) in input.iter().enumerate() {
            if skip.in_string {
                match byte {
                    _ if skip.escaped => skip.escaped = false,
                    b'\\' => skip.escaped = true,
                    b'"' => skip.in_string = false,
                    _ => {}
                }
                continue;
            }
            match byte {
                b',' | b'}' | b']' if skip.depth == 0 => {
                    self.state = State::Member { of, first: false };
                    return at;
                }
                b'"' => skip.in_string = true,
                b'{' | b'[' => skip.depth += 1,
                b'}' | b']' => skip.depth -= 1,
                _ => {}
            }
        }
        self.state = State::Skip { of, skip };
        input.len()
    }
}

/// What can go wrong in one step: in the text, or with what it says.
#[derive(Debug)]
enum StepError {
    Fault(Fault),
    Scan(ScanError),
}

impl From<Fault> for StepError {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl From<ScanError> for StepError {
    fn from(error: ScanError) -> Self {
        Self::Scan(error)
    }
}

impl StepError {
    fn at(self, offset: u64) -> ScanError {
        match self {
            Self::Fault(Fault { at, expected }) => {
                ScanError::Malformed { at: offset + at as u64, expected }
            }
            Self::Scan(error) => error,
        }
    }
}

/// Moves the place of a fault by what was read before.
fn moved<T>(used: usize, token: Token<T>) -> Token<T> {
    token.map_err(|fault| Fault { at: used + fault.at, ..fault })
}
