//! The operator who hands a new token to whoever says that it needs one.

use super::super::books::text;
use super::super::image::{ANEW, by_files};
use super::super::{SECRETS, get, token_secret};
use super::{Stage, ask};
use common::labels::{TOKEN_CLUSTER, TOKEN_REPLACE};
use common::names::{AGENT_NAMESPACE, STATUS_CONFIG_MAP};
use serde_json::Value;
use std::fs;

/// What an agent says whose certificate has ended.
const EXPIRED: &str = "CertificateExpired";
/// And one whose token was made when the hub's clock was ahead.
const SPENT: &str = "TokenSpent";

impl Stage {
    /// What the agent of a member says of itself; null where nothing was said.
    async fn report(&self, number: u8) -> Value {
        if by_files(number) {
            let file = self.dir.path().join(format!("m{number}.state/status.json"));
            let report = fs::read_to_string(file).unwrap_or_default();
            return serde_json::from_str(&report).unwrap_or_default();
        }
        let member = self.members[usize::from(number - 1)].link();
        let path = format!("/api/v1/namespaces/{AGENT_NAMESPACE}/configmaps/{STATUS_CONFIG_MAP}");
        get(&member, &path).await["data"].take()
    }

    /// Whether it says that its certificate has ended.
    pub(super) async fn says_expired(&self, number: u8) -> bool {
        self.aged.is_some() && text(&self.report(number).await, "/reason") == EXPIRED
    }

    /// Makes a token for everybody who needs one, as `towline token create --cluster NAME --replace`, and hands it
    /// over; what the hub cannot do now is tried again. Who can need one are agents where clocks are set.
    pub(super) async fn hand_over(&mut self) {
        let is_timeless = self.ledger.look(|books| books.is_timeless);
        let Some(hub) = self.link().filter(|_| is_timeless) else {
            return;
        };
        for number in self
            .numbers()
            .filter(|it| self.stays(*it))
            .collect::<Vec<_>>()
        {
            let (at, report) = (usize::from(number - 1), self.report(number).await);
            let (answered, count) = &self.asked_for[at];
            if ![EXPIRED, SPENT].contains(&text(&report, "/reason")) || *answered == report {
                continue;
            }
            let count = count + 1;
            let token = format!("{ANEW}{number:x}{count:x}.0123456789abcdef");
            let name = format!("m{number}");
            let of = [(TOKEN_CLUSTER, name.as_str()), (TOKEN_REPLACE, "true")];
            let made = ask(&hub, "POST", SECRETS, token_secret(&token, 1, &of)).await;
            if made.status().is_server_error() {
                continue;
            }
            assert_eq!(made.status(), 201, "{made:?}");
            let file = self.dir.path().join(format!("{name}.token"));
            fs::write(file, &token).expect("written");
            self.hands[at].token = token;
            self.asked_for[at] = (report, count);
            self.handed_over = self.world.age();
        }
    }
}
