//! `mainstay completions` and `mainstay man`: what a shell and a reader want to know.

use std::path::{Path, PathBuf};

use clap_complete::Shell;

use crate::cli::command;
use crate::error::{Error, Result};
use crate::output;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mainstay completions bash > ~/.local/share/bash-completion/completions/mainstay
  mainstay completions zsh > ~/.zfunc/_mainstay")]
pub struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    pub fn run(self) -> Result<()> {
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut command(), "mainstay", &mut text);
        output::print(&String::from_utf8_lossy(&text))
    }
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mainstay man | man -l -
  mainstay man ~/.local/share/man/man1")]
pub struct Man {
    /// Write one page per verb here instead of printing the first
    #[arg(value_name = "DIR")]
    dir: Option<PathBuf>,
}

impl Man {
    pub fn run(self) -> Result<()> {
        match self.dir {
            None => output::print(&String::from_utf8_lossy(&page(command())?)),
            Some(dir) => pages(command(), "", &dir),
        }
    }
}

fn page(command: clap::Command) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    // There is no page for `help`.
    let rendered = clap_mangen::Man::new(command.disable_help_subcommand(true)).render(&mut text);
    rendered.map_err(|e| Error::file("the manual page cannot be made", e))?;
    Ok(text)
}

fn pages(command: clap::Command, parent: &str, dir: &Path) -> Result<()> {
    let name = match parent {
        "" => command.get_name().to_owned(),
        parent => format!("{parent}-{}", command.get_name()),
    };
    for inner in command.get_subcommands() {
        pages(inner.clone(), &name, dir)?;
    }
    let path = dir.join(format!("{name}.1"));
    let text = page(command.name(name))?;
    let written = std::fs::create_dir_all(dir).and_then(|()| std::fs::write(&path, text));
    written.map_err(|e| Error::file(format!("{} cannot be written", path.display()), e))
}
