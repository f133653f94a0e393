//! Shows progress after the first second, on a terminal only.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// Shorter operations show no progress.
const SHOW_AFTER: Duration = Duration::from_secs(1);

/// A line that appears after a while and goes when dropped.
pub struct Progress {
    begun: Instant,
    shown: OnceLock<ProgressBar>,
}

impl Progress {
    pub fn new() -> Progress {
        Progress { begun: Instant::now(), shown: OnceLock::new() }
    }

    /// Waits for `work`, which `message` describes.
    pub async fn during<T>(&self, message: &str, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        if self.shown.get().is_none() {
            let left = SHOW_AFTER.saturating_sub(self.begun.elapsed());
            if let Ok(done) = tokio::time::timeout(left, &mut work).await {
                return done;
            }
        }
        self.shown.get_or_init(line).set_message(message.to_owned());
        work.await
    }

    /// Shows that so many are done, of a total that is known unless it is 0.
    pub fn count(&self, what: &str, done: usize, total: usize) {
        if self.begun.elapsed() < SHOW_AFTER {
            return;
        }
        self.shown.get_or_init(line).set_message(match (done * 100).checked_div(total) {
            None => what.to_owned(),
            Some(percent) => format!("{what}: {done} of {total}, {percent} %"),
        });
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(line) = self.shown.get() {
            line.finish_and_clear();
        }
    }
}

/// Waits for `work`, and shows progress if it takes long.
pub async fn with_progress<T>(message: &str, work: impl Future<Output = T>) -> T {
    Progress::new().during(message, work).await
}

fn line() -> ProgressBar {
    let line = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} ({elapsed})") {
        line.set_style(style);
    }
    line.enable_steady_tick(Duration::from_millis(120));
    line
}
