//! Schedules as cron writes them.

/// What is wrong with a schedule, in the words of the real server.
pub(super) fn wrong(schedule: &str) -> Option<String> {
    if schedule.contains("TZ") {
        return Some("cannot use TZ or CRON_TZ in schedule, use timeZone field instead".to_owned());
    }
    if let Some(name) = schedule.strip_prefix('@') {
        let known = matches!(
            name,
            "yearly" | "annually" | "monthly" | "weekly" | "daily" | "midnight" | "hourly"
        );
        if known {
            return None;
        }
        if let Some(every) = name.strip_prefix("every ") {
            let read = crate::apiserver::schema::decode::leaf::parse_duration(every);
            return read.is_none().then(|| {
                format!("failed to parse duration @every {every}: time: invalid duration {every:?}")
            });
        }
        return Some(format!("unrecognized descriptor: {schedule}"));
    }
    let fields: Vec<&str> = schedule.split_whitespace().collect();
    if fields.len() != 5 {
        return Some(format!(
            "expected exactly 5 fields, found {}: [{}]",
            fields.len(),
            fields.join(" ")
        ));
    }
    let bounds: [(u32, u32, &[&str]); 5] = [
        (0, 59, &[]),
        (0, 23, &[]),
        (1, 31, &[]),
        (1, 12, &MONTHS),
        (0, 6, &DAYS),
    ];
    let mut all = fields.iter().zip(bounds);
    all.find_map(|(field, bounds)| {
        field
            .split(',')
            .filter(|range| !range.is_empty())
            .find_map(|range| range_wrong(range, bounds))
    })
}

const MONTHS: [&str; 12] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

fn number(text: &str, least: u32, words: &[&str]) -> Result<u32, String> {
    let lower = text.to_lowercase();
    if let Some(at) = words.iter().position(|word| *word == lower) {
        return Ok(u32::try_from(at).unwrap_or(0) + least);
    }
    text.parse().map_err(|_| {
        format!("failed to parse int from {text}: strconv.Atoi: parsing {text:?}: invalid syntax")
    })
}

fn range_wrong(range: &str, (least, most, words): (u32, u32, &[&str])) -> Option<String> {
    match bounds_of(range, least, most, words) {
        Err(why) => Some(why),
        Ok((start, end, step)) => {
            if start < least {
                Some(format!(
                    "beginning of range ({start}) below minimum ({least}): {range}"
                ))
            } else if end > most {
                Some(format!(
                    "end of range ({end}) above maximum ({most}): {range}"
                ))
            } else if start > end {
                Some(format!(
                    "beginning of range ({start}) beyond end of range ({end}): {range}"
                ))
            } else if step == 0 {
                Some(format!(
                    "step of range should be a positive number: {range}"
                ))
            } else {
                None
            }
        }
    }
}

fn bounds_of(
    range: &str,
    least: u32,
    most: u32,
    words: &[&str],
) -> Result<(u32, u32, u32), String> {
    let steps: Vec<&str> = range.split('/').collect();
    let (span, step) = match steps.as_slice() {
        [span] => (*span, None),
        [span, step] => (*span, Some(*step)),
        _ => return Err(format!("too many slashes: {range}")),
    };
    let ends: Vec<&str> = span.split('-').collect();
    let (start, mut end) = match ends.as_slice() {
        ["*" | "?"] => (least, most),
        [one] => {
            let one = number(one, least, words)?;
            (one, one)
        }
        [start, end] => (number(start, least, words)?, number(end, least, words)?),
        _ => return Err(format!("too many hyphens: {range}")),
    };
    let step = match step {
        None => 1,
        Some(step) => {
            if ends.len() == 1 && !matches!(span, "*" | "?") {
                end = most;
            }
            number(step, 0, &[])?
        }
    };
    Ok((start, end, step))
}

/// Where there are time zones.
const AREAS: [&str; 17] = [
    "Africa",
    "America",
    "Antarctica",
    "Arctic",
    "Asia",
    "Atlantic",
    "Australia",
    "Brazil",
    "Canada",
    "Chile",
    "Etc",
    "Europe",
    "Indian",
    "Mexico",
    "Pacific",
    "SystemV",
    "US",
];

/// Whether a text has the form of a name of a time zone; which there are, only a machine with the
/// tables knows.
pub(super) fn may_be_zone(zone: &str) -> bool {
    const PLAIN: [&str; 20] = [
        "UTC",
        "GMT",
        "Local",
        "EST",
        "EST5EDT",
        "CET",
        "CST6CDT",
        "EET",
        "HST",
        "MET",
        "MST",
        "MST7MDT",
        "PST8PDT",
        "WET",
        "Japan",
        "Singapore",
        "Israel",
        "Turkey",
        "Poland",
        "Zulu",
    ];
    if zone.eq_ignore_ascii_case("local") {
        return false;
    }
    let form = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_uppercase())
            && part
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'+'))
    };
    let below = |(area, rest): (&str, &str)| AREAS.contains(&area) && rest.split('/').all(form);
    PLAIN.contains(&zone) || zone.split_once('/').is_some_and(below)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_are_read_as_cron_reads_them() {
        for fine in [
            "* * * * *",
            "*/5 0-3 1,15 jan-mar sun",
            "@daily",
            "0 12 * * 6",
            "@every 1h",
        ] {
            assert_eq!(wrong(fine), None, "{fine}");
        }
        let cases = [
            ("x", "expected exactly 5 fields, found 1: [x]"),
            ("* * * * 8", "end of range (8) above maximum (6): 8"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            (
                "5-3 * * * *",
                "beginning of range (5) beyond end of range (3): 5-3",
            ),
            (
                "*/0 * * * *",
                "step of range should be a positive number: */0",
            ),
        ];
        for (schedule, why) in cases {
            assert_eq!(wrong(schedule).as_deref(), Some(why), "{schedule}");
        }
    }
}
