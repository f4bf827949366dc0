//! Where lines go: files that are put aside when they are long, or standard output.

use crate::apiserver::files::give_to_owner;
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};

/// A file is put aside at this size.
pub(super) const ROTATE_AT: u64 = 16 * 1024 * 1024;
/// Files that were put aside and are kept.
pub(super) const KEPT: usize = 4;
/// How much of a file one user may fill.
const SHARE: u64 = ROTATE_AT / 8;
/// The log of those who have filled their share, beside the other one.
pub const BUSY: &str = "audit-busy.log";
/// Lines that wait for standard output.
const WAITING: usize = 8192;

/// Where lines go.
#[derive(Debug)]
pub(super) enum Output {
    Files(Log),
    Stdout(Stdout),
}

impl Output {
    /// Standard output, written by a thread of its own: whoever reads it may stand still.
    pub(super) fn stdout() -> io::Result<Self> {
        let (lines, waiting) = sync_channel::<Vec<u8>>(WAITING);
        let thread = std::thread::Builder::new().name("audit".to_owned());
        thread.spawn(move || {
            for line in waiting {
                let mut stdout = io::stdout().lock();
                if let Err(error) = stdout.write_all(&line).and_then(|()| stdout.flush()) {
                    tracing::error!(%error, "failed to write the audit log to standard output");
                }
            }
        })?;
        Ok(Self::Stdout(Stdout { lines, lost: 0 }))
    }

    pub(super) fn write(&mut self, share: Option<&str>, line: Vec<u8>) {
        match self {
            Self::Files(log) => log.write(share, &line),
            Self::Stdout(stdout) => stdout.write(line),
        }
    }
}

#[derive(Debug)]
pub(super) struct Stdout {
    lines: SyncSender<Vec<u8>>,
    /// Lines that found no room since the last one that did.
    lost: u64,
}

impl Stdout {
    fn write(&mut self, line: Vec<u8>) {
        match self.lines.try_send(line) {
            Ok(()) if self.lost > 0 => {
                tracing::error!(
                    lost = self.lost,
                    "lines of the audit log are lost: nobody took them from standard output"
                );
                self.lost = 0;
            }
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => self.lost += 1,
        }
    }
}

/// The log, and the one of those who fill it.
#[derive(Debug)]
pub(super) struct Log {
    main: Rotating,
    busy: Option<Rotating>,
    /// What each user has of the file.
    shares: HashMap<String, u64>,
    /// Whether the last line could not be written, so that this is said once.
    failing: bool,
}

impl Log {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self {
            main: Rotating::open(path)?,
            busy: None,
            shares: HashMap::new(),
            failing: false,
        })
    }

    fn write(&mut self, share: Option<&str>, line: &[u8]) {
        match self.write_in_turn(share, line) {
            Ok(()) => self.failing = false,
            Err(error) if !self.failing => {
                self.failing = true;
                tracing::error!(%error, path = %self.main.path.display(), "failed to write the audit log");
            }
            Err(_) => {}
        }
    }

    fn write_in_turn(&mut self, share: Option<&str>, line: &[u8]) -> io::Result<()> {
        if self.main.rotate() {
            self.shares.clear();
        }
        if let Some(user) = share {
            let has = self.shares.entry(user.to_owned()).or_insert(0);
            if *has >= SHARE {
                return self.busy()?.write(line);
            }
            *has += line.len() as u64;
        }
        self.main.write(line)
    }

    fn busy(&mut self) -> io::Result<&mut Rotating> {
        let busy = match self.busy.take() {
            Some(mut busy) => {
                busy.rotate();
                busy
            }
            None => Rotating::open(&self.main.path.with_file_name(BUSY))?,
        };
        Ok(self.busy.insert(busy))
    }

    #[cfg(test)]
    pub(super) fn set_size(&mut self, size: u64) {
        self.main.size = size;
    }
}

/// One file and those that were put aside.
#[derive(Debug)]
struct Rotating {
    path: PathBuf,
    file: File,
    size: u64,
    /// Whether it could not be put aside, so that this is said once.
    stuck: bool,
}

