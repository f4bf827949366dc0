//! What `towline unregister` asks for: the value of the annotation that permits a Cluster's deletion.

/// What the agent does with the member when its Cluster is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Delete what the Works made, then remove the agent itself.
    RemoveWorkloads,
    /// Take our labels off, leave everything running, then remove the agent itself.
    KeepWorkloads,
    /// The member is gone: the hub does not wait for the agent.
    Force,
}

impl Mode {
    /// The annotation's value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RemoveWorkloads => "remove-workloads",
            Self::KeepWorkloads => "keep-workloads",
            Self::Force => "force",
        }
    }

    /// Reads the annotation; an unknown value is none, because deleting is the stronger promise.
    pub fn parse(value: &str) -> Option<Self> {
        [Self::RemoveWorkloads, Self::KeepWorkloads, Self::Force]
            .into_iter()
            .find(|mode| mode.as_str() == value)
    }
}

#[cfg(test)]
mod tests {
    use super::Mode;

    #[test]
    fn every_mode_reads_back() {
        for mode in [Mode::RemoveWorkloads, Mode::KeepWorkloads, Mode::Force] {
            assert_eq!(Mode::parse(mode.as_str()), Some(mode));
        }
        assert_eq!(Mode::parse("yes"), None);
    }
}
