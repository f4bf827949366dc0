//! Strings in messages, quoted the way clients have always seen them.

use std::fmt::Write as _;

/// In double quotes, with escapes for what cannot be printed.
pub(crate) fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        let short = match c {
            '"' => "\\\"",
            '\\' => "\\\\",
            '\n' => "\\n",
            '\r' => "\\r",
            '\t' => "\\t",
            '\u{7}' => "\\a",
            '\u{8}' => "\\b",
            '\u{b}' => "\\v",
            '\u{c}' => "\\f",
            _ => {
                push_char(&mut quoted, c);
                continue;
            }
        };
        quoted.push_str(short);
    }
    quoted.push('"');
    quoted
}

fn push_char(quoted: &mut String, c: char) {
    let code = u32::from(c);
    // Writing to a String cannot fail.
    let _ = match code {
        0..0x20 | 0x7f => write!(quoted, "\\x{code:02x}"),
        0x20..0x7f => {
            quoted.push(c);
            Ok(())
        }
        // A combining character is printed as it is, though Rust's escape would not.
        _ if c.escape_debug().len() == 1 || c.is_alphanumeric() => {
            quoted.push(c);
            Ok(())
        }
        0x80..0x1_0000 => write!(quoted, "\\u{code:04x}"),
        _ => write!(quoted, "\\U{code:08x}"),
    };
}

/// JSON in which no character could be taken for markup.
pub(crate) fn escape_html(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                let _ = write!(escaped, "\\u{:04x}", u32::from(c));
            }
            _ => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_printed_is_escaped() {
        let cases = [
            ("plain é ü 世", "\"plain é ü 世\""),
            ("a\"b\\", "\"a\\\"b\\\\\""),
            ("\n\t\u{1}\u{7f}", "\"\\n\\t\\x01\\x7f\""),
            ("\u{200b}\u{feff}", "\"\\u200b\\ufeff\""),
            ("\u{e0001}", "\"\\U000e0001\""),
        ];
        for (text, want) in cases {
            assert_eq!(quote(text), want);
        }
    }
}
