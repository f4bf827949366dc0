//! Formats of strings.

use super::shown_path;
use crate::apiserver::error::FieldError;
use crate::apiserver::schema::kinds::meta;
use crate::apiserver::schema::rules::compile;
use crate::go::quote;
use chrono::{DateTime, NaiveDate};
use regex::Regex;
use serde_json::json;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::OnceLock;

pub(super) fn check(format: &str, text: &str, path: &str) -> Option<FieldError> {
    if holds(format, text) {
        return None;
    }
    let detail = format!("{path} in body must be of type {format}: {}", quote(text));
    Some(FieldError::type_invalid(
        shown_path(path),
        json!(text),
        detail,
    ))
}

fn matches(cell: &'static OnceLock<Option<Regex>>, pattern: &str, text: &str) -> bool {
    let regex = cell.get_or_init(|| compile(pattern));
    regex.as_ref().is_some_and(|regex| regex.is_match(text))
}

macro_rules! pattern {
    ($pattern:expr, $text:expr) => {{
        static COMPILED: OnceLock<Option<Regex>> = OnceLock::new();
        matches(&COMPILED, $pattern, $text)
    }};
}

fn holds(format: &str, text: &str) -> bool {
    match format.replace('-', "").as_str() {
        "bsonobjectid" => pattern!("^[0-9a-fA-F]{24}$", text),
        "uri" => text.parse::<http::Uri>().is_ok() && (text.starts_with('/') || text.contains(':')),
        "email" => pattern!(r"^[^@\s]+@[^@\s]+$", text),
        "hostname" => {
            text.len() <= 255
                && pattern!(
                    r"^([a-zA-Z0-9\p{S}\p{L}]((-?[a-zA-Z0-9\p{S}\p{L}]{0,62})?)|([a-zA-Z0-9\p{S}\p{L}](([a-zA-Z0-9-\p{S}\p{L}]{0,61}[a-zA-Z0-9\p{S}\p{L}])?)(\.)){1,}([a-zA-Z\p{L}]){2,63})$",
                    text
                )
                && text.split('.').all(|label| label.len() <= 63)
        }
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => cidr(text),
        "mac" => pattern!("^([0-9A-Fa-f]{2}[:-]){5}([0-9A-Fa-f]{2})$", text),
        "uuid" => pattern!(
            "(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$",
            text
        ),
        "uuid3" => pattern!(
            "(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?3[0-9a-f]{3}-?[0-9a-f]{4}-?[0-9a-f]{12}$",
            text
        ),
        "uuid4" => pattern!(
            "(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?4[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$",
            text
        ),
        "uuid5" => pattern!(
            "(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?5[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$",
            text
        ),
        "isbn" => isbn10(text) || isbn13(text),
        "isbn10" => isbn10(text),
        "isbn13" => isbn13(text),
        "creditcard" => {
            let digits: String = text.chars().filter(char::is_ascii_digit).collect();
            (13..=16).contains(&digits.len())
        }
        "ssn" => pattern!(r"^\d{3}[- ]?\d{2}[- ]?\d{4}$", text),
        "hexcolor" => pattern!("^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$", text),
        "rgbcolor" => pattern!(
            r"^rgb\(\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*,\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*,\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*\)$",
            text
        ),
        // What is empty is no base64 here, and bits that mean nothing may be set.
        "byte" => pattern!(
            "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})$",
            text
        ),
        "date" => NaiveDate::parse_from_str(text, "%Y-%m-%d").is_ok() && text.len() == 10,
        "datetime" => DateTime::parse_from_rfc3339(&text.to_uppercase()).is_ok(),
        "duration" => duration(text),
        "k8sshortname" => meta::dns1123_label(text).is_empty(),
        "k8slongname" => meta::dns1123_subdomain(text).is_empty(),
        _ => true,
    }
}

fn cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else {
        return false;
    };
    let Ok(bits) = bits.parse::<u8>() else {
        return false;
    };
    (address.parse::<Ipv4Addr>().is_ok() && bits <= 32)
        || (address.parse::<Ipv6Addr>().is_ok() && bits <= 128)
}

/// As Go reads durations, or a number and a unit in words.
fn duration(text: &str) -> bool {
    super::super::decode::leaf::parse_duration(text).is_some()
        || pattern!(
            r"^(\d+)\s*((ns|nano|nanos|nanosecond|nanoseconds)|(us|µs|micro|micros|microsecond|microseconds)|(ms|milli|millis|millisecond|milliseconds)|(s|sec|secs|second|seconds)|(m|min|mins|minute|minutes)|(h|hr|hour|hours)|(d|day|days)|(w|wk|week|weeks))$",
            text
        )
}

fn isbn10(text: &str) -> bool {
    let digits: Vec<char> = text.chars().filter(|c| !matches!(c, '-' | ' ')).collect();
    if digits.len() != 10 {
        return false;
    }
    let mut sum = 0;
    for (weight, c) in (1..).zip(&digits) {
        let value = match c {
            'X' if weight == 10 => 10,
            other => match other.to_digit(10) {
                Some(digit) => digit,
                None => return false,
            },
        };
        sum += weight * value;
    }
    sum % 11 == 0
}

fn isbn13(text: &str) -> bool {
    let digits: Option<Vec<u32>> = text
        .chars()
        .filter(|c| !matches!(c, '-' | ' '))
        .map(|c| c.to_digit(10))
        .collect();
    digits.is_some_and(|digits| {
        let weights = [1, 3].into_iter().cycle();
        let sum: u32 = digits.iter().zip(weights).map(|(d, w)| d * w).sum();
        digits.len() == 13 && sum.is_multiple_of(10)
    })
}
