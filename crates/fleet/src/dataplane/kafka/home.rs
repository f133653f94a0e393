//! Finds Kafka and Java on this machine.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use kernel::{Error, Result};

#[derive(Debug)]
pub struct Home {
    pub java: PathBuf,
    pub jars: PathBuf,
    pub version: String,
}

/// An error if it names no Kafka, unlike the other places.
const CHOSEN: &str = "MAINSTAY_KAFKA_HOME";
const USUAL: [&str; 2] = ["/opt/kafka", "/usr/share/kafka"];

impl Home {
    /// The inner error names what a real broker lacks.
    pub fn find() -> Result<Result<Home, String>> {
        Home::search(|name| std::env::var_os(name).filter(|value| !value.is_empty()))
    }

    fn search(set: impl Fn(&str) -> Option<OsString>) -> Result<Result<Home, String>> {
        let chosen = set(CHOSEN).map(PathBuf::from);
        let found = match &chosen {
            Some(dir) => Some(jars(dir).ok_or_else(|| {
                let message = format!("{} has no kafka_*.jar, nor has its libs", dir.display());
                Error::invalid(CHOSEN, message)
            })?),
            None => {
                let usual = USUAL.iter().map(PathBuf::from);
                set("KAFKA_HOME")
                    .map(PathBuf::from)
                    .into_iter()
                    .chain(usual)
                    .find_map(|dir| jars(&dir))
            }
        };
        let Some((jars, version)) = found else {
            return Ok(Err(format!("Kafka's jars were not found; {CHOSEN} can name them")));
        };
        Ok(match java(&set) {
            Some(java) => Ok(Home { java, jars, version }),
            None => Err("Java was not found; JAVA_HOME can name it".to_owned()),
        })
    }
}

/// The directory with the jars, and Kafka's version.
fn jars(dir: &Path) -> Option<(PathBuf, String)> {
    [dir.join("libs"), dir.to_owned()].into_iter().find_map(|dir| {
        let entries = std::fs::read_dir(&dir).ok()?.flatten();
        let version = entries.into_iter().find_map(|entry| version(entry.file_name().to_str()?))?;
        Some((dir, version))
    })
}

/// Parses `kafka_2.13-4.3.1.jar`: Scala's version, then Kafka's.
fn version(jar: &str) -> Option<String> {
    let (_, version) = jar.strip_prefix("kafka_")?.strip_suffix(".jar")?.split_once('-')?;
    version.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.').then(|| version.to_owned())
}

fn java(set: &impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let home = set("JAVA_HOME").map(|home| PathBuf::from(home).join("bin"));
    let path = set("PATH").unwrap_or_default();
    let mut dirs = home.into_iter().chain(std::env::split_paths(&path));
    dirs.find_map(|dir| Some(dir.join("java")).filter(|java| java.is_file()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(settings: &[(&str, &Path)]) -> Result<Result<Home, String>> {
        Home::search(|name| {
            let set = settings.iter().find(|(set, _)| *set == name);
            set.map(|(_, value)| value.as_os_str().to_owned())
        })
    }

    #[test]
    fn jars_are_found_in_libs_or_directly_and_java_next_to_them() {
        let dir = tempfile::tempdir().unwrap();
        let (libs, bin) = (dir.path().join("libs"), dir.path().join("bin"));
        for dir in [&libs, &bin] {
            std::fs::create_dir(dir).unwrap();
        }
        std::fs::write(libs.join("kafka_2.13-4.3.1-sources.jar"), "").unwrap();
        let error = search(&[(CHOSEN, dir.path())]).unwrap_err().to_string();
        assert!(error.starts_with("MAINSTAY_KAFKA_HOME: "), "{error}");
        std::fs::write(libs.join("kafka_2.13-4.3.1.jar"), "").unwrap();
        let missing = search(&[(CHOSEN, dir.path())]).unwrap().unwrap_err();
        assert!(missing.contains("JAVA_HOME"), "{missing}");
        std::fs::write(bin.join("java"), "").unwrap();
        for home in [dir.path(), &libs] {
            for java in [("JAVA_HOME", dir.path()), ("PATH", bin.as_path())] {
                let home = search(&[("KAFKA_HOME", home), java]).unwrap().unwrap();
                assert_eq!((home.version.as_str(), home.jars), ("4.3.1", libs.clone()));
                assert_eq!(home.java, bin.join("java"));
            }
        }
    }
}
