//! What comes out for one container.

use super::inventory::Member;
use super::recommendation::Recommendation;

/// A container, and what is recommended for it.
#[derive(Debug, Clone)]
pub struct Advice {
    pub member: Member,
    /// As in `prometheus-1|default|shop|web(deployment)|nginx`.
    pub experiment: String,
    /// The recommendation, or why there is none.
    pub outcome: Result<Recommendation, String>,
}
