//! The protobuf messages of OTLP, as structs: for the requests that Pegel sends, the responses to
//! those that it gets, and tests. Requests that arrive are read in place.
//!
//! The code is generated from `crates/wire/proto/opentelemetry` and checked in. The test `generated`
//! generates it again and compares; `PEGEL_BLESS=1` writes it.

pub use prost::{DecodeError, Message};

pub use opentelemetry::proto::collector::metrics::v1 as collector;
pub use opentelemetry::proto::common::v1 as common;
pub use opentelemetry::proto::metrics::v1 as metrics;
pub use opentelemetry::proto::resource::v1 as resource;

/// Named as the packages of the definitions, because the generated code refers to other packages by
/// relative paths.
#[allow(clippy::all, unreachable_pub, unused_qualifications)]
mod opentelemetry {
    pub mod proto {
        pub mod collector {
            pub mod metrics {
                pub mod v1 {
                    include!("../../generated/opentelemetry.proto.collector.metrics.v1.rs");
                }
            }
        }
        pub mod common {
            pub mod v1 {
                include!("../../generated/opentelemetry.proto.common.v1.rs");
            }
        }
        pub mod metrics {
            pub mod v1 {
                include!("../../generated/opentelemetry.proto.metrics.v1.rs");
            }
        }
        pub mod resource {
            pub mod v1 {
                include!("../../generated/opentelemetry.proto.resource.v1.rs");
            }
        }
    }
}
