//! The types of the bus.

mod command;
mod position;
mod scrub;
pub mod settings;
mod sink;
mod template;

pub use command::{AnswerBody, CommandMessage};
pub use kernel::relay::{Destination, Message};
pub use position::{Cursor, Gap, ParkedEvent, Position};
pub use scrub::without_token;
pub use sink::{KIND, Phase, Sink, Spec, Status, Transport, cursor_name, quota_counter};
pub use template::Template;
