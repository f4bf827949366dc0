//! The page that answers with a backup of the hub: everything in the store, and the keys.

use super::error::ApiError;
use super::http::respond::Body;
use super::http::router::Parts;
use super::keys::FOLDER;
use super::store::Attachment;
use bytes::{Bytes, BytesMut};
use futures::stream;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use std::convert::Infallible;
use std::io;
use std::path::Path;
use tokio::fs::File;
use tokio::io::AsyncReadExt as _;

/// Its path.
pub const PAGE: &str = "/towline.dev/backup";
/// How much is read and sent at once.
const PIECE: usize = 256 * 1024;

/// The files beside the database that belong to a backup.
pub fn attachments(data_dir: &Path) -> io::Result<Vec<Attachment>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(data_dir.join(FOLDER))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        // Half-written files are nobody's.
        if !entry.file_type()?.is_file() || name.ends_with(".new") {
            continue;
        }
        files.push(Attachment {
            path: format!("{FOLDER}/{name}"),
            content: std::fs::read(entry.path())?,
        });
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

/// Makes a backup and answers with it.
pub(super) async fn answer(parts: &Parts) -> Result<Response<Body>, ApiError> {
    let number: u64 = rand::random();
    let path = parts.data_dir.join(format!(".backup-{number:016x}"));
    let files = attachments(&parts.data_dir).map_err(ApiError::internal)?;
    let store = parts.registry.store();
    let made = store.backup(&path, files).await;
    let opened = match made {
        Ok(_) => File::open(&path).await.map_err(ApiError::internal),
        Err(error) => Err(ApiError::internal(common::errors::chain(&error))),
    };
    // The open file is enough, and nothing is left behind whatever happens.
    let removed = tokio::fs::remove_file(&path).await;
    let file = opened?;
    removed.map_err(ApiError::internal)?;
    let pieces = stream::unfold(file, |mut file| async move {
        let mut piece = BytesMut::with_capacity(PIECE);
        match file.read_buf(&mut piece).await {
            Ok(0) => None,
            Ok(_) => Some((Ok::<_, Infallible>(Frame::data(Bytes::from(piece))), file)),
            Err(error) => {
                // The file is cut short, which whoever opens it notices.
                tracing::error!(%error, "failed to read the backup that is being sent");
                None
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
