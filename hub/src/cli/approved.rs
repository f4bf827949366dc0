//! Screens as somebody read and approved them, kept as snapshots beside the code that shows them, for narrow and wide
//! terminals, with and without colour. `INSTA_UPDATE=always` writes them anew; what became another is to be read again.

use super::Colours;
use std::fmt::Write as _;
use std::path::Path;

/// Columns of the terminals.
pub(crate) const WIDTHS: [usize; 3] = [60, 80, 160];

/// Holds what `show` makes of something against the approved screens of that name, in a folder of `src`. Colours add
/// nothing but colour; where they do, one screen is kept with them, an escape as `␛`.
pub(crate) fn screens(folder: &str, name: &str, show: impl Fn(usize, Colours) -> String) {
    let mut text = String::new();
    for width in WIDTHS {
        let plain = show(width, Colours::default());
        let coloured = show(width, Colours::always());
        let without = console::strip_ansi_codes(&coloured);
        assert_eq!(without, plain, "{name} at {width} columns");
        let _ = writeln!(text, "----- {width} columns\n{}", plain.trim_end());
    }
    let coloured = show(80, Colours::always()).replace('\u{1b}', "␛");
    if coloured.contains('␛') {
        let _ = writeln!(text, "----- 80 columns, in colour\n{}", coloured.trim_end());
    }
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("src")
            .join(folder),
    );
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, text));
}
