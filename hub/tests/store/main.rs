//! The store under a kill and under a power cut, again and again: what was answered is there, no
//! revision comes twice, watchers go on. And under a disk that fills, and over a day.
//!
//! `STORE_KILLS` is how many kills of each sort there are; a few if it is not set.

mod child;
mod day;
mod directory;
mod files;
mod full;
mod model;
mod points;
mod random;
mod restored;
mod secrets;
mod served;
mod time;

use model::Model;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// The files of one run and the disk beneath them.
struct World {
    _temp: TempDir,
    data: PathBuf,
    disk: PathBuf,
    shim: PathBuf,
}

impl World {
    fn new() -> Self {
        let temp = TempDir::new().expect("directory");
        let root = temp.path().canonicalize().expect("a path");
        let (data, disk) = (root.join("data"), root.join("disk"));
        fs::create_dir(&disk).expect("makes");
        let shim = root.join("powercut.so");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/store/powercut.c");
        let built = Command::new("cc")
            .args(["-O1", "-shared", "-fPIC", "-o"])
            .args([&shim, &source])
            .args(["-ldl", "-lpthread"])
            .status()
            .expect("a C compiler, which SQLite needs as well");
        assert!(built.success());
        Self {
            _temp: temp,
            data,
            disk,
            shim,
        }
    }

    /// Where all of it is.
    fn root(&self) -> &Path {
        self.data.parent().expect("in a folder")
    }

    /// This program again, as the test of that name, above the disk.
    fn child(&self, test: &str) -> Command {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command
            .args(["--exact", test, "--nocapture", "--test-threads=1"])
            .env("LD_PRELOAD", &self.shim)
            .env("POWERCUT_DIR", &self.data)
            .env("POWERCUT_DISK", &self.disk)
            .stdin(Stdio::null());
        command
    }

    /// Writes until it has said so many lines; then it is killed.
    fn kill(&self, since: u64, seed: u64, lines: usize, lie: bool) -> Vec<String> {
        let mut command = self.child("writes_until_it_is_killed");
        command
            .env("STORE_CHILD", since.to_string())
            .env("STORE_SEED", seed.to_string())
            .stdout(Stdio::piped());
        if lie {
            command.env("POWERCUT_LIE", "1");
        }
        let mut child = command.spawn().expect("starts");
        let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut said = Vec::new();
        let mut line = String::new();
        let (mut killed, mut ready) = (false, None);
        while output.read_line(&mut line).expect("reads") > 0 {
            // What has no end was cut off by the kill.
            if let Some(whole) = line.strip_suffix('\n')
                && let Some(told) = whole.strip_prefix("@ ")
            {
                said.push(told.to_owned());
                if told.starts_with("seen ") {
                    ready.get_or_insert(said.len());
                }
            }
            if !killed && ready.is_some_and(|ready| said.len() >= ready + lines) {
                child.kill().expect("kills");
                killed = true;
            }
            line.clear();
        }
        let status = child.wait().expect("ends");
        assert!(killed, "it ended by itself, {status}: {:?}", said.last());
        said
    }

    /// Cuts the database back to what the disk had.
    fn cut_power(&self) {
        for (_, path) in files(&self.data) {
            fs::remove_file(path).expect("removes");
        }
        for (name, path) in files(&self.disk) {
            if self.disk.join(format!("{name}.linked")).exists() {
                fs::copy(path, self.data.join(name)).expect("copies");
            }
        }
    }

    /// Lets the disk have everything, as it has after a while.
    fn settle(&self) {
        fs::remove_dir_all(&self.disk).expect("removes");
        fs::create_dir(&self.disk).expect("makes");
        for (name, path) in files(&self.data) {
            fs::copy(path, self.disk.join(&name)).expect("copies");
            fs::write(self.disk.join(format!("{name}.linked")), "").expect("writes");
        }
    }
}

/// The database's files.
fn files(dir: &Path) -> Vec<(String, PathBuf)> {
    let entries = fs::read_dir(dir)
        .expect("lists")
        .map(|e| e.expect("entry").path());
    let named = entries.map(|path| {
        let name = path.file_name().and_then(OsStr::to_str).expect("a name");
        (name.to_owned(), path.clone())
    });
    let ours = |name: &str| name.starts_with("hub.db") && !name.ends_with(".linked");
    named.filter(|(name, _)| ours(name)).collect()
}

fn kills() -> u64 {
    let set = std::env::var("STORE_KILLS").ok();
    set.map_or(5, |kills| kills.parse().expect("STORE_KILLS is a number"))
}

/// Kills one child after another; after each the next has to find what was promised.
fn torment(kills: u64, power: bool, lie: bool) -> Model {
    let world = World::new();
    let mut model = Model::default();
    for seed in 1..=kills {
        let lines = 100 + usize::try_from(seed * 7919 % 4001).expect("small");
        model.run(&world.kill(model.seen, seed, lines, lie));
        if power {
            world.cut_power();
        }
        world.settle();
        if lie && !model.broken.is_empty() {
            break;
        }
    }
    println!(
        "{kills} kills, power cut: {power}: {} writes, {} renewals, {} watches went on",
        model.writes, model.renewals, model.resumed
    );
    model
}

#[test]
fn nothing_answered_is_lost_by_a_kill() {
    let model = torment(kills(), false, false);
    assert!(model.broken.is_empty(), "{:#?}", model.broken);
    assert!(
        model.resumed > kills() / 2,
        "watches go on where the log covers it"
    );
}

#[test]
fn nothing_answered_is_lost_by_a_power_cut() {
    let model = torment(kills(), true, false);
    assert!(model.broken.is_empty(), "{:#?}", model.broken);
    assert!(
        model.resumed > kills() / 2,
        "watches go on where the log covers it"
    );
}

/// Without it the tests above might hold of a store that syncs nothing.
#[test]
fn a_disk_that_lies_is_found_out() {
    let found = std::panic::catch_unwind(|| torment(6, true, true).broken.is_empty());
    assert!(
        !found.unwrap_or(false),
        "a store without a sync lost nothing"
    );
}

/// What the other tests start; by itself it does nothing.
#[test]
fn writes_until_it_is_killed() {
    let number = |name| {
        std::env::var(name)
            .ok()
            .map(|n| n.parse().expect("a number"))
    };
    let (Some(since), Some(seed)) = (number("STORE_CHILD"), number("STORE_SEED")) else {
        return;
    };
    let dir = std::env::var_os("POWERCUT_DIR").expect("set with the others");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(child::run(Path::new(&dir), since, seed));
}
