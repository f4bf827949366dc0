//! `towline token list`.

use crate::cli::output::Named;
use crate::cli::{CliError, ConnectArgs, Format, Output, Table};
use crate::token_secret::{Placement, TOKEN_NAMESPACE, TOKEN_TYPE, Token, Unusable};
use chrono::{DateTime, Utc};
use common::time::{Clock as _, SystemClock};
use common::token::secret_name;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::ListParams;
use serde::Serialize;

/// Arguments of `towline token list`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    connect: ConnectArgs,
    /// How the tokens are shown.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// A token as it may be shown: without its secret.
#[derive(Debug, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
struct Row {
    id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<String>,
    replace: bool,
    uses: usize,
    used: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<DateTime<Utc>>,
    placement: Placement,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    /// Why nobody can register with it, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    unusable: Option<String>,
}

impl Named for Row {
    fn named(&self) -> String {
        format!("secret/{}", secret_name(&self.id))
    }
}

/// Runs the verb.
pub(super) async fn run(args: Args, output: &Output) -> Result<(), CliError> {
    let (client, _) = args.connect.connect("cli token").await?;
    let secrets: Api<Secret> = Api::namespaced(client, TOKEN_NAMESPACE);
    let of_type = ListParams::default().fields(&format!("type={TOKEN_TYPE}"));
    let found = secrets.list(&of_type).await;
    let found = found.map_err(|e| CliError::api("failed to list tokens", e))?;
    let now = SystemClock.now();
    let mut rows: Vec<Row> = found
        .items
        .iter()
        .filter_map(|secret| row(secret, now))
        .collect();
    rows.sort_by(|a, b| a.id.cmp(&b.id));
    if rows.is_empty() && args.output == Format::Table {
        output.note("there are no tokens; make one by `towline token create`");
        return Ok(());
    }
    output.print_values(args.output, &rows, |rows| table(rows, now))
}

fn row(secret: &Secret, now: DateTime<Utc>) -> Option<Row> {
    let id = secret
        .metadata
        .name
        .as_deref()?
        .strip_prefix("bootstrap-token-")?
        .to_owned();
    let data = secret
        .data
        .as_ref()
        .and_then(|data| data.get("description"));
    let description = data.map(|d| String::from_utf8_lossy(&d.0).into_owned());
    let description = description.filter(|text| !text.is_empty());
    match Token::read(secret) {
        Err(Unusable::NotOurs) => None,
        Err(error) => Some(Row {
            id,
            cluster: None,
            replace: false,
            uses: 0,
            used: 0,
            expires: None,
            placement: Placement::default(),
            description,
            unusable: Some(error.to_string()),
        }),
        Ok(token) => Some(Row {
            id,
            cluster: token.cluster.as_ref().map(ToString::to_string),
            replace: token.replace,
            uses: token.uses,
            used: token.reservations.len(),
            expires: token.expires,
            unusable: if token.is_expired(now) {
                Some("it has expired".to_owned())
            } else {
                token.is_spent().then(|| "no use of it is left".to_owned())
            },
            placement: token.placement,
            description,
        }),
    }
}

fn table(rows: &[Row], now: DateTime<Utc>) -> Table {
    let mut table = Table::new(["ID", "CLUSTER", "USED", "EXPIRES", "DESCRIPTION"]);
    for row in rows {
        let cluster = match (&row.cluster, row.replace) {
            (Some(name), true) => format!("{name} (replace)"),
            (Some(name), false) => name.clone(),
            (None, _) => "<any new>".to_owned(),
        };
        table.row([
            row.id.clone(),
            cluster,
            format!("{}/{}", row.used, row.uses),
            row.expires
                .map_or("<never>".to_owned(), |at| remaining(at, now)),
            match (&row.unusable, &row.description) {
                (Some(why), _) => format!("unusable: {why}"),
                (None, Some(text)) => text.clone(),
                (None, None) => "<none>".to_owned(),
            },
        ]);
    }
    table
}

/// The time that is left, in its two largest units.
pub(in crate::cli) fn remaining(at: DateTime<Utc>, now: DateTime<Utc>) -> String {
    let seconds = (at - now).num_seconds();
    if seconds <= 0 {
        return "expired".to_owned();
    }
    let units = [("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)];
    let mut rest = seconds;
    let parts: Vec<String> = units
        .into_iter()
        .filter_map(|(unit, length)| {
            let count = rest / length;
            rest %= length;
            (count > 0).then(|| format!("{count}{unit}"))
        })
        .take(2)
        .collect();
    format!("in {}", parts.join(""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::ByteString;
    use serde_json::json;

    fn now() -> DateTime<Utc> {
        DateTime::from_timestamp(1_767_225_600, 0).expect("in range")
    }

    #[test]
    fn what_is_shown_holds_no_secret() {
        let mut secret: Secret = serde_json::from_value(json!({
            "metadata": {
                "name": "bootstrap-token-abcdef", "creationTimestamp": "2026-01-01T00:00:00Z",
                "annotations": {common::labels::TOKEN_CLUSTER: "m1"},
            },
            "type": TOKEN_TYPE,
        }))
        .expect("a Secret");
        let data = [
            ("token-id", "abcdef"),
            ("token-secret", "0123456789abcdef"),
            ("usage-bootstrap-authentication", "true"),
            ("auth-extra-groups", common::identity::BOOTSTRAP_GROUP),
            ("expiration", "2026-01-02T00:00:00Z"),
            ("description", "for the lab"),
        ];
        let data = data.map(|(k, v)| (k.to_owned(), ByteString(v.as_bytes().to_vec())));
        secret.data = Some(data.into());
        let row = row(&secret, now()).expect("ours");
        let text = table(std::slice::from_ref(&row), now()).to_string();
        assert!(
            text.contains("abcdef   m1        0/1    in 1d     for the lab"),
            "{text}"
        );
        let json = serde_json::to_string(&row).expect("json");
        assert!(!text.contains("0123456789") && !json.contains("0123456789"));
        secret.type_ = Some("Opaque".into());
        assert_eq!(super::row(&secret, now()), None);
    }

    #[test]
    fn screens_are_as_they_were_approved() {
        let row = |id: &str, cluster: Option<&str>, minutes: i64, said: Result<&str, &str>| Row {
            id: id.to_owned(),
            cluster: cluster.map(str::to_owned),
            replace: id == "bbbbbb",
            uses: 3,
            used: 1,
            expires: Some(now() + chrono::Duration::minutes(minutes)),
            placement: Placement::default(),
            description: said.ok().map(str::to_owned),
            unusable: said.err().map(str::to_owned),
        };
        let never = Row {
            expires: None,
            description: None,
            ..row("dddddd", None, 0, Ok(""))
        };
        let rows = [
            row(
                "aaaaaa",
                None,
                1500,
                Ok("for the shops in the north, until the old ones are gone"),
            ),
            row("bbbbbb", Some("member1"), 30, Ok("")),
            row("cccccc", None, -5, Err("it has expired")),
            never,
        ];
        crate::cli::approved::screens("cli/token/screens", "list", |width, colours| {
            table(&rows, now()).coloured(colours).within(Some(width))
        });
    }

    #[test]
    fn time_that_is_left_is_short() {
        let after = |seconds| remaining(now() + chrono::Duration::seconds(seconds), now());
        assert_eq!(after(90_061), "in 1d1h");
        assert_eq!(after(59), "in 59s");
        assert_eq!(after(3600), "in 1h");
        assert_eq!(after(0), "expired");
    }
}
