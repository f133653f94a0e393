//! Places where data cannot be written: a disk that is full, a directory that is read-only. They
//! take root's mounts; without them a test is skipped and says so.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Something mounted for the length of a test.
pub struct Mount {
    at: PathBuf,
}

impl Mount {
    /// A disk of this many megabytes.
    pub fn disk(at: &Path, megabytes: u32) -> Option<Mount> {
        std::fs::create_dir_all(at).expect("a directory");
        let size = format!("size={megabytes}m,mode=700");
        mount(&["-t", "tmpfs", "-o", &size, "tmpfs"], at)
    }

    /// What is in the directory can be read and not written.
    pub fn read_only(at: &Path) -> Option<Mount> {
        let here = at.display().to_string();
        let bound = mount(&["--bind", &here], at)?;
        let sealed = run(Command::new("mount").args(["-o", "remount,ro,bind"]).arg(at));
        if !sealed {
            println!("skipped: a read-only mount is not possible here");
        }
        sealed.then_some(bound)
    }

    /// Leaves no room. The file that takes it is to be removed.
    pub fn fill(&self) -> PathBuf {
        let path = self.at.join("filler");
        let mut file = std::fs::File::create(&path).expect("there is room for a name");
        let block = [0; 4096];
        while file.write_all(&block).is_ok() {}
        path
    }
}

fn mount(args: &[&str], at: &Path) -> Option<Mount> {
    let mounted = run(Command::new("mount").args(args).arg(at));
    if !mounted {
        println!("skipped: mounts need root's rights and the system's consent");
    }
    mounted.then(|| Mount { at: at.to_owned() })
}

fn run(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Lazily: the server that still runs there is on its way out.
        run(Command::new("umount").arg("-l").arg(&self.at));
    }
}
