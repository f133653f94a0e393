//! Splits a text into what stands as it is and the code between `{{` and `}}`.

#[derive(Debug, PartialEq, Eq)]
pub enum Piece {
    Text(String),
    Code(String),
}

/// What is wrong, and what would be right.
pub type Fault = (String, String);

/// A longer expression belongs into the program that is configured.
pub const CODE_BYTES_MAX: usize = 1024;

pub fn split(text: &str) -> Result<Vec<Piece>, Fault> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some(begin) = rest.find("{{") {
        push_text(&mut pieces, &rest[..begin])?;
        let code = &rest[begin + 2..];
        let end = end_of_code(code)
            .ok_or_else(|| ("`{{` is not closed".to_owned(), "end it with `}}`".to_owned()))?;
        let source = code[..end].trim();
        // Jinja's way to remove blanks around an expression means nothing in a value.
        if source.starts_with('-') && source[1..].starts_with(' ') {
            return Err(("`{{-` is not supported".into(), "write `{{`".into()));
        }
        if source.is_empty() {
            return Err((
                "an expression is empty".into(),
                "write one between `{{` and `}}`".into(),
            ));
        }
        if source.len() > CODE_BYTES_MAX {
            let right = format!("{CODE_BYTES_MAX} are allowed");
            return Err((format!("an expression has {} bytes", source.len()), right));
        }
        pieces.push(Piece::Code(source.to_owned()));
        rest = &code[end + 2..];
    }
    push_text(&mut pieces, rest)?;
    Ok(pieces)
}

fn push_text(pieces: &mut Vec<Piece>, text: &str) -> Result<(), Fault> {
    if text.contains("{%") {
        let right = "write `{{ a if condition else b }}`, or `{{ \"{%\" }}` for the two characters";
        return Err(("statements (`{%`) are not supported".into(), right.into()));
    }
    if !text.is_empty() {
        pieces.push(Piece::Text(text.to_owned()));
    }
    Ok(())
}

/// Where `}}` is that belongs to no text and closes no mapping within the code.
fn end_of_code(code: &str) -> Option<usize> {
    let bytes = code.as_bytes();
    let mut depth = 0_usize;
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            quote @ (b'"' | b'\'') => {
                at += 1;
                while at < bytes.len() && bytes[at] != quote {
                    at += if bytes[at] == b'\\' { 2 } else { 1 };
                }
            }
            b'{' => depth += 1,
            b'}' if depth > 0 => depth -= 1,
            b'}' if bytes.get(at + 1) == Some(&b'}') => return Some(at),
            _ => {}
        }
        at += 1;
    }
    None
}
