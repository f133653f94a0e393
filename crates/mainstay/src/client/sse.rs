//! Parses server-sent events from the chunks of a response.

/// One event of a stream.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Message {
    pub id: Option<String>,
    pub event: String,
    pub data: String,
}

#[derive(Debug, Default)]
pub struct Reader {
    line: Vec<u8>,
    message: Message,
}

/// The longest line: bounds what a misbehaving server can make us buffer.
const LINE_BYTES_MAX: usize = 16 << 20;

impl Reader {
    /// Takes the next bytes; gives the messages that they completed.
    pub fn read(&mut self, bytes: &[u8]) -> Vec<Message> {
        let mut out = Vec::new();
        for byte in bytes {
            match byte {
                b'\n' => out.extend(self.end_of_line()),
                _ if self.line.len() < LINE_BYTES_MAX => self.line.push(*byte),
                _ => {}
            }
        }
        out
    }

    fn end_of_line(&mut self) -> Option<Message> {
        let line = std::mem::take(&mut self.line);
        let line = String::from_utf8_lossy(&line);
        let line = line.trim_end_matches('\r');
        if line.is_empty() {
            let message = std::mem::take(&mut self.message);
            return (!message.data.is_empty()).then_some(message);
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "id" => self.message.id = Some(value.into()),
            "event" => self.message.event = value.into(),
            "data" => {
                if !self.message.data.is_empty() {
                    self.message.data.push('\n');
                }
                self.message.data.push_str(value);
            }
            // Comments keep the connection alive; other fields are not for us.
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_out_whole_wherever_the_bytes_are_cut() {
        let text =
            ": hello\n\nid: 7\r\nevent: x\r\ndata: {\"é\":1}\r\n\r\ndata:a\ndata: b\n\nid: 8\n\n";
        let whole = Reader::default().read(text.as_bytes());
        assert_eq!(whole.len(), 2);
        assert_eq!(
            whole[0],
            Message { id: Some("7".into()), event: "x".into(), data: "{\"é\":1}".into() }
        );
        assert_eq!(whole[1].data, "a\nb");
        for size in 1..text.len() {
            let mut reader = Reader::default();
            let cut: Vec<Message> =
                text.as_bytes().chunks(size).flat_map(|c| reader.read(c)).collect();
            assert_eq!(cut, whole, "cut into pieces of {size}");
        }
    }
}
