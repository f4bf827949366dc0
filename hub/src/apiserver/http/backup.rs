//! The page that answers with a backup.

use super::respond::Body;
use super::router::{Asked, Parts, method_not_allowed};
use crate::access::Cut;
use crate::apiserver::backup;
use crate::apiserver::error::ApiError;
use bytes::{Bytes, BytesMut};
use futures::stream;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Response};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use rand::Rng as _;
use tokio::fs::File;
use tokio::io::AsyncReadExt as _;

/// How much is read and sent at once.
const PIECE: usize = 256 * 1024;

/// Makes a backup and answers with it, while it is read.
pub(super) async fn answer(parts: &Parts, asked: &Asked<'_>) -> Result<Response<Body>, ApiError> {
    if asked.method != Method::POST {
        return Ok(method_not_allowed(&asked.plain));
    }
    let number = parts.registry.draws().draw(|rng| rng.random());
    let made = backup::make(parts.registry.store(), &parts.data_dir, number).await?;
    let pieces = stream::unfold(Some(File::from_std(made)), |file| async move {
        let mut file = file?;
        let mut piece = BytesMut::with_capacity(PIECE);
        match file.read_buf(&mut piece).await {
            Ok(0) => None,
            Ok(_) => Some((Ok(Frame::data(Bytes::from(piece))), Some(file))),
            Err(error) => {
                tracing::error!(%error, "failed to read the backup that is being sent");
                Some((Err(Cut), None))
            }
        }
    });
    let mut response = Response::new(StreamBody::new(pieces).boxed_unsync());
    response.headers_mut().insert(
        CONTENT_TYPE,
        HeaderValue::from_static("application/octet-stream"),
    );
    Ok(response)
}
