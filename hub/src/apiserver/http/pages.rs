//! Paths that are no objects: discovery, version, health, metrics, OpenAPI, keys of tokens.

use super::negotiate::{READABLE, aggregated, openapi_acceptable};
use super::respond::{self, Body};
use super::router::{Asked, Router, method_not_allowed};
use crate::apiserver::authn::ISSUER;
use crate::apiserver::error::ApiError;
use crate::apiserver::{discovery, openapi};
use common::admin::Checks;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH, LOCATION, VARY};
use http::{HeaderValue, Method, Response, StatusCode};
use serde_json::{Value, json};

impl Router {
    pub(super) fn page(&self, asked: &Asked<'_>) -> Response<Body> {
        let path = asked.info.path.trim_end_matches('/');
        let parts: Vec<&str> = path.split('/').skip(1).collect();
        // Health and metrics are at their paths exactly.
        let of_health = matches!(parts.first(), Some(&("healthz" | "livez" | "readyz")));
        let exact = of_health || parts == ["metrics"];
        if exact && path.len() < asked.info.path.len() {
            return respond::not_found();
        }
        let Some(response) = self.find_page(asked, &parts) else {
            return respond::not_found();
        };
        let fits = match *asked.method {
            Method::GET => true,
            Method::HEAD => parts != ["version"],
            // However it is asked, the answer about health and of OpenAPI is the same.
            _ => of_health || parts.starts_with(&["openapi", "v3"]),
        };
        if !fits {
            return method_not_allowed(&asked.reply);
        }
        response
    }

    fn find_page(&self, asked: &Asked<'_>, parts: &[&str]) -> Option<Response<Body>> {
        let kinds = self.parts().catalogue.snapshot();
        let ok = |value: &Value| Some(asked.reply.value(StatusCode::OK, value));
        match parts {
            [] | ["index.html"] => ok(&discovery::paths(&kinds)),
            ["api"] | ["apis"] => {
                if let Some(version) = aggregated(asked.header(ACCEPT)) {
                    let core = parts == ["api"];
                    return Some(self.aggregated(asked, version, core));
                }
                if !asked.acceptable {
                    return Some(asked.reply.error(&ApiError::not_acceptable(&READABLE)));
                }
                if parts == ["api"] {
                    return ok(&discovery::core_versions(&self.parts().address));
                }
                ok(&discovery::groups(&kinds))
            }
            ["api", ..] | ["apis", _, ..] if !asked.acceptable => {
                Some(asked.reply.error(&ApiError::not_acceptable(&READABLE)))
            }
            ["api", version] => match discovery::resources(&kinds, "", version) {
                Some(list) => Some(asked.reply.written(&list, discovery::written)),
                None => Some(asked.reply.error(&ApiError::no_such_path())),
            },
            ["apis", group] => ok(&discovery::group(&kinds, group)?),
            ["apis", group, version] => match discovery::resources(&kinds, group, version) {
                Some(list) => Some(asked.reply.written(&list, discovery::written)),
                // Of a group of custom kinds there is no page beside those of its versions.
                None => kinds
                    .all()
                    .iter()
                    .any(|kind| *kind.group == **group && !kind.is_custom())
                    .then(|| asked.reply.error(&ApiError::no_such_path())),
            },
            ["version"] => ok(&discovery::version()),
            ["healthz" | "livez", check @ ..] => {
                self.health(asked, &self.parts().admin.liveness, parts[0], check)
            }
            ["readyz", check @ ..] => {
                self.health(asked, &self.parts().admin.readiness, parts[0], check)
            }
            ["metrics"] => Some(self.metrics()),
            ["openapi", "v2"] => {
                let wanted = asked
                    .header(ACCEPT)
                    .contains("com.github.proto-openapi.spec.v2");
                let content_type = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
                let document = openapi::empty_v2();
                let etag = discovery::etag(&document);
                wanted.then(|| cached(asked, document, &etag, content_type, "no-cache, private"))
            }
            ["openapi", "v3"] if !asked.info.path.ends_with('/') => {
                let index = openapi::index(&kinds).to_string();
                Some(respond::bare(StatusCode::OK, index))
            }
            ["openapi", "v3", path @ ..] => {
                let exact = !asked.info.path.ends_with('/');
                let found = openapi::document(&kinds, &path.join("/")).filter(|_| exact);
                Some(match found {
                    Some((document, hash)) => document_page(asked, path, document, &hash),
                    None => without_body(StatusCode::NOT_FOUND),
                })
            }
            [".well-known", "openid-configuration"] => Some(kept(asked.reply.value(
                StatusCode::OK,
                &json!({
                    "issuer": ISSUER,
                    "jwks_uri": format!("https://{}/openid/v1/jwks", self.parts().address),
                    "response_types_supported": ["id_token"],
                    "subject_types_supported": ["public"],
                    "id_token_signing_alg_values_supported": ["ES256"],
                }),
            ))),
            ["openid", "v1", "jwks"] => {
                let keys = self.parts().authenticator.key_set();
                let mut response = kept(asked.reply.value(StatusCode::OK, &keys));
                response.headers_mut().insert(
                    CONTENT_TYPE,
                    HeaderValue::from_static("application/jwk-set+json"),
                );
                Some(response)
            }
            _ => None,
        }
    }

