//! Declares the families of a collector as a table, one line each: the name of the static, then
//! kind, level, name, unit and help of the metric. A name with `<key>` in it stands for many
//! metrics, see [`keyed_family`].
//!
//! A table may add a source to a line, such as the file or the column of the value: `sources:
//! TYPE;` names its type, and `<- VALUE` follows the help. [`families!`] then also declares
//! `SOURCES`, the families that have a source.

use std::sync::Arc;

use pegel_metric::Family;

macro_rules! families {
    ($($static:ident $kind:ident $level:literal $name:literal $unit:literal $help:literal;)*) => {
        $(pub(super) static $static: ::pegel_metric::Family = ::pegel_metric::Family::new(
            $name, ::pegel_metric::MetricKind::$kind, $unit, $level, $help);)*
        /// All families of the table, in its order.
        pub(super) static FAMILIES: &[&::pegel_metric::Family] = &[$(&$static),*];
    };
    (sources: $type:ty;
     $($static:ident $kind:ident $level:literal $name:literal $unit:literal $help:literal $(<- $source:expr)?;)*) => {
        $crate::families::families! { $($static $kind $level $name $unit $help;)* }
        /// The families with their sources, in the order of the table.
        pub(super) static SOURCES: &[(&::pegel_metric::Family, $type)] = &[$($((&$static, $source),)?)*];
    };
}
pub(crate) use families;

/// Wraps static families for sharing between their series.
pub(crate) fn shared_families(families: &[&Family]) -> Vec<Arc<Family>> {
    let shared = |family: &&Family| Arc::new((*family).clone());
    families.iter().map(shared).collect()
}

/// Returns the family of one metric of `base`, whose name contains `<key>`.
pub(crate) fn keyed_family(base: &Family, key: &str, help: String) -> Arc<Family> {
    Arc::new(Family {
        name: base.name.replace("<key>", key).into(),
        help: help.into(),
        ..base.clone()
    })
}
