//! Metrics as text: Prometheus' own format 0.0.4, which everything reads, or OpenMetrics for who asks.
//!
//! `prometheus-client` writes OpenMetrics alone. Its text is turned into the older format here: there a
//! counter's name has its `_total`, units are part of names, and nothing says where the text ends.

use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;
use std::fmt::{self, Write as _};

/// Prometheus' text format.
pub const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
/// OpenMetrics.
pub const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// All metrics of a registry, in the form that an `Accept` header likes best, and what that form is called.
pub fn render(registry: &Registry, accept: &str) -> Result<(String, &'static str), fmt::Error> {
    let mut open = String::new();
    text::encode(&mut open, registry)?;
    if prefers_open_metrics(accept) {
        return Ok((open, OPEN_METRICS));
    }
    Ok((plain(&open)?, TEXT))
}

/// Whether OpenMetrics is named, and no form that is text is liked better. Whoever takes anything gets text.
fn prefers_open_metrics(accept: &str) -> bool {
    let weight = |wanted: &str| {
        let mut ranges = accept.split(',').filter_map(|range| {
            let mut parts = range.split(';').map(str::trim);
            let named = parts.next()?.eq_ignore_ascii_case(wanted);
            let weight = parts.find_map(|part| part.strip_prefix("q="));
            named.then(|| weight.map_or(Some(1.0), |text| text.parse::<f32>().ok()))?
        });
        ranges.next().unwrap_or(0.0)
    };
    let open = weight("application/openmetrics-text");
    open > 0.0 && open >= weight("text/plain")
}

/// OpenMetrics as text of version 0.0.4.
fn plain(open: &str) -> Result<String, fmt::Error> {
    let mut out = String::with_capacity(open.len());
    // The help of a family comes before its type, and is about the name that the type decides.
    let mut help = None;
    for line in open.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ').map(|(_, help)| help);
        } else if let Some((name, kind)) = line
            .strip_prefix("# TYPE ")
            .and_then(|rest| rest.split_once(' '))
        {
            let (suffix, kind) = match kind {
                "counter" => ("_total", "counter"),
                "info" => ("_info", "gauge"),
                "unknown" => ("", "untyped"),
                other => ("", other),
            };
            if let Some(help) = help.take() {
                writeln!(out, "# HELP {name}{suffix} {help}")?;
            }
            writeln!(out, "# TYPE {name}{suffix} {kind}")?;
        } else if !line.starts_with('#') {
            // A sample; what follows its value as a comment is an exemplar.
            let sample = line.split(" # {").next().unwrap_or(line);
            writeln!(out, "{sample}")?;
        }
    }
    Ok(out)
}

/// One metric, as a reference lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Described {
    /// Its name in text of version 0.0.4.
    pub name: String,
    /// `counter`, `gauge` or `histogram`.
    pub kind: String,
    /// What it says.
    pub help: String,
    /// The names of its labels.
    pub labels: Vec<String>,
}

/// The metrics of a registry that have a value, in the order of their names.
pub fn describe(registry: &Registry) -> Result<Vec<Described>, fmt::Error> {
    let (text, _) = render(registry, "")?;
    let mut all: Vec<Described> = Vec::new();
    let mut help = "";
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ').map_or("", |(_, help)| help);
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap_or((rest, ""));
            all.push(Described {
                name: name.to_owned(),
                kind: kind.to_owned(),
                help: help.to_owned(),
                labels: Vec::new(),
            });
        } else if let (Some(last), Some((_, rest))) = (all.last_mut(), line.split_once('{')) {
            for label in rest.split("\",") {
                let name = label.split("=\"").next().unwrap_or_default();
                let known = last.labels.iter().any(|one| one == name);
                if !known && name != "le" && label.contains("=\"") {
                    last.labels.push(name.to_owned());
                }
            }
        }
    }
    // Of two of a name the one that has labels: the other has no value yet.
    all.sort_by(|a, b| (&a.name, &b.labels).cmp(&(&b.name, &a.labels)));
    all.dedup_by(|a, b| a.name == b.name);
    Ok(all)
}

/// Metrics as a table in Markdown.
pub fn table(metrics: &[Described]) -> String {
    let mut out = "| name | type | labels | meaning |\n|---|---|---|---|\n".to_owned();
    for one in metrics {
        let labels: Vec<String> = one.labels.iter().map(|name| format!("`{name}`")).collect();
        // Writing to a String cannot fail.
        let _ = writeln!(
            out,
            "| `{}` | {} | {} | {} |",
            one.name,
            one.kind,
            labels.join(", "),
            one.help.trim_end_matches('.'),
        );
    }
    out
}

