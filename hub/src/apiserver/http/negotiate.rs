//! How bodies come and go: media types, shapes of answers, options in the query. Pure.

use crate::apiserver::error::{ApiError, FieldError, GroupKind};
use crate::apiserver::request::{FieldValidation, MediaType, PatchKind, Query};
use crate::apiserver::schema::duration_nanos;
use serde_json::json;
use std::time::Duration;

/// Media types of bodies that are understood.
pub const READABLE: [&str; 3] = [
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
];
/// Media types of the events of a watch.
pub const STREAMED: [&str; 2] = [
    "application/json;stream=watch",
    "application/vnd.kubernetes.protobuf;stream=watch",
];
/// Types of patches of custom kinds.
const CUSTOM_PATCHES: [&str; 3] = [
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/apply-patch+yaml",
];
/// Longest name of a field manager.
const MANAGER_MAX: usize = 128;

/// How an answer is encoded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Format {
    /// `application/json`.
    #[default]
    Json,
    /// `application/yaml`.
    Yaml,
}

/// What an answer shows of objects.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Shape {
    /// Objects as they are.
    #[default]
    Object,
    /// A table, in this version of `meta.k8s.io`.
    Table(&'static str),
    /// The metadata of one object or of those of a watch, in this version of `meta.k8s.io`.
    Partial(&'static str),
    /// The metadata of a list, in this version of `meta.k8s.io`.
    PartialList(&'static str),
}

/// What the client wants back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Accepted {
    /// How the answer is encoded.
    pub format: Format,
    /// Whole objects, or what of them.
    pub shape: Shape,
    /// Whether it is laid out for people.
    pub pretty: bool,
}

/// One media type of an Accept header.
struct Clause<'a> {
    media: &'a str,
    params: Vec<(&'a str, &'a str)>,
}

impl Clause<'_> {
    fn param(&self, key: &str) -> &str {
        let found = self.params.iter().find(|(name, _)| *name == key);
        found.map(|(_, value)| *value).unwrap_or_default()
    }
}

/// The clauses of an Accept header, the most wanted first.
fn clauses(header: &str) -> Vec<Clause<'_>> {
    let mut clauses: Vec<(f32, Clause<'_>)> = header
        .split(',')
        .filter_map(|clause| {
            let mut parts = clause.split(';').map(str::trim);
            let media = parts.next().filter(|media| !media.is_empty())?;
            let params: Vec<_> = parts.filter_map(|part| part.split_once('=')).collect();
            let clause = Clause { media, params };
            let quality = clause.param("q").parse().unwrap_or(1.0);
            Some((quality, clause))
        })
        .collect();
    clauses.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    clauses.into_iter().map(|(_, clause)| clause).collect()
}

/// Whether an OpenAPI document, which is JSON, is accepted.
pub fn openapi_acceptable(header: &str) -> bool {
    let wanted = clauses(header);
    let json = ["application/json", "application/*", "*/*", "*/json"];
    let mut wanted = wanted.iter();
    header.trim().is_empty() || wanted.any(|clause| json.contains(&clause.media))
}

/// What to answer with; `None` when nothing that is accepted can be written.
pub fn accepted(header: &str, query: &Query, user_agent: &str) -> Option<Accepted> {
    chosen(header, query, user_agent, true)
}

/// The same for answers that no table shows: those to questions, and of some subresources.
pub fn accepted_untabled(header: &str, query: &Query, user_agent: &str) -> Option<Accepted> {
    chosen(header, query, user_agent, false)
}

fn chosen(header: &str, query: &Query, user_agent: &str, tables: bool) -> Option<Accepted> {
    let pretty = match query.get("pretty") {
        Some(_) => query.flag("pretty"),
        None => ["curl", "Wget", "Mozilla/5.0"]
            .iter()
            .any(|people| user_agent.starts_with(people)),
    };
    let wanted = clauses(header);
    if wanted.is_empty() {
        return Some(Accepted {
            pretty,
            ..Accepted::default()
        });
    }
    wanted.iter().find_map(|clause| {
        let format = match clause.media {
            "application/json" | "application/*" | "*/*" => Format::Json,
            "application/yaml" => Format::Yaml,
            _ => return None,
        };
        let shape = shape(clause)?;
        let tabled = matches!(shape, Shape::Table(_));
        (tables || !tabled).then_some(Accepted {
            format,
            shape,
            pretty,
        })
    })
}

