//! Why nobody in a member answered, for programs: the `reason` of the one cause in `details` of such a Status. What a
//! member's own API server answers has none of these.

/// The agent dialled no tunnel to the hub; the hub says so.
pub const NO_TUNNEL: &str = "NoTunnel";
/// The member's owner lets this user of the hub in not; the agent says so.
pub const NOT_LET_IN: &str = "UserNotLetIn";
/// The member's owner opens it for reading alone; the agent says so.
pub const READING_ALONE: &str = "ReadingAlone";

/// What warns somebody that a group of theirs stayed behind.
pub fn left_out(cluster: &str, group: &str) -> String {
    let plain = |c: &char| *c != '"' && *c != '\\' && !c.is_control();
    let group: String = group.chars().filter(plain).take(128).collect();
    format!("cluster {cluster} does not let group {group} in")
}

#[cfg(test)]
mod tests {
    use super::left_out;

    #[test]
    fn a_warning_is_one_quoted_text() {
        let said = left_out("m1", "a\"b\\c\r\nd");
        assert_eq!(said, "cluster m1 does not let group abcd in");
        assert!(left_out("m1", &"x".repeat(1000)).len() < 200);
    }
}
