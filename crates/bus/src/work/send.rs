//! Sends the messages of a batch, in parts where one must come after all others.

use kernel::Result;

use crate::model::{Message, Position};
use crate::ports::out::{Outlet, Refused, Sent};

/// How many of the messages are dealt with, and which of all were refused.
pub struct Delivered {
    pub upto: usize,
    pub refused: Vec<Refused>,
}

/// Sends messages; one that is to come after all others waits for them.
pub async fn send_in_order(
    outlet: &mut dyn Outlet,
    messages: &[Message],
    before: Position,
    after: Position,
) -> Result<Delivered> {
    let mut done = Delivered { upto: 0, refused: Vec::new() };
    while done.upto < messages.len() {
        let begin = done.upto;
        let end = messages[begin + 1..].iter().position(|message| message.after_all);
        let end = end.map_or(messages.len(), |n| begin + 1 + n);
        // Of the events before the next part, the last may have messages there.
        let seq = messages.get(end).map_or(after.seq, |next| next.seq - 1);
        let seq = seq.max(before.seq);
        let position = Position { seq, at: after.at.filter(|_| seq == after.seq), ..after };
        let sent = outlet.send(&messages[begin..end], position).await?;
        let whole = |refused: Vec<Refused>| {
            refused.into_iter().map(move |one| Refused { index: one.index + begin, ..one })
        };
        match sent {
            Sent::All => {}
            Sent::AllBut(refused) => done.refused.extend(whole(refused)),
            Sent::None(refused) => {
                done.refused.extend(whole(refused));
                return Ok(done);
            }
        }
        done.upto = end;
    }
    Ok(done)
}
