//! What words of YAML stand for to go-yaml v2, and so to Kubernetes: YAML 1.1, without its times and numbers of base 60.

use serde_json::Value;

/// What a word without quotes and tag stands for; none where it is a text, as what is no number of JSON. Whole numbers
/// beyond 64 bits are floats.
pub(crate) fn plain(word: &str) -> Option<Value> {
    match word {
        "" | "~" | "null" | "Null" | "NULL" => return Some(Value::Null),
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            return Some(Value::Bool(true));
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            return Some(Value::Bool(false));
        }
        _ => {}
    }
    if word.starts_with('.') {
        let digits = parted(word).then(|| word.replace('_', ""));
        return digits.and_then(|digits| float(&digits));
    }
    if !word.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-')) {
        return None;
    }
    // Here underscores may stand anywhere.
    let digits = word.replace('_', "");
    whole(&digits).or_else(|| float(&digits))
}

/// Whether each underscore stands between two digits.
fn parted(word: &str) -> bool {
    let digit = |at: Option<usize>| {
        at.and_then(|at| word.as_bytes().get(at))
            .is_some_and(u8::is_ascii_digit)
    };
    word.match_indices('_')
        .all(|(at, _)| digit(at.checked_sub(1)) && digit(at.checked_add(1)))
}

/// A whole number, in the base that its prefix says.
fn whole(digits: &str) -> Option<Value> {
    let (negative, unsigned) = signed(digits);
    let prefix = unsigned.get(..2).unwrap_or_default();
    let (radix, start) = match prefix {
        "0x" | "0X" => (16, 2),
        "0o" | "0O" => (8, 2),
        "0b" | "0B" => (2, 2),
        _ if prefix.starts_with('0') => (8, 1),
        _ => (10, 0),
    };
    let size = unsigned.get(start..)?;
    // A second sign is none of the number.
    if !size.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        return None;
    }
    let size = u64::from_str_radix(size, radix).ok()?;
    match negative {
        true => i64::try_from(-i128::from(size)).ok().map(Value::from),
        false => Some(Value::from(size)),
    }
}

/// A number with a point or an exponent, or of digits alone.
fn float(digits: &str) -> Option<Value> {
    let (_, unsigned) = signed(digits);
    let (mantissa, exponent) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let (_, exponent) = signed(exponent);
    let are_digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    let sound = [whole, fraction, exponent].into_iter().all(are_digits)
        && !exponent.is_empty()
        && !(whole.is_empty() && fraction.is_empty());
    let number = sound.then(|| digits.parse::<f64>().ok()).flatten()?;
    number.is_finite().then(|| Value::from(number))
}

/// Whether a minus stands before a number, and the number without its sign.
fn signed(text: &str) -> (bool, &str) {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    (text.starts_with('-'), unsigned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn words_are_what_go_takes_them_for() {
        let cases = [
            ("0644", json!(420)),
            ("-0644", json!(-420)),
            ("+0644", json!(420)),
            ("0_644", json!(420)),
            ("089", json!(89.0)),
            ("0800", json!(800.0)),
            ("0x1f", json!(31)),
            ("0X1F", json!(31)),
            ("-0x1F", json!(-31)),
            ("0x_1", json!(1)),
            ("0b11", json!(3)),
            ("0o17", json!(15)),
            ("00", json!(0)),
            ("1_000", json!(1000)),
            ("1__0", json!(10)),
            ("1_0.5", json!(10.5)),
            ("1e3", json!(1000.0)),
            ("1E+3", json!(1000.0)),
            ("1.", json!(1.0)),
            (".5", json!(0.5)),
            (".5_0", json!(0.5)),
            ("-.5e-1", json!(-0.05)),
            ("685.230_15e+03", json!(685_230.15)),
            ("-9223372036854775808", json!(i64::MIN)),
            ("18446744073709551615", json!(u64::MAX)),
            ("18446744073709551616", json!(18_446_744_073_709_551_616.0)),
            ("y", json!(true)),
            ("OFF", json!(false)),
            ("", json!(null)),
        ];
        for (word, want) in cases {
            assert_eq!(plain(word), Some(want), "{word}");
        }
        for word in [
            "_0",
            "-",
            "+",
            ".",
            "-.",
            "-+1",
            "+-1",
            "--1",
            "0x",
            "0xg",
            "0x+1",
            "0b2",
            "0o8",
            "e3",
            "1e",
            "1e+",
            ".e1",
            "1.2.3",
            "1-2",
            "12:30:45",
            "2020-01-01",
            "1e999",
            "._5",
            ".5__0",
            ".5_",
            "tRue",
            "nULL",
            ".inf",
            "inf",
            "nan",
            "1 2",
            "ä",
            "0ä",
            "0x52908400098527886E0F7030069826D4",
        ] {
            assert_eq!(plain(word), None, "{word}");
        }
    }
}
