//! The tokens of an answer: strings, names of members, and whole samples.
//!
//! Each function reads one token at the beginning of what has come so far. It says how many bytes the
//! token has, or that more must come, or what is wrong with it.

use std::borrow::Cow;

use super::number;

/// Something that JSON, or an answer of Prometheus, cannot have at this place.
#[derive(Debug, PartialEq)]
pub(super) struct Fault {
    /// Where it is in what was passed.
    pub at: usize,
    pub expected: &'static str,
}

/// A token and its length, or none if it does not end in what has come.
pub(super) type Token<T> = Result<Option<(T, usize)>, Fault>;

pub(super) fn fault<T>(at: usize, expected: &'static str) -> Result<T, Fault> {
    Err(Fault { at, expected })
}

pub(super) fn whitespace(input: &[u8]) -> usize {
    input.iter().take_while(|byte| matches!(byte, b' ' | b'\n' | b'\r' | b'\t')).count()
}

/// `{`, `[`, `:` and the like, after whitespace.
pub(super) fn mark(input: &[u8], mark: u8, expected: &'static str) -> Token<()> {
    let at = whitespace(input);
    match input.get(at) {
        None => Ok(None),
        Some(found) if *found == mark => Ok(Some(((), at + 1))),
        Some(_) => fault(at, expected),
    }
}

/// Whether the next token is `null`.
pub(super) fn null(input: &[u8]) -> Token<bool> {
    if input.first() != Some(&b'n') {
        return Ok(Some((false, 0)));
    }
    match input.first_chunk::<4>() {
        None => Ok(None),
        Some(b"null") => Ok(Some((true, 4))),
        Some(_) => fault(0, "null"),
    }
}

/// A string of at most `bytes_max` bytes.
pub(super) fn string(input: &[u8], bytes_max: usize) -> Token<Cow<'_, str>> {
    match input.first() {
        None => return Ok(None),
        Some(b'"') => {}
        Some(_) => return fault(0, "a string"),
    }
    let mut escaped = false;
    let mut at = 1;
    loop {
        match input.get(at) {
            _ if at > bytes_max + 1 => return fault(at, "a shorter string"),
            None => return Ok(None),
            Some(b'"') => break,
            Some(b'\\') => {
                escaped = true;
                at += 2;
            }
            Some(0..0x20) => return fault(at, "a string without control characters"),
            Some(_) => at += 1,
        }
    }
    let raw = std::str::from_utf8(&input[1..at])
        .or_else(|error| fault(1 + error.valid_up_to(), "UTF-8"))?;
    let text = if escaped { Cow::Owned(unescape(raw)?) } else { Cow::Borrowed(raw) };
    Ok(Some((text, at + 1)))
}

fn unescape(raw: &str) -> Result<String, Fault> {
    const EXPECTED: &str = "an escape sequence of JSON";
    let mut text = String::with_capacity(raw.len());
    let mut rest = raw;
    let bad = |rest: &str| Fault { at: raw.len() - rest.len(), expected: EXPECTED };
    while let Some((before, after)) = rest.split_once('\\') {
        text.push_str(before);
        let plain = match after.as_bytes().first() {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                let (c, bytes) = unicode(after).ok_or_else(|| bad(after))?;
                text.push(c);
                rest = &after[bytes..];
                continue;
            }
            _ => return Err(bad(after)),
        };
        text.push(plain);
        rest = &after[1..];
    }
    text.push_str(rest);
    Ok(text)
}

/// The character of `u1234`, or of a pair of surrogates, and how many bytes say it.
fn unicode(text: &str) -> Option<(char, usize)> {
    let unit = |at: usize| {
        let digits = text.get(at..at + 4).filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()))?;
        u32::from_str_radix(digits, 16).ok()
    };
    let first = unit(1)?;
    if let Some(c) = char::from_u32(first) {
        return Some((c, 5));
    }
    let second = text.get(5..7).filter(|mark| *mark == "\\u").and_then(|_| unit(7))?;
    let pair = (0xd800..0xdc00).contains(&first) && (0xdc00..0xe000).contains(&second);
    let code = pair.then(|| 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00))?;
    Some((char::from_u32(code)?, 11))
}

