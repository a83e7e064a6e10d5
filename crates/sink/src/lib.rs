//! Outputs to other systems. They read the store and know no input; a server that is slow or down
//! delays nothing but its own values.

pub mod graphite;
pub mod otlp;
pub mod remote_write;
