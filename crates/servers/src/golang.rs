//! Building programs in Go: of ours, whose files are embedded, or of others, as the module proxy
//! has them.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::Install;

/// How one program is built.
#[derive(Clone, Copy)]
pub struct Build<'a> {
    /// The name of the binary.
    pub name: &'a str,
    /// Where its module is.
    pub dir: &'a Path,
    /// The package below it, as in `./cmd/thing`.
    pub package: &'a str,
    /// What of it goes in, as Go's build tags say.
    pub tags: &'a str,
    /// Variables that are set at the end, as in `-X path.name=value`.
    pub set: &'a str,
}

/// A module of ours, to be built and removed.
pub fn write(files: &[(&str, &str)], below: &Path) -> Result<PathBuf> {
    let dir = below.join("source");
    std::fs::create_dir_all(&dir)?;
    for (name, text) in files {
        std::fs::write(dir.join(name), text)?;
    }
    Ok(dir)
}

impl Install<'_> {
    /// Builds a program into `to`. Its module must name everything that it needs.
    pub fn go_build(&self, to: &Path, build: Build) -> Result<()> {
        let mut go = self.go(build.dir);
        // Nobody will debug it: without what a debugger needs it builds in less time and room.
        go.args(["build", "-mod=mod", "-trimpath", "-gcflags=all=-dwarf=false"]);
        go.args(["-tags", build.tags, "-ldflags", &format!("-s -w {}", build.set)]);
        go.arg("-o").arg(to.join(build.name)).arg(build.package);
        self.run(&format!("go build {}", build.name), &mut go)
    }

    /// A copy of a module's source that may be changed. What an earlier attempt left is replaced.
    pub fn go_source(&self, module: &str, version: &str, below: &Path) -> Result<PathBuf> {
        let wanted = format!("{module}@v{version}");
        let mut download = self.go(below);
        self.run(&format!("download {wanted}"), download.args(["mod", "download", &wanted]))?;
        let copy = below.join("source");
        if copy.exists() {
            std::fs::remove_dir_all(&copy)?;
        }
        let source = self.cache.root().join("go/mod").join(&wanted);
        self.run("copy its source", Command::new("cp").arg("-R").arg(source).arg(&copy))?;
        Ok(copy)
    }
}
