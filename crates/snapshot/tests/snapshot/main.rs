//! The snapshot from the outside: machines made of files, and clouds made of a thread.

mod cloud;
mod golden;
mod secrets;
mod service;
mod snapshot_worker;
mod support;