/// The name of a member and its colon.
pub(super) fn name(input: &[u8], bytes_max: usize) -> Token<Cow<'_, str>> {
    let Some((name, used)) = string(input, bytes_max)? else { return Ok(None) };
    let after = at(used, mark(&input[used..], b':', "a colon"))?;
    Ok(after.map(|((), more)| (name, used + more)))
}

/// A sample, `[1793477232.5,"0.25"]`: milliseconds and a value.
pub(super) fn sample(input: &[u8]) -> Token<(i64, f64)> {
    /// More than any number has; a longer one is not waited for.
    const BYTES_MAX: usize = 400;
    let Some(((), mut used)) = mark(input, b'[', "a sample")? else { return Ok(None) };
    let Some((time, more)) = at(used, time(&input[used..], BYTES_MAX))? else { return Ok(None) };
    used += more;
    let comma = at(used, mark(&input[used..], b',', "a comma"))?;
    let Some(((), more)) = comma else { return Ok(None) };
    used += more;
    used += whitespace(&input[used..]);
    let value = at(used, string(&input[used..], BYTES_MAX))?;
    let Some((text, more)) = value else { return Ok(None) };
    let Some(value) = number::parse(&text) else { return fault(used, "a number in a string") };
    used += more;
    let end = at(used, mark(&input[used..], b']', "the end of a sample"))?;
    Ok(end.map(|((), more)| ((time, value), used + more)))
}

/// Seconds with a fraction, as milliseconds.
fn time(input: &[u8], bytes_max: usize) -> Token<i64> {
    let start = whitespace(input);
    let digits = |byte: &&u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
    let length = input[start..].iter().take_while(digits).count();
    if length > bytes_max {
        return fault(start, "a shorter number");
    }
    if start + length == input.len() {
        return Ok(None);
    }
    let text = std::str::from_utf8(&input[start..start + length]).unwrap_or_default();
    match text.parse::<f64>() {
        // Of i64's milliseconds, no more than an f64 counts exactly: 285,000 years.
        Ok(seconds) if seconds.abs() < 9e12 => {
            Ok(Some(((seconds * 1000.0).round() as i64, start + length)))
        }
        _ => fault(start, "seconds since 1970"),
    }
}

/// Samples of the usual form, `[1793477232,"0.25"],` one after another, as many as have come whole.
/// Returns how many bytes they have. All else is left to `sample`.
pub(super) fn samples(input: &[u8], times: &mut Vec<i64>, values: &mut Vec<f64>) -> usize {
    let mut used = 0;
    while let Some(window) = input.get(used..).and_then(<[u8]>::first_chunk::<64>) {
        let Some((time, value, bytes)) = usual_sample(window) else { break };
        times.push(time);
        values.push(value);
        used += bytes;
    }
    used
}

/// A sample of ten digits of seconds, up to three of a fraction, a plain decimal, and a comma.
#[inline(always)]
fn usual_sample(window: &[u8; 64]) -> Option<(i64, f64, usize)> {
    let [b'[', eight @ ..] = window.first_chunk::<9>()? else { return None };
    let mut seconds = number::eight_digits(u64::from_le_bytes(*eight))?;
    let two = [window[9].wrapping_sub(b'0'), window[10].wrapping_sub(b'0')];
    if two[0] > 9 || two[1] > 9 {
        return None;
    }
    seconds = seconds * 100 + u64::from(two[0]) * 10 + u64::from(two[1]);
    let mut time = seconds as i64 * 1000;
    let mut at = 11;
    if window[at] == b'.' {
        at += 1;
        for unit in [100, 10, 1] {
            let digit = window[at].wrapping_sub(b'0');
            if digit > 9 {
                break;
            }
            time += i64::from(digit) * unit;
            at += 1;
        }
    }
    if window[at] != b',' || window[at + 1] != b'"' {
        return None;
    }
    at += 2;
    let (value, bytes) = number::decimal(&window[at..])?;
    at += bytes;
    let end = window.get(at..at + 3)?;
    (end == b"\"],").then_some((time, value, at + 3))
}