impl Rotating {
    fn open(path: &Path) -> io::Result<Self> {
        let (file, size) = append(path, false)?;
        Ok(Self {
            path: path.to_owned(),
            file,
            size,
            stuck: false,
        })
    }

    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        self.file.write_all(line)?;
        self.size += line.len() as u64;
        Ok(())
    }

    /// Begins another file when this one is long; whether it did. While that fails, lines go on into this one.
    fn rotate(&mut self) -> bool {
        if self.size < ROTATE_AT {
            return false;
        }
        match self.put_aside() {
            Ok(()) => {
                self.stuck = false;
                true
            }
            Err(error) => {
                if !self.stuck {
                    tracing::error!(
                        %error,
                        path = %self.path.display(),
                        "failed to put the audit log aside: it goes on in the same file, which grows until \
                         the hub can make and rename files in that folder"
                    );
                }
                self.stuck = true;
                false
            }
        }
    }

    /// The next file is open before any is renamed, and nothing is renamed over another that need not be: however
    /// often this fails, at whichever step, no file is lost by it.
    fn put_aside(&mut self) -> io::Result<()> {
        let next = self.beside("new");
        match std::fs::remove_file(&next) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let (file, size) = append(&next, true)?;
        // It is not when an earlier try came as far, or somebody took it away.
        if is_there(&self.path) {
            let numbered = |number: usize| self.beside(number);
            let free = (1..KEPT).find(|number| !is_there(&numbered(*number)));
            for number in (1..free.unwrap_or(KEPT)).rev() {
                std::fs::rename(numbered(number), numbered(number + 1))?;
            }
            std::fs::rename(&self.path, numbered(1))?;
        }
        std::fs::rename(&next, &self.path)?;
        (self.file, self.size) = (file, size);
        Ok(())
    }

    fn beside(&self, end: impl std::fmt::Display) -> PathBuf {
        let mut path = self.path.as_os_str().to_owned();
        path.push(format!(".{end}"));
        PathBuf::from(path)
    }
}

/// Whether there is anything of this name; what cannot be told is taken for there.
fn is_there(path: &Path) -> bool {
    match std::fs::symlink_metadata(path) {
        Ok(_) => true,
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    }
}

fn append(path: &Path, new: bool) -> io::Result<(File, u64)> {
    let mut options = OpenOptions::new();
    options
        .create(!new)
        .create_new(new)
        .append(true)
        .mode(0o600);
    let file = options.open(path)?;
    give_to_owner(&file, path)?;
    let size = file.metadata()?.len();
    Ok((file, size))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn read(path: &Path) -> String {
        fs::read_to_string(path).expect("there")
    }

    #[test]
    fn what_keeps_a_file_from_being_put_aside_costs_no_line() {
        let last = format!("audit.log.{KEPT}");
        for obstacle in ["audit.log.new", last.as_str()] {
            let dir = tempfile::tempdir().expect("a folder");
            let path = dir.path().join("audit.log");
            let aside = |number: usize| dir.path().join(format!("audit.log.{number}"));
            for number in 1..KEPT {
                fs::write(aside(number), number.to_string()).expect("written");
            }
            let obstacle = dir.path().join(obstacle);
            fs::create_dir_all(obstacle.join("full")).expect("made");
            let mut log = Log::open(&path).expect("opened");
            log.set_size(ROTATE_AT);
            log.write(None, b"one\n");
            log.write(None, b"two\n");
            assert_eq!(read(&path), "one\ntwo\n", "{}", obstacle.display());
            fs::remove_dir_all(&obstacle).expect("removed");
            log.write(None, b"three\n");
            assert_eq!(read(&path), "three\n");
            assert_eq!(read(&aside(1)), "one\ntwo\n");
            for number in 1..KEPT {
                assert_eq!(read(&aside(number + 1)), number.to_string());
            }
            let files = fs::read_dir(dir.path()).expect("read").count();
            assert_eq!(files, KEPT + 1);
        }
    }

    #[test]
    fn files_move_no_further_than_they_must() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("audit.log");
        let aside = |number: usize| dir.path().join(format!("audit.log.{number}"));
        fs::write(aside(3), "old").expect("written");
        let mut log = Log::open(&path).expect("opened");
        log.write(None, b"one\n");
        // So far came a rotation that was cut short.
        fs::rename(&path, aside(1)).expect("renamed");
        for (line, first, second) in [
            ("two\n", "one\n", None),
            ("three\n", "two\n", Some("one\n")),
        ] {
            log.set_size(ROTATE_AT);
            log.write(None, line.as_bytes());
            assert_eq!(read(&path), line);
            assert_eq!(read(&aside(1)), first);
            let found = fs::read_to_string(aside(2)).ok();
            assert_eq!(found.as_deref(), second);
            assert_eq!(read(&aside(3)), "old");
        }
    }
}
