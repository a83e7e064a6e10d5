//! Tests of the crate's public interface, with fixture trees as machines and a fake metadata
//! service as the cloud.

mod cloud;
mod golden;
mod secrets;
mod snapshot_worker;
mod support;
