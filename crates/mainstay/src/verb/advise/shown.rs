//! How recommendations are shown, and written into files.

use std::fs;
use std::path::{Path, PathBuf};

use advisor::model::advice::Advice;
use advisor::model::recommendation::Term;
use advisor::model::wire::Elements;
use advisor::report::patch::{Patch, Patches, Sections, patches};
use advisor::report::{self, Choice, Engine, Heading, Summary};
use clap::Args;

use crate::error::{Error, Result};
use crate::output;

#[derive(Debug, Args)]
pub struct Shown {
    /// Compare with the recommendation for 1, 7 or 15 days [default: the longest with enough data]
    #[arg(long, value_enum)]
    term: Option<TermName>,
    /// Save more, or leave more room for peaks
    #[arg(long, value_enum, default_value = "cost")]
    engine: EngineName,
    /// Also write a report with plots into this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Also write a few plain lines into this file, for the body of a mail
    #[arg(long, value_name = "FILE")]
    summary: Option<PathBuf>,
    /// Also write a patch for each workload into this directory, for `mainstay advise apply`
    #[arg(long, value_name = "DIR")]
    patches: Option<PathBuf>,
    /// Patches set requests, and limits only where they would be less
    #[arg(long, requires = "patches")]
    requests_only: bool,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum TermName {
    Short,
    Medium,
    Long,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum EngineName {
    Cost,
    Performance,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    Table,
    Json,
    Yaml,
    Csv,
}

impl Shown {
    /// Shows what is recommended for all of these. `source` is where it was measured.
    pub fn show(
        &self,
        format: Format,
        advice: &[Advice],
        source: &str,
        made_at: jiff::Timestamp,
    ) -> Result<()> {
        let term = self.term.map(|term| match term {
            TermName::Short => Term::Short,
            TermName::Medium => Term::Medium,
            TermName::Long => Term::Long,
        });
        let engine = match self.engine {
            EngineName::Cost => Engine::Cost,
            EngineName::Performance => Engine::Performance,
        };
        let summary = Summary::new(advice, Choice { term, engine });
        let heading = Heading { source, made_at };
        if let Some(file) = &self.html {
            let page = written(|out| report::html::write(&summary, &heading, out));
            write(file, &page)?;
            output::say(&format!("the report is in {}", file.display()));
        }
        if let Some(file) = &self.summary {
            write(file, &report::summary_text(&summary, &heading))?;
            output::say(&format!("the summary is in {}", file.display()));
        }
        if let Some(dir) = &self.patches {
            let sections =
                if self.requests_only { Sections::Requests } else { Sections::RequestsAndLimits };
            write_patches(dir, &patches(&summary, sections))?;
        }
        if format == Format::Table && self.html.is_none() && !advice.is_empty() {
            output::say(
                "all containers: -o csv; with plots, for a browser or a mail: --html report.html",
            );
        }
        output::print(&match format {
            Format::Table => written(|out| report::table::write(&summary, out)),
            Format::Csv => written(|out| report::csv::write(&summary, out)),
            Format::Json => output::json(&Elements(advice)),
            Format::Yaml => output::yaml(&Elements(advice)),
        })
    }
}

fn write_patches(dir: &Path, found: &Patches) -> Result<()> {
    let cannot = |e| Error::file(format!("{} cannot be created", dir.display()), e);
    fs::create_dir_all(dir).map_err(cannot)?;
    for Patch { file, object, changes } in &found.files {
        let changes: String = changes.iter().map(|change| format!("# {change}\n")).collect();
        write(&dir.join(file), &format!("{changes}{}", output::yaml(object)))?;
    }
    for (experiment, why) in &found.skipped {
        output::say(&format!("no patch for {experiment}: {why}"));
    }
    let program = output::program();
    let files = match found.files.len() {
        0 => {
            output::say("there is nothing to patch");
            return Ok(());
        }
        1 => "1 patch is".to_owned(),
        count => format!("{count} patches are"),
    };
    let place = dir.display();
    let next = output::quoted(&place.to_string());
    output::say(&format!("{files} in {place}; review, then: {program} advise apply {next}"));
    Ok(())
}

fn write(file: &Path, text: &str) -> Result<()> {
    fs::write(file, text)
        .map_err(|e| Error::file(format!("{} cannot be written", file.display()), e))
}

fn written(write: impl FnOnce(&mut dyn std::fmt::Write) -> std::fmt::Result) -> String {
    let mut text = String::new();
    write(&mut text).expect("a string takes everything");
    text
}
