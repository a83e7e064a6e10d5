//! Defaults for points that clients write over HTTP or telnet. The help texts are stored with each
//! series.

use pegel_ingest::point_batch::PointDefaults;

/// Defaults for points of OpenTSDB's `put`, in a request body or a telnet line.
pub(crate) const PUT_DEFAULTS: PointDefaults<'static> = PointDefaults {
    help: "Sent by a program with put.",
    level: 1,
    not_before: None,
};

/// Defaults for points of `POST /api/metrics`.
pub(crate) const DRAGON_DEFAULTS: PointDefaults<'static> = PointDefaults {
    help: "Sent by a program to /api/metrics.",
    level: 1,
    not_before: None,
};
