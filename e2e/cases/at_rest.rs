//! What takes minutes of doing nothing; first by its name, so that it runs beside everything else.

use anyhow::Result;

/// See [`super::works::left_alone_for_five_minutes`].
#[tokio::test(flavor = "multi_thread")]
async fn works_others_decide_about_are_left_alone() -> Result<()> {
    super::works::left_alone_for_five_minutes().await
}
