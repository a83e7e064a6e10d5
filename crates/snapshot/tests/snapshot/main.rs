//! The snapshot from the outside: machines made of files, and clouds made of a thread.

mod cloud;
mod golden;
mod keeper;
mod secrets;
mod service;
mod support;