fn shape(clause: &Clause<'_>) -> Option<Shape> {
    let version = match clause.param("v") {
        "v1" => "v1",
        "v1beta1" => "v1beta1",
        _ => "",
    };
    match clause.param("as") {
        "" => Some(Shape::Object),
        _ if clause.param("g") != "meta.k8s.io" || version.is_empty() => None,
        "Table" => Some(Shape::Table(version)),
        "PartialObjectMetadata" => Some(Shape::Partial(version)),
        "PartialObjectMetadataList" => Some(Shape::PartialList(version)),
        _ => None,
    }
}

/// Which version of the aggregated discovery is wanted before the plain one.
pub fn aggregated(header: &str) -> Option<&'static str> {
    for clause in clauses(header) {
        if !matches!(clause.media, "application/json" | "application/*" | "*/*") {
            continue;
        }
        if clause.param("as") == "APIGroupDiscoveryList"
            && clause.param("g") == "apidiscovery.k8s.io"
        {
            // The version before it is no longer served.
            if clause.param("v") == "v2" {
                return Some("v2");
            }
            continue;
        }
        if clause.param("as").is_empty() {
            return None;
        }
    }
    None
}

/// A media type without its parameters.
fn bare(content_type: &str) -> &str {
    let bare = content_type.split(';').next().unwrap_or_default();
    bare.trim()
}

/// How a body is encoded; JSON when nobody says.
pub fn media_type(content_type: &str, custom: bool) -> Result<MediaType, ApiError> {
    match bare(content_type) {
        "" | "application/json" => Ok(MediaType::Json),
        "application/yaml" => Ok(MediaType::Yaml),
        "application/vnd.kubernetes.protobuf" if !custom => Ok(MediaType::Protobuf),
        _ => Err(ApiError::unsupported_media_type(if custom {
            &READABLE[..2]
        } else {
            &READABLE
        })),
    }
}

/// How a patch is to be read.
pub fn patch_kind(content_type: &str, custom: bool) -> Result<PatchKind, ApiError> {
    match bare(content_type) {
        "application/json-patch+json" => Ok(PatchKind::Json),
        "application/merge-patch+json" => Ok(PatchKind::Merge),
        "application/apply-patch+yaml" => Ok(PatchKind::Apply),
        "application/strategic-merge-patch+json" if !custom => Ok(PatchKind::Strategic),
        _ if custom => Err(ApiError::unsupported_media_type(&CUSTOM_PATCHES)),
        _ => Err(ApiError {
            details: Some(Default::default()),
            ..ApiError::plain(415, "UnsupportedMediaType", "415: Unsupported Media Type")
        }),
    }
}

/// Whether any type is named that built-in kinds are written in; `application/*` names none.
pub fn is_routed(accept: &str) -> bool {
    let clauses = clauses(accept);
    let named = |media: &str| media == "*/*" || READABLE.contains(&media);
    clauses.is_empty() || clauses.iter().any(|clause| named(clause.media))
}

/// The answer when nothing that is accepted can be written. Where a type could be, but not in the
/// form that is wanted of it, another part of the server says so in other words.
pub fn not_acceptable(accept: &str, collection: bool) -> ApiError {
    let written = ["application/json", "application/yaml", "*/*"];
    let clauses = clauses(accept);
    if clauses.iter().any(|one| written.contains(&one.media)) {
        return ApiError::not_acceptable(&READABLE);
    }
    let mut shown = READABLE.join(", ");
    if collection {
        shown.push_str(
            ", application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch",
        );
    }
    ApiError {
        details: Some(Default::default()),
        ..ApiError::plain(
            406,
            "NotAcceptable",
            format!("406: Not Acceptable\n\nAvailable representations: {shown}"),
        )
    }
}

/// How soon the client wants an answer; the longest time there is when it does not say.
pub fn deadline(query: &Query) -> Result<Duration, ApiError> {
    let text = query.get("timeout").unwrap_or_default();
    if text.is_empty() {
        return Ok(Duration::MAX);
    }
    let nanos = duration_nanos(text).map_err(|why| {
        ApiError::bad_request(format!(
            "invalid timeout specified in the request URL - {why}"
        ))
    })?;
    // Nothing, and less than nothing, mean that nobody waits for less.
    Ok(match u64::try_from(nanos) {
        Ok(nanos) if nanos > 0 => Duration::from_nanos(nanos),
        _ => Duration::MAX,
    })
}

