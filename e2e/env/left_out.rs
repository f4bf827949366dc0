//! What a test leaves out where it runs: said to whoever runs it, for a test that passes is not listened to.

use std::io::Write as _;

/// Says that something was not tried here, and why. `e2e/test` names a file by `TOWLINE_LEFT_OUT` and
/// shows at its end what stands there.
pub(crate) fn left_out(what: &str, why: &str) {
    eprintln!("LEFT OUT: {what}: {why}");
    let Some(path) = std::env::var_os("TOWLINE_LEFT_OUT").filter(|path| !path.is_empty()) else {
        return;
    };
    let file = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(&path);
    let said = file.and_then(|mut file| writeln!(file, "{what}: {why}"));
    if let Err(error) = said {
        eprintln!("and {} does not take it: {error}", path.display());
    }
}