    fn aggregated(&self, asked: &Asked<'_>, version: &str, core: bool) -> Response<Body> {
        let kinds = self.parts().catalogue.snapshot();
        let body = discovery::aggregated(&kinds, version, core).to_string();
        let etag = discovery::etag(body.as_bytes());
        let content_type =
            format!("application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList");
        cached(asked, body.into(), &etag, &content_type, "public")
    }

    fn health(
        &self,
        asked: &Asked<'_>,
        checks: &Checks,
        name: &str,
        check: &[&str],
    ) -> Option<Response<Body>> {
        let report = checks.report();
        if !check.is_empty() {
            let wanted = check.join("/");
            if wanted == "ping" {
                return Some(respond::bare(StatusCode::OK, "ok"));
            }
            let line = report.lines().find(|line| {
                let named = line.get(3..).unwrap_or_default();
                named.split(' ').next() == Some(&wanted)
            })?;
            return Some(if line.starts_with("[+]") {
                respond::bare(StatusCode::OK, "ok")
            } else {
                let text = format!("internal server error: {}\n", &line[3..]);
                respond::text(StatusCode::INTERNAL_SERVER_ERROR, text)
            });
        }
        let report = format!("[+]ping ok\n{report}");
        Some(if !checks.all_ok() {
            let text = format!("{report}{name} check failed\n");
            respond::text(StatusCode::INTERNAL_SERVER_ERROR, text)
        } else if asked.query.get("verbose").is_some() {
            respond::text(StatusCode::OK, format!("{report}{name} check passed\n"))
        } else {
            respond::text(StatusCode::OK, "ok")
        })
    }

    fn metrics(&self) -> Response<Body> {
        let mut text = String::new();
        let registry = &self.parts().admin.registry;
        let registry = registry
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if prometheus_client::encoding::text::encode(&mut text, &registry).is_err() {
            return respond::text(
                StatusCode::INTERNAL_SERVER_ERROR,
                "failed to encode the metrics\n",
            );
        }
        let mut response = respond::text(StatusCode::OK, text);
        response.headers_mut().insert(
            CONTENT_TYPE,
            HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8"),
        );
        response
    }
}

/// An OpenAPI document. Who asks for it by a hash that it no longer has is sent to the one it has.
fn document_page(
    asked: &Asked<'_>,
    path: &[&str],
    document: bytes::Bytes,
    hash: &str,
) -> Response<Body> {
    if !openapi_acceptable(asked.header(ACCEPT)) {
        let mut response = without_body(StatusCode::NOT_ACCEPTABLE);
        let headers = response.headers_mut();
        headers.append(VARY, HeaderValue::from_static("Accept"));
        return response;
    }
    let etag = format!("\"{hash}\"");
    // A document that is asked for by its hash never changes.
    let fresh = match asked.query.get("hash") {
        Some(wanted) if wanted == hash => "public, immutable",
        _ => "no-cache, private",
    };
    match asked.query.get("hash").filter(|wanted| !wanted.is_empty()) {
        Some(wanted) if wanted != hash => {
            let empty = bytes::Bytes::new();
            let mut response = cached(asked, empty, &etag, "application/json", fresh);
            *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
            let place = format!("/openapi/v3/{}?hash={hash}", path.join("/"));
            if let Ok(place) = HeaderValue::from_str(&place) {
                response.headers_mut().insert(LOCATION, place);
            }
            response
        }
        _ => cached(asked, document, &etag, "application/json", fresh),
    }
}

/// An answer with a status alone.
fn without_body(code: StatusCode) -> Response<Body> {
    let mut response = respond::bare(code, "");
    response.headers_mut().remove(CONTENT_TYPE);
    response
}

/// An answer that clients may keep for an hour.
fn kept(mut response: Response<Body>) -> Response<Body> {
    response.headers_mut().insert(
        CACHE_CONTROL,
        HeaderValue::from_static("public, max-age=3600"),
    );
    response
}

/// A body that clients may keep, and ask about by its tag.
fn cached(
    asked: &Asked<'_>,
    body: bytes::Bytes,
    etag: &str,
    content_type: &str,
    fresh: &'static str,
) -> Response<Body> {
    let known = asked
        .header(IF_NONE_MATCH)
        .split(',')
        .any(|tag| tag.trim().trim_start_matches("W/") == etag);
    let mut response = if known {
        let mut response = Response::new(respond::whole(bytes::Bytes::new()));
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        response
    } else {
        asked.reply.raw(body)
    };
    let headers = response.headers_mut();
    for (name, value) in [(ETAG, etag), (CONTENT_TYPE, content_type)] {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(name, value);
        }
    }
    headers.insert(CACHE_CONTROL, HeaderValue::from_static(fresh));
    headers.append(VARY, HeaderValue::from_static("Accept"));
    response
}
