//! The server as its clients see it, in front of a real store.

mod descriptors;
mod lifecycle;
mod limits;
mod lines;
mod opentsdb;
mod prometheus;
mod prometheus_reference;
mod routes;
mod stream;
mod support;
mod tree;
mod writes;
