//! How containers are named in reports. Names come from a data source: nothing in them may steer a
//! terminal, add a line, or turn the direction of text.

use crate::model::inventory::Member;

/// `shop/web/nginx`: namespace, workload, container.
pub fn path(member: &Member) -> String {
    printable(&format!("{}/{}/{}", member.namespace, member.workload, member.container))
}

/// One line, without characters that cannot be seen.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if hidden(c) { '\u{fffd}' } else { c }).collect()
}

/// Whether a character steers instead of showing: controls, directions, zero widths.
pub(super) fn hidden(c: char) -> bool {
    let steers = matches!(c,
        '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}');
    c.is_control() || steers
}

/// A text of at most `width` characters. What is too long loses its middle, because names differ at
/// their ends.
pub(super) fn shortened(text: &str, width: usize) -> String {
    let count = text.chars().count();
    if count <= width {
        return text.to_owned();
    }
    let tail = width.saturating_sub(1).div_ceil(2);
    let head = width.saturating_sub(1) - tail;
    let start = text.chars().take(head);
    start.chain(['…']).chain(text.chars().skip(count - tail)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_steer() {
        assert_eq!(printable("a\x1b[2Jb\u{202e}c\nd"), "a\u{fffd}[2Jb\u{fffd}c\u{fffd}d");
        assert_eq!(printable("über/网"), "über/网");
    }

    #[test]
    fn a_long_name_loses_its_middle() {
        assert_eq!(shortened("abc", 3), "abc");
        assert_eq!(shortened("abcdefgh", 5), "ab…gh");
        assert_eq!(shortened("äöüäöü", 4), "ä…öü");
        assert_eq!(shortened("abc", 1), "…");
    }
}
