//! The tree over real sockets: several agents' trees in one process, each with its own store and a
//! server that tests control.

mod connections;
mod reduction;
mod requests;
mod supervision;
mod support;
