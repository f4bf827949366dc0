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
        if self.main.rotate()? {
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
                busy.rotate()?;
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
}

impl Rotating {
    fn open(path: &Path) -> io::Result<Self> {
        let (file, size) = append(path)?;
        Ok(Self {
            path: path.to_owned(),
            file,
            size,
        })
    }

    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        self.file.write_all(line)?;
        self.size += line.len() as u64;
        Ok(())
    }

    /// Begins another file when this one is long; whether it did.
    fn rotate(&mut self) -> io::Result<bool> {
        if self.size < ROTATE_AT {
            return Ok(false);
        }
        let numbered = |number: usize| {
            let mut path = self.path.as_os_str().to_owned();
            path.push(format!(".{number}"));
            PathBuf::from(path)
        };
        for number in (1..KEPT).rev() {
            match std::fs::rename(numbered(number), numbered(number + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        std::fs::rename(&self.path, numbered(1))?;
        (self.file, self.size) = append(&self.path)?;
        Ok(true)
    }
}

fn append(path: &Path) -> io::Result<(File, u64)> {
    let mut options = OpenOptions::new();
    let file = options.create(true).append(true).mode(0o600).open(path)?;
    give_to_owner(&file, path)?;
    let size = file.metadata()?.len();
    Ok((file, size))
}