/// A document with another body between the lines `<!-- NAME -->` and `<!-- end of NAME -->`; as it was,
/// when it has no such lines.
pub fn with_section(document: &str, name: &str, body: &str) -> String {
    let (begin, end) = (
        format!("<!-- {name} -->\n"),
        format!("<!-- end of {name} -->"),
    );
    let Some((before, rest)) = document.split_once(&begin) else {
        return document.to_owned();
    };
    let Some((_, after)) = rest.split_once(&end) else {
        return document.to_owned();
    };
    format!("{before}{begin}{body}{end}{after}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::metrics::counter::Counter;
    use prometheus_client::metrics::family::Family;
    use prometheus_client::metrics::gauge::Gauge;
    use prometheus_client::metrics::histogram::Histogram;
    use prometheus_client::metrics::info::Info;
    use prometheus_client::registry::Unit;
    use std::collections::BTreeSet;

    fn registry() -> Registry {
        let mut registry = Registry::default();
        let asked = Family::<Vec<(String, String)>, Counter>::default();
        let labels = [("verb", "get \"x\""), ("code", "200")];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
        asked.get_or_create(&labels.to_vec()).inc();
        registry.register("asked", "Requests", asked);
        registry.register("length", "Keys that wait", Gauge::<i64>::default());
        let took = Histogram::new([0.1, 1.0]);
        took.observe(0.5);
        registry.register_with_unit("took", "Time", Unit::Seconds, took);
        registry.register("build", "Version", Info::new([("version", "1")]));
        registry
    }

    /// Holds text to the rules of version 0.0.4: each family has its help, then its type, then its samples,
    /// and nothing else stands there.
    fn hold(text: &str) {
        let mut families = BTreeSet::new();
        let (mut family, mut kind) = (String::new(), String::new());
        let mut lines = text.lines().peekable();
        assert!(text.ends_with('\n') && !text.contains("# EOF") && !text.contains("# UNIT"));
        while let Some(line) = lines.next() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let name = rest.split(' ').next().expect("a name");
                assert!(families.insert(name.to_owned()), "{name} comes twice");
                let types = lines.next().expect("a type");
                let rest = types.strip_prefix("# TYPE ").expect("a type");
                let (named, of) = rest.split_once(' ').expect("a type");
                assert_eq!(named, name);
                assert!(["counter", "gauge", "histogram"].contains(&of), "{line}");
                assert_eq!(of == "counter", name.ends_with("_total"), "{name}");
                (family, kind) = (name.to_owned(), of.to_owned());
                continue;
            }
            assert!(!line.starts_with('#'), "{line}");
            let name = line.split(['{', ' ']).next().expect("a name");
            let suffix = name.strip_prefix(&family).expect("of its family");
            let known: &[&str] = match kind.as_str() {
                "histogram" => &["_bucket", "_sum", "_count"],
                _ => &[""],
            };
            assert!(known.contains(&suffix), "{line} in {family}");
            let value = line.rsplit(' ').next().expect("a value");
            assert!(value.parse::<f64>().is_ok(), "{line}");
        }
    }

    #[test]
    fn text_is_what_everything_reads() {
        let (text, form) = render(&registry(), "").expect("renders");
        assert_eq!(form, TEXT);
        hold(&text);
        assert!(text.contains("# TYPE asked_total counter\nasked_total{verb="));
        assert!(text.contains("# TYPE took_seconds histogram\ntook_seconds_sum 0.5\n"));
        assert!(text.contains("# TYPE build_info gauge\nbuild_info{version=\"1\"} 1\n"));
    }

    #[test]
    fn who_asks_for_open_metrics_gets_it() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,\
                          application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        for (accept, open) in [
            (prometheus, true),
            ("application/openmetrics-text", true),
            ("", false),
            ("*/*", false),
            ("text/plain", false),
            (
                "text/plain;version=0.0.4;q=0.8, application/openmetrics-text;q=0.2",
                false,
            ),
            ("application/openmetrics-text;q=0", false),
            ("application/json", false),
        ] {
            let (text, form) = render(&registry(), accept).expect("renders");
            assert_eq!(form == OPEN_METRICS, open, "{accept}");
            assert_eq!(text.ends_with("# EOF\n"), open, "{accept}");
        }
    }

    #[test]
    fn a_reference_names_what_there_is() {
        let all = describe(&registry()).expect("describes");
        let names: Vec<&str> = all.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(
            names,
            ["asked_total", "build_info", "length", "took_seconds"]
        );
        assert_eq!(all[0].labels, ["verb", "code"]);
        let row = "| `length` | gauge |  | Keys that wait |\n";
        assert!(table(&all).contains(row), "{}", table(&all));
        let document = "a\n<!-- hub -->\nold\n<!-- end of hub -->\nb\n";
        let now = with_section(document, "hub", "new\n");
        assert_eq!(now, "a\n<!-- hub -->\nnew\n<!-- end of hub -->\nb\n");
        assert_eq!(with_section(document, "agent", "new\n"), document);
    }
}
