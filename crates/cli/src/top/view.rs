//! The views of `pegel top`, and the order of series in a list.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TopView {
    Node,
    Processes,
    Gpus,
    Disks,
    Network,
    Pressure,
    Programs,
    Metrics,
    /// The nodes below a parent.
    Nodes,
}

impl TopView {
    /// The views of an agent without nodes below it.
    pub(super) const ALL: [TopView; 8] = [
        TopView::Node,
        TopView::Processes,
        TopView::Gpus,
        TopView::Disks,
        TopView::Network,
        TopView::Pressure,
        TopView::Programs,
        TopView::Metrics,
    ];
    pub(super) const OF_PARENT: [TopView; 9] = [
        TopView::Node,
        TopView::Processes,
        TopView::Gpus,
        TopView::Disks,
        TopView::Network,
        TopView::Pressure,
        TopView::Programs,
        TopView::Metrics,
        TopView::Nodes,
    ];

    pub(super) fn label(self) -> &'static str {
        match self {
            TopView::Node => "node",
            TopView::Processes => "processes",
            TopView::Gpus => "GPUs",
            TopView::Disks => "disks",
            TopView::Network => "network",
            TopView::Pressure => "pressure",
            TopView::Programs => "programs",
            TopView::Metrics => "metrics",
            TopView::Nodes => "nodes",
        }
    }

    /// Returns whether the view is a list with a selected row.
    pub(super) fn is_list(self) -> bool {
        matches!(
            self,
            TopView::Processes | TopView::Programs | TopView::Metrics | TopView::Nodes
        )
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SortKey {
    Name,
    Value,
    Rate,
}

impl SortKey {
    pub(super) const ALL: [SortKey; 3] = [SortKey::Name, SortKey::Value, SortKey::Rate];

    pub(super) fn label(self) -> &'static str {
        match self {
            SortKey::Name => "name",
            SortKey::Value => "value",
            SortKey::Rate => "rate",
        }
    }
}

/// Returns the element that is `by` places after another one, in a circle.
pub(super) fn cycle<T: Copy + PartialEq>(all: &[T], current: T, by: isize) -> T {
    let position = all.iter().position(|element| *element == current);
    let next = position.unwrap_or(0) as isize + by;
    let next = next.rem_euclid(all.len().max(1) as isize);
    all.get(next as usize).copied().unwrap_or(current)
}
