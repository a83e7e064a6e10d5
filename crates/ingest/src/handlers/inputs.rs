//! `POST /api/v1/inputs`: switches the sources that the agent reads by itself on and off.

use std::io;
use std::sync::Arc;

use pegel_metric::DropReason;
use pegel_wire::{InputError, InputReply, InputRequest, RequestHandler};
use serde::Deserialize;
use serde_json::json;

use super::write_json;
use crate::pull::{PullInputs, SwitchError};

/// Handles `POST /api/v1/inputs`.
#[derive(Debug)]
pub struct SwitchInputs(pub Arc<PullInputs>);

#[derive(Deserialize)]
struct InputSwitch {
    /// `NAME`, or `NAME/PART`.
    input: String,
    enabled: bool,
}

impl RequestHandler for SwitchInputs {
    fn handle(
        &self,
        request: InputRequest<'_>,
        response: &mut dyn io::Write,
    ) -> Result<InputReply, InputError> {
        let switch: InputSwitch = serde_json::from_slice(request.body).map_err(|error| {
            let hint = "send {\"input\": \"NAME\", \"enabled\": true}";
            InputError::bad_request(error, hint)
        })?;
        let switched = self.0.set_enabled(&switch.input, switch.enabled);
        switched.map_err(|error| {
            let hint = match error {
                SwitchError::NoInput(_) => "`pegel inputs` lists the inputs",
                SwitchError::NoParts(_) => "switch the input itself",
                SwitchError::TooManyParts => "restart the agent, or use `modules`",
            };
            InputError::bad_request(error, hint)
        })?;
        let reply = json!({"input": switch.input, "enabled": switch.enabled});
        write_json(response, &reply)?;
        Ok(InputReply::new(200))
    }

    /// A switch contains no samples.
    fn count_refused(&self, _: &str, _: DropReason) {}
}
