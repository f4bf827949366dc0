//! Which stage carries a request out.

use super::*;
use crate::apiserver::request::Query;

#[test]
fn a_request_is_carried_out_by_one_stage() {
    for (method, uri, stage) in [
        (Method::GET, "/version", Stage::Page),
        (Method::GET, "/version?watch=1", Stage::Page),
        (Method::GET, "/apis/apps/v1", Stage::Page),
        (Method::POST, "/towline.dev/backup", Stage::Page),
        (Method::GET, MAPS, Stage::Object),
        (Method::POST, MAPS, Stage::Object),
        (Method::GET, "/api/v1/pods?watch=1", Stage::Stream),
        (Method::GET, "/api/v1/watch/pods", Stage::Stream),
    ] {
        let uri: http::Uri = uri.parse().expect("a path");
        let query = Query::read(uri.query());
        let info = RequestInfo::read(&method, uri.path(), &query).expect("a path");
        assert_eq!(Stage::of(&info), stage, "{method} {uri}");
    }
}
