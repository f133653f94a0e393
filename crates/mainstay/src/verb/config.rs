//! `mainstay config show | check`.

use std::path::Path;

use serde_json::Value;

use crate::cli::ConfigArgs;
use crate::config::{self, Loaded, Problem, Problems};
use crate::error::Result;
use crate::output;

#[derive(Debug, clap::Subcommand)]
pub enum ConfigVerb {
    /// Print every value, redacted, and where it came from
    #[command(after_help = "\
Examples:
  mainstay config show
  mainstay config show -o toml > config.toml     secrets are redacted: fill them in again
  mainstay config show -o json | jq '.[] | select(.origin != \"default\")'")]
    Show {
        /// What to print
        #[arg(short, long, value_enum, default_value = "table")]
        output: Format,
        #[command(flatten)]
        config: ConfigArgs,
    },
    /// Check a configuration without starting anything
    #[command(after_help = "\
Examples:
  mainstay config check --config /etc/mainstay.toml
  mainstay config check --set http.rate_per_s=100")]
    Check {
        #[command(flatten)]
        config: ConfigArgs,
    },
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub enum Format {
    Table,
    Toml,
    Json,
    Yaml,
}

impl ConfigVerb {
    pub fn run(self) -> Result<()> {
        match self {
            ConfigVerb::Show { config, output } => output::print(&show(&config.load()?, output)),
            ConfigVerb::Check { config } => {
                let loaded = config.load()?;
                check(&loaded)?;
                loaded.notes.iter().for_each(|note| output::say(note));
                let file =
                    loaded.file.as_ref().map_or("no file".into(), |f| f.display().to_string());
                output::say(&format!("the configuration is right ({file}, environment, flags)"));
                Ok(())
            }
        }
    }
}

fn show(loaded: &Loaded, format: Format) -> String {
    let rows = config::rows(loaded);
    match format {
        Format::Json => output::json(&rows),
        Format::Yaml => output::yaml(&rows),
        Format::Toml => config::toml_text(&loaded.config, &|key| {
            Some(loaded.origin(key).to_string()).filter(|origin| origin != "default")
        }),
        Format::Table => output::table(
            &["KEY", "VALUE", "FROM"],
            rows.into_iter().map(|row| vec![row.key, output::text(&row.value), row.origin]),
        ),
    }
}

/// What the types cannot say: files that must be there, directories that can be made.
fn check(loaded: &Loaded) -> Result<()> {
    let problem = |path: &str, message: String| Problem {
        path: path.into(),
        message,
        origin: loaded.origin(path),
    };
    let mut problems = Vec::new();
    for row in config::rows(loaded) {
        let Value::String(text) = &row.value else { continue };
        // A variable of Terraform may have any name, also `env`.
        if text == "[redacted]" {
            continue;
        }
        let names_file = row.key.ends_with("_file") || row.key.ends_with(".file");
        if names_file
            && !text.is_empty()
            && let Err(e) = std::fs::File::open(text)
        {
            problems.push(problem(&row.key, format!("{text} cannot be read: {e}")));
        }
        if row.key.ends_with(".env") && std::env::var_os(text).is_none() {
            let message = format!("the environment variable {text} is not set");
            problems.push(problem(&row.key, message));
        }
    }
    let config = &loaded.config;
    if let Err(message) = can_be_directory(&config.data_dir) {
        problems.push(problem("data_dir", message));
    }
    let database = config.database.url().and_then(|url| match url.map(|url| url::Url::parse(&url)) {
        None => Ok(()),
        Some(Ok(url)) if matches!(url.scheme(), "postgres" | "postgresql") => Ok(()),
        Some(_) => {
            let message =
                "must be postgres://USER@HOST/DATABASE, or empty for SQLite in the data directory";
            Err(kernel::Error::invalid("database", message))
        }
    });
    let parts = [
        config.driver.check(),
        config.http.check(),
        config.identity.check(),
        config.bus.check(),
        config.advisor.check(),
    ];
    for checked in parts.into_iter().chain([database, config.vault.check()]) {
        match checked {
            Err(kernel::Error::Invalid { field, message }) => {
                problems.push(problem(&field, message))
            }
            other => other?,
        }
    }
    if problems.is_empty() { Ok(()) } else { Err(Problems(problems).into()) }
}

/// Whether the nearest directory that exists is one.
fn can_be_directory(path: &Path) -> Result<(), String> {
    let Some(found) = path.ancestors().find(|dir| dir.exists()) else { return Ok(()) };
    if found.is_dir() { Ok(()) } else { Err(format!("{} is not a directory", found.display())) }
}
