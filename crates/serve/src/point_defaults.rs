//! What all ways to write points over HTTP share.

use pegel_ingest::point_batch::PointDefaults;

/// For points of OpenTSDB's `put`, in a body or in a line.
pub(crate) const PUT_DEFAULTS: PointDefaults<'static> = PointDefaults {
    help: "Sent by a program with put.",
    level: 1,
    not_before: None,
};

/// For points of `POST /api/metrics`.
pub(crate) const DRAGON_DEFAULTS: PointDefaults<'static> = PointDefaults {
    help: "Sent by a program to /api/metrics.",
    level: 1,
    not_before: None,
};
