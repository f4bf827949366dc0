//! The `os` of scripts: times are read and shown, but no script learns what time it is.

use super::machine::{Context, Module, Native, Refused, type_name};
use super::number;
use chrono::{DateTime, Datelike as _, NaiveDate, Timelike as _};
use mlua::{Table, Value};
use std::fmt::Write as _;

pub(super) const MODULE: Module = Module {
    name: "os",
    functions: &[
        Native {
            name: "time",
            call: time,
        },
        Native {
            name: "date",
            call: date,
        },
    ],
};

/// What a letter of a format is charged as.
const BYTES_A_LETTER: usize = 256;

fn no_clock(name: &str) -> Refused {
    Refused::Message(format!(
        "os.{name} needs a time here: what a script says must not depend on when it is asked"
    ))
}

/// A whole number, or a text of one.
fn whole(value: &Value) -> Option<i64> {
    let text = match value {
        Value::Integer(number) => return Some(*number),
        Value::Number(number) => return number::whole(number.trunc()),
        Value::String(text) if text.as_bytes().len() < 32 => text.to_string_lossy(),
        _ => return None,
    };
    text.trim().parse().ok()
}

fn field(table: &Table, name: &str, otherwise: Option<i32>) -> Result<i32, Refused> {
    let value: Value = table.raw_get(name)?;
    let found = match value {
        Value::Nil => otherwise,
        value => whole(&value).and_then(|found| i32::try_from(found).ok()),
    };
    found.ok_or_else(|| Refused::Message(format!("field '{name}' missing in date table")))
}

/// The seconds of a table of year, month, day, and perhaps hour, min, sec; all UTC.
fn time(_: &Context<'_>, values: &[Value]) -> Result<Value, Refused> {
    let table = match values.first() {
        Some(Value::Table(table)) => table,
        None | Some(Value::Nil) => return Err(no_clock("time")),
        Some(other) => {
            let got = type_name(other);
            return Err(Refused::Message(format!(
                "bad argument #1 to 'time' (table expected, got {got})"
            )));
        }
    };
    let (year, month) = (field(table, "year", None)?, field(table, "month", None)?);
    let first = u32::try_from(month).ok();
    let first = first.and_then(|month| NaiveDate::from_ymd_opt(year, month, 1));
    let first = first.and_then(|day| day.and_hms_opt(0, 0, 0));
    let first = first.ok_or_else(|| Refused::message("time out of range"))?;
    let days = f64::from(field(table, "day", None)?) - 1.0;
    let hours = days * 24.0 + f64::from(field(table, "hour", Some(12))?);
    let minutes = hours * 60.0 + f64::from(field(table, "min", Some(0))?);
    let seconds = minutes * 60.0 + f64::from(field(table, "sec", Some(0))?);
    let start = first.and_utc().timestamp().to_string();
    let start: f64 = start.parse().unwrap_or_default();
    Ok(Value::Number(start + seconds))
}

/// A time as text, in UTC.
fn date(context: &Context<'_>, values: &[Value]) -> Result<Value, Refused> {
    let seconds = match values.get(1) {
        None | Some(Value::Nil) => return Err(no_clock("date")),
        Some(value) => whole(value),
    };
    let time = seconds.and_then(|seconds| DateTime::from_timestamp(seconds, 0));
    let time = time.ok_or_else(|| Refused::message("time out of range"))?;
    let form = match values.first() {
        Some(Value::String(text)) => text.to_string_lossy(),
        _ => "%c".to_owned(),
    };
    let form = form.strip_prefix('!').unwrap_or(&form);
    if form == "*t" {
        let table = context.lua.create_table()?;
        table.raw_set("year", time.year())?;
        for (name, number) in [
            ("month", time.month()),
            ("day", time.day()),
            ("hour", time.hour()),
            ("min", time.minute()),
            ("sec", time.second()),
        ] {
            table.raw_set(name, number)?;
        }
        return Ok(Value::Table(table));
    }
    if form.len() > 200 {
        return Err(Refused::message("format is too long"));
    }
    // Two letters of it may be a whole date.
    context.charge(form.len() * BYTES_A_LETTER)?;
    let mut text = String::new();
    match write!(text, "{}", time.format(form)) {
        Ok(()) => context.text(&text),
        Err(_) => Err(Refused::message("invalid format")),
    }
}
