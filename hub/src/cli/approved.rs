//! Screens as somebody approved them: text files beside the code that shows them. `TOWLINE_APPROVE` writes them anew.

use std::path::Path;
use std::{env, fs};

/// Holds a screen against the approved one of a verb.
pub(super) fn approve(verb: &str, name: &str, shown: &str) {
    let file = format!("src/cli/{verb}/screens/{name}.txt");
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    let shown = format!("{}\n", shown.trim_end());
    if env::var_os("TOWLINE_APPROVE").is_some() {
        fs::write(&file, &shown).expect("written");
    }
    let approved = fs::read_to_string(&file).expect("approved");
    assert_eq!(shown, approved, "{verb} {name}");
}