/// The options that every write has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WriteOptions {
    /// Everything but the commit.
    pub dry_run: bool,
    /// Who will own the fields.
    pub field_manager: String,
    /// What happens to unknown fields.
    pub field_validation: FieldValidation,
    /// Whether an apply takes fields from others.
    pub force: Option<bool>,
}

/// Reads and checks the options of a write; `kind` is that of the options.
pub fn write_options(
    kind: &str,
    query: &Query,
    user_agent: &str,
    patch: Option<PatchKind>,
) -> Result<WriteOptions, ApiError> {
    let mut errors = Vec::new();
    let manager = query.get("fieldManager").unwrap_or_default();
    let force = query.get("force").map(|_| query.flag("force"));
    match patch {
        Some(PatchKind::Apply) if manager.is_empty() => errors.push(FieldError::required(
            "fieldManager",
            "is required for apply patch",
        )),
        Some(PatchKind::Apply) | None => {}
        Some(_) if force.is_some() => errors.push(FieldError::forbidden(
            "force",
            "may not be specified for non-apply patch",
        )),
        Some(_) => {}
    }
    if manager.len() > MANAGER_MAX {
        errors.push(FieldError::too_long("fieldManager", MANAGER_MAX));
    }
    if let Some((at, c)) = manager.char_indices().find(|(_, c)| c.is_control()) {
        let detail = format!(
            "invalid character U+{:04X} (at position {at})",
            u32::from(c)
        );
        errors.push(FieldError::invalid("fieldManager", json!(manager), detail));
    }
    let modes: Vec<&str> = query.all("dryRun").collect();
    if modes.iter().any(|mode| *mode != "All") {
        errors.push(FieldError::not_supported("dryRun", json!(modes), &["All"]));
    }
    let validation = query.get("fieldValidation").unwrap_or_default();
    let field_validation = match validation {
        "" | "Warn" => FieldValidation::Warn,
        "Ignore" => FieldValidation::Ignore,
        "Strict" => FieldValidation::Strict,
        _ => {
            errors.push(FieldError::not_supported(
                "fieldValidation",
                json!(validation),
                &["", "Ignore", "Strict", "Warn"],
            ));
            FieldValidation::Warn
        }
    };
    if !errors.is_empty() {
        let kind = GroupKind::new("meta.k8s.io", kind);
        return Err(ApiError::invalid(&kind, "", errors));
    }
    let field_manager = if manager.is_empty() {
        from_user_agent(user_agent)
    } else {
        manager.to_owned()
    };
    Ok(WriteOptions {
        dry_run: !modes.is_empty(),
        field_manager,
        field_validation,
        force,
    })
}

