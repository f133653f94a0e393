//! Chromium through ChromeDriver: a session for each test.

use thirtyfour::{ChromiumLikeCapabilities, DesiredCapabilities, WebDriver};

use super::Instance;

pub struct Chromium {
    pub server: Instance,
}

/// The shared one; `None` skips the test.
pub fn chromium() -> Option<Chromium> {
    Instance::shared("chromium").map(|server| Chromium { server })
}

impl Chromium {
    pub async fn private(&self) -> Chromium {
        Chromium { server: self.server.private(&[]).await }
    }

    /// A window of its own, which `quit` closes.
    pub async fn window(&self) -> WebDriver {
        kernel::outbound::install_tls();
        let mut wanted = DesiredCapabilities::chrome();
        wanted.set_binary(self.server.get("browser")).expect("a capability");
        let mut args = vec!["--headless=new", "--window-size=1400,900", "--disable-dev-shm-usage"];
        // Nothing is fetched from elsewhere: the pages must work offline.
        args.push("--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1");
        if self.server.get("sandbox") == "no" {
            args.push("--no-sandbox");
        }
        for arg in args {
            wanted.add_arg(arg).expect("a capability");
        }
        WebDriver::new(self.server.get(""), wanted).await.expect("a session")
    }
}