/// Moves the place of a fault by what was read before.
fn at<T>(used: usize, token: Token<T>) -> Token<T> {
    token.map_err(|fault| Fault { at: used + fault.at, ..fault })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(json: &str) -> Result<Option<String>, Fault> {
        string(json.as_bytes(), 100).map(|token| token.map(|(text, _)| text.into_owned()))
    }

    #[test]
    fn strings_are_unescaped_as_serde_json_does() {
        for json in [
            r#""plain""#,
            r#""a\"b\\c\/d\b\f\n\r\t""#,
            r#""\u003ca\u003e\u00e9""#,
            r#""\ud83d\ude00!""#,
            "\"é\u{7f}😀\"",
            r#""""#,
            r#""\ud83d""#,
            r#""\ud83d\u0041""#,
            r#""\ude00""#,
            r#""\u12""#,
            r#""\x""#,
            "\"a\nb\"",
            r#""\u+123""#,
        ] {
            let right: Option<String> = serde_json::from_str(json).ok();
            assert_eq!(text(json).ok().flatten(), right, "{json}");
        }
        assert!(string(b"\"\xff\"", 100).is_err());
        assert_eq!(text(r#""abc"#), Ok(None));
        assert_eq!(text(r#""abc\"#), Ok(None));
        assert!(string(&[b'"'; 1], 3).is_ok_and(|token| token.is_none()));
        assert!(string(b"\"abcdef", 3).is_err());
    }

    #[test]
    fn a_sample_may_have_any_form_that_json_has() {
        for (json, time, value) in [
            (r#"[1793477232,"1"]"#, 1_793_477_232_000, 1.0),
            (" [ 1794773245.6 , \"1e-07\" ] ", 1_794_773_245_600, 1e-7),
            (r#"[1.5e3,"-Inf"]"#, 1_500_000, f64::NEG_INFINITY),
            (r#"[-1,"+Inf"]"#, -1000, f64::INFINITY),
            (r#"[0.0005,"\u0031"]"#, 1, 1.0),
        ] {
            let ((at, read), _) = sample(json.as_bytes()).unwrap().unwrap();
            assert_eq!((at, read), (time, value), "{json}");
            for end in 0..json.trim_end().len() {
                assert_eq!(sample(&json.as_bytes()[..end]), Ok(None), "{json} until {end}");
            }
        }
        for json in [
            r#"[1,2]"#,
            r#"["1","2"]"#,
            r#"[1,"x"]"#,
            r#"[1,"nan"]"#,
            r#"[1,"1",2]"#,
            r#"[1e99,"1"]"#,
            r#"{}"#,
            r#"[,""]"#,
        ] {
            assert!(sample(json.as_bytes()).is_err(), "{json}");
        }
    }

    #[test]
    fn the_fast_path_stops_before_what_it_does_not_know() {
        let long = " ".repeat(64);
        let read = |json: &str| {
            let (mut times, mut values) = (Vec::new(), Vec::new());
            let used = samples(format!("{json}{long}").as_bytes(), &mut times, &mut values);
            (used, times, values)
        };
        let usual = r#"[1793477232,"0.25"],[1793478132.123,"-3"],"#;
        let (used, times, values) = read(&format!("{usual}[1793479032,\"NaN\"],"));
        assert_eq!((used, values), (usual.len(), vec![0.25, -3.0]));
        assert_eq!(times, [1_793_477_232_000, 1_793_478_132_123]);
        for other in [
            r#"[1793477232,"1e5"],"#,
            r#"[179347723,"1"],"#,
            r#"[1793477232, "1"],"#,
            r#"[1793477232,"1"]]"#,
            r#"[1793477232.1234,"1"],"#,
        ] {
            assert_eq!(read(other).0, 0, "{other}");
        }
    }
}
