//! Inputs that arrive over the server: requests and lines. The agent registers these handlers with
//! the server, which has checked the client's access and the size of what it sent. Handlers wait
//! for the log: a reply means that the points are stored, and every refused point, line or body is
//! counted under its sender.

mod dragon;
mod influx;
mod inputs;
mod lines;
mod otlp;
mod pushgateway;
mod put;
mod remote_write;

use std::io;

use pegel_store::PushError;
use pegel_wire::InputError;
use serde::Serialize;

pub use dragon::{DragonCleanup, DragonMetrics};
pub use influx::{InfluxVersion, InfluxWrite};
pub use inputs::SwitchInputs;
pub use lines::{CommandSession, SocketLines, TelnetLines};
pub use otlp::{OtlpGrpc, OtlpHttp, OtlpInput};
pub use pushgateway::Pushgateway;
pub use put::PutPoints;
pub use remote_write::RemoteWrite;

/// The number of refused points that a response lists; all are counted.
const ERRORS_SHOWN_MAX: usize = 1000;

fn write_json(response: &mut dyn io::Write, value: &impl Serialize) -> Result<(), InputError> {
    let written = serde_json::to_writer(response, value);
    written.map_err(|error| InputError::Write(error.into()))
}

fn not_stored(error: PushError) -> InputError {
    InputError::unavailable(error, "nothing was stored; retry later")
}
