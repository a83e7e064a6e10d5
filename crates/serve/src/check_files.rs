//! Checks the files that the settings name before the server uses them (`pegel check`).

use std::error::Error;

use crate::guard::{LocalUsers, TokenSource, check_token_source};
use crate::settings::ServeSettings;
use crate::socket::check_socket;

/// Returns what would prevent a server of this user from starting with these files, each with its
/// configuration key. Creates and locks nothing; a running agent that already serves there is not
/// an error.
pub fn check_files(settings: &ServeSettings) -> Vec<(&'static str, Box<dyn Error + Send + Sync>)> {
    let mut found: Vec<(&'static str, Box<dyn Error + Send + Sync>)> = Vec::new();
    if let Some(source) = settings.token()
        && let Err(error) = check_token_source(&source)
    {
        let key = match source {
            TokenSource::File(_) => "token_file",
            TokenSource::Variable(_) => "token",
        };
        found.push((key, error.into()));
    }
    if let Some(Err(error)) = settings.tls.files().map(|files| files.load()) {
        found.push(("tls", error.into()));
    }
    let users = [
        ("allow_users", &settings.allow_users),
        ("operators", &settings.operators),
    ];
    for (key, users) in users {
        if let Err(error) = LocalUsers::new(users) {
            found.push((key, error.into()));
        }
    }
    if let Some(Err(error)) = settings.socket.as_deref().map(check_socket) {
        found.push(("socket", error.into()));
    }
    found
}
