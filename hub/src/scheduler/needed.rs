//! Whether a binding is to be placed again, by what it says about itself.

/// What a binding says about itself and its last placement.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Standing {
    /// It is being deleted.
    pub deleting: bool,
    /// Someone told the scheduler to leave it alone.
    pub suspended: bool,
    /// Nothing says where it goes: it follows those that refer to it.
    pub follows: bool,
    /// Its placement differs from the one that was applied, where it matters.
    pub placement_changed: bool,
    /// Its targets do not have the replicas that it wants.
    pub replicas_changed: bool,
    /// Someone asked that it be placed afresh, after it was placed last.
    pub triggered: bool,
    /// Every chosen cluster gets it whole: a cluster that comes gets it too.
    pub whole: bool,
    /// A cluster where it is, is being deleted.
    pub target_leaving: bool,
    /// It could not be placed the last time.
    pub pending: bool,
    /// It was placed, and nothing says so yet.
    pub unsaid: bool,
    /// Its generation is not the one that was looked at last.
    pub unseen: bool,
}

/// What is to be done about a binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Nothing.
    Nothing,
    /// Only its generation is to be noted as looked at.
    Note,
    /// It is to be placed.
    Place(Why),
}

/// Why it is to be placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// Its placement changed.
    Placement,
    /// Its replicas changed.
    Replicas,
    /// Someone asked for it.
    Triggered,
    /// Clusters may have come or gone.
    Clusters,
    /// A cluster where it is, is being deleted.
    TargetLeaving,
    /// It could not be placed the last time.
    Pending,
    /// It was placed, and nothing says so yet.
    Unsaid,
}

/// Whether a binding is to be placed again; the first reason counts.
pub fn needed(standing: &Standing) -> Need {
    if standing.deleting || standing.suspended || standing.follows {
        return Need::Nothing;
    }
    let reasons = [
        (standing.placement_changed, Why::Placement),
        (standing.replicas_changed, Why::Replicas),
        (standing.triggered, Why::Triggered),
        (standing.whole, Why::Clusters),
        (standing.target_leaving, Why::TargetLeaving),
        (standing.pending, Why::Pending),
        (standing.unsaid, Why::Unsaid),
    ];
    let first = reasons.into_iter().find(|(holds, _)| *holds);
    match first {
        Some((_, why)) => Need::Place(why),
        None if standing.unseen => Need::Note,
        None => Need::Nothing,
    }
}

/// Whether someone asked, at `asked`, for what was placed last at `placed` to be placed afresh; both in seconds, as
/// the API keeps them.
pub fn is_triggered(asked: Option<i64>, placed: Option<i64>) -> bool {
    matches!((asked, placed), (Some(asked), Some(placed)) if asked > placed)
}

/// The time that a WorkloadRebalancer made at `created` puts on a binding; none where a later one is there.
pub fn rebalance(asked: Option<i64>, created: i64) -> Option<i64> {
    asked.is_none_or(|asked| asked < created).then_some(created)
}