/// A manager's name when none is given: what the client calls itself.
fn from_user_agent(user_agent: &str) -> String {
    let name = user_agent.split('/').next().unwrap_or_default();
    let mut name: String = name.chars().filter(|c| !c.is_control()).collect();
    while name.len() > MANAGER_MAX {
        name.pop();
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accept(header: &str) -> Option<Accepted> {
        accepted(header, &Query::default(), "kubectl/v1.36")
    }

    #[test]
    fn what_clients_send_is_understood() {
        let plain = Accepted::default();
        let table = Accepted {
            shape: Shape::Table("v1"),
            ..plain
        };
        let cases = [
            ("", Some(plain)),
            ("*/*", Some(plain)),
            ("application/json", Some(plain)),
            (
                "application/vnd.kubernetes.protobuf,application/json",
                Some(plain),
            ),
            ("application/vnd.kubernetes.protobuf", None),
            ("text/html", None),
            (
                "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
                Some(table),
            ),
            (
                "application/json;as=Table;v=v9;g=meta.k8s.io,application/json",
                Some(plain),
            ),
            (
                "application/json;q=0.5, application/yaml",
                Some(Accepted {
                    format: Format::Yaml,
                    ..plain
                }),
            ),
            (
                "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
                Some(Accepted {
                    shape: Shape::PartialList("v1"),
                    ..plain
                }),
            ),
        ];
        for (header, want) in cases {
            assert_eq!(accept(header), want, "{header}");
        }
        assert!(
            accepted("", &Query::default(), "curl/8")
                .expect("JSON")
                .pretty
        );
        let query = Query::read(Some("pretty=false"));
        assert!(!accepted("", &query, "curl/8").expect("JSON").pretty);
    }

    #[test]
    fn what_has_no_table_is_shown_in_the_next_form() {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
        let untabled = |header: &str| accepted_untabled(header, &Query::default(), "kubectl/v1.36");
        assert_eq!(untabled(table), None);
        let either = format!("{table},application/json");
        assert_eq!(untabled(&either), Some(Accepted::default()));
    }

    #[test]
    fn what_cannot_be_written_is_told_in_two_ways() {
        let banana = "application/json;as=Banana;g=meta.k8s.io;v=v1";
        assert_eq!(accept(banana), None);
        assert!(
            not_acceptable(banana, false)
                .message
                .starts_with("only the following")
        );
        assert!(
            not_acceptable("text/html", false)
                .message
                .starts_with("406: Not")
        );
    }

    #[test]
    fn a_deadline_is_a_duration() {
        let wanted = |text: &str| deadline(&Query::read(Some(&format!("timeout={text}"))));
        assert_eq!(wanted("1m5s"), Ok(Duration::from_secs(65)));
        assert_eq!(wanted(""), Ok(Duration::MAX));
        assert_eq!(wanted("-1s"), Ok(Duration::MAX));
        for (text, why) in [
            ("abc", "time: invalid duration \"abc\""),
            ("5", "time: missing unit in duration \"5\""),
            ("5x", "time: unknown unit \"x\" in duration \"5x\""),
        ] {
            let error = wanted(text).expect_err(text);
            let lead = "invalid timeout specified in the request URL - ";
            assert_eq!((error.code, error.message), (400, format!("{lead}{why}")));
        }
    }

    #[test]
    fn aggregated_discovery_is_chosen_by_order() {
        let both = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
                    application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,\
                    application/json";
        assert_eq!(aggregated(both), Some("v2"));
        assert_eq!(aggregated("application/json"), None);
        assert_eq!(
            aggregated("application/json;g=apidiscovery.k8s.io;v=v3;as=APIGroupDiscoveryList"),
            None
        );
        let older = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";
        assert_eq!((aggregated(older), accept(older)), (None, None));
        let profile = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList;profile=nopeer,application/json";
        assert_eq!(aggregated(profile), Some("v2"));
    }

    #[test]
    fn options_of_writes_are_checked() {
        let read = |query: &str, patch| {
            write_options(
                "PatchOptions",
                &Query::read(Some(query)),
                "kubectl/v1 x",
                patch,
            )
        };
        let plain = read("", None).expect("fine");
        assert_eq!(plain.field_manager, "kubectl");
        assert!(
            read("dryRun=All&fieldManager=a", None)
                .expect("fine")
                .dry_run
        );
        for (query, patch, message) in [
            (
                "",
                Some(PatchKind::Apply),
                "fieldManager: Required value: is required for apply patch",
            ),
            (
                "force=true",
                Some(PatchKind::Merge),
                "force: Forbidden: may not be specified for non-apply patch",
            ),
            (
                "dryRun=x",
                None,
                "dryRun: Unsupported value: [\"x\"]: supported values: \"All\"",
            ),
            (
                "fieldValidation=x",
                None,
                "fieldValidation: Unsupported value: \"x\": supported values: \"\", \"Ignore\", \"Strict\", \"Warn\"",
            ),
        ] {
            let error = read(query, patch).expect_err(message);
            assert_eq!(error.code, 422);
            assert_eq!(
                error.message,
                format!("PatchOptions.meta.k8s.io \"\" is invalid: {message}")
            );
        }
    }

    #[test]
    fn bodies_of_other_types_are_refused() {
        assert_eq!(
            media_type("application/json; charset=utf-8", true),
            Ok(MediaType::Json)
        );
        assert_eq!(
            media_type("application/vnd.kubernetes.protobuf", false),
            Ok(MediaType::Protobuf)
        );
        assert_eq!(
            media_type("text/plain", false).map_err(|e| e.code),
            Err(415)
        );
        let strategic = "application/strategic-merge-patch+json";
        assert_eq!(patch_kind(strategic, false), Ok(PatchKind::Strategic));
        assert_eq!(patch_kind(strategic, true).map_err(|e| e.code), Err(415));
    }
}
