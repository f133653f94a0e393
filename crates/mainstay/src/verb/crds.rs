//! `mainstay crds`: prints the CustomResourceDefinitions of streams.

use clap::{Args, ValueEnum};

use crate::error::Result;
use crate::output;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mainstay crds | kubectl apply --server-side -f -
  mainstay crds --format json

Prints StreamClass, StreamingJobTemplate and BackfillRequest, each v1. They can be applied over those
of the existing operator: names, columns and fields are the same, and existing objects stay valid.
Labels and annotations in templates are preserved from then on.")]
pub struct Crds {
    #[arg(long, short = 'o', value_enum, default_value_t = Format::Yaml)]
    format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Yaml,
    Json,
}

impl Crds {
    pub fn run(self) -> Result<()> {
        output::print(&match self.format {
            Format::Yaml => streams::model::crd::yaml(),
            Format::Json => {
                let items = streams::model::crd::all();
                output::json(
                    &serde_json::json!({ "apiVersion": "v1", "kind": "List", "items": items }),
                )
            }
        })
    }
}
