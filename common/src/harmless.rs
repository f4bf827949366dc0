//! Texts that somebody else wrote, made fit for a terminal and for a line: what moves the cursor, colours, reverses
//! or hides what is read is shown as what it is.
//!
//! Pure.

use std::fmt::Write as _;

/// What a cut text ends with.
const CUT: &str = "...";

/// A text on one line, of at most `limit` characters; white space is one space, and what a terminal would act on, or
/// what makes the reader see another text than is there, stands as its code.
pub fn line(text: &str, limit: usize) -> String {
    let mut shown = String::new();
    let mut length = 0;
    // Of a text without an end no more is looked at than can be shown.
    for word in text.split_whitespace() {
        if length > limit {
            break;
        }
        if length > 0 {
            shown.push(' ');
            length += 1;
        }
        for character in word.chars() {
            if length > limit {
                break;
            }
            if is_harmless(character) {
                shown.push(character);
                length += 1;
            } else {
                let before = shown.len();
                // Writing into a String cannot fail.
                let _ = write!(shown, "\\u{{{:x}}}", u32::from(character));
                length += shown.len() - before;
            }
        }
    }
    if length <= limit {
        return shown;
    }
    let kept = limit.saturating_sub(CUT.len());
    let mut cut: String = shown.chars().take(kept).collect();
    cut.truncate(cut.trim_end().len());
    cut.push_str(CUT);
    cut
}

/// A text of several lines in which what a terminal would act on, or what makes the reader see another text than is
/// there, stands as its code.
pub fn lines(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if is_harmless(character) || matches!(character, '\n' | '\t') {
            shown.push(character);
        } else {
            // Writing into a String cannot fail.
            let _ = write!(shown, "\\u{{{:x}}}", u32::from(character));
        }
    }
    shown
}

/// Whether a character only shows itself.
fn is_harmless(character: char) -> bool {
    let hidden = matches!(
        character,
        '\u{ad}'
            | '\u{34f}'
            | '\u{61c}'
            | '\u{115f}'
            | '\u{1160}'
            | '\u{17b4}'
            | '\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e0fff}'
    );
    !character.is_control() && !hidden
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_a_terminal_acts_on_is_shown_as_its_code() {
        for (text, wanted) in [
            ("plain text, Grüße, 東京", "plain text, Grüße, 東京"),
            (" two\n\tlines\r\n", "two lines"),
            (
                "\u{1b}[2J\u{1b}]0;mine\u{7}",
                "\\u{1b}[2J\\u{1b}]0;mine\\u{7}",
            ),
            ("\u{9b}31m", "\\u{9b}31m"),
            ("image \u{202e}gpj.exe", "image \\u{202e}gpj.exe"),
            ("a\u{200b}b\u{feff}", "a\\u{200b}b\\u{feff}"),
            ("a\u{2028}b", "a b"),
        ] {
            assert_eq!(line(text, 100), wanted, "{text:?}");
        }
        assert_eq!(lines("a:\n\tb  \u{1b}[2J\r"), "a:\n\tb  \\u{1b}[2J\\u{d}");
        assert_eq!(line("0123456789", 10), "0123456789");
        assert_eq!(line("0123456789a", 10), "0123456...");
        assert_eq!(line("012345 789abc", 10), "012345...");
    }

    proptest! {
        #[test]
        fn whatever_is_said_is_one_harmless_line(text in any::<String>(), limit in 3usize..80) {
            let shown = line(&text, limit);
            prop_assert!(shown.chars().count() <= limit);
            prop_assert!(shown.chars().all(is_harmless));
        }
    }
}
