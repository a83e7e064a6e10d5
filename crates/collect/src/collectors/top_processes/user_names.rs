//! Names of users, looked up once each: in `/etc/passwd`, then in the directory service of the
//! site, where the users of a cluster usually are.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use pegel_config::user_name_in;
use pegel_plain_file::read_plain;

/// Upper bound on the size of `/etc/passwd`.
const PASSWD_BYTES_MAX: u64 = 4 << 20;
/// More users than a node has at a time.
const USERS_MAX: usize = 4096;

#[derive(Debug)]
pub(super) struct UserNames {
    passwd: PathBuf,
    /// Off for a fixture tree, whose users this machine does not know.
    has_directory_service: bool,
    names: HashMap<u32, Arc<str>>,
}

impl UserNames {
    pub(super) fn new(root: &std::path::Path) -> UserNames {
        UserNames {
            passwd: root.join("etc/passwd"),
            has_directory_service: root == std::path::Path::new("/"),
            names: HashMap::new(),
        }
    }

    /// Returns the name of a user, or its number. May block on the directory service.
    pub(super) fn name(&mut self, uid: u32) -> Arc<str> {
        if let Some(name) = self.names.get(&uid) {
            return name.clone();
        }
        if self.names.len() >= USERS_MAX {
            self.names.clear();
        }
        let name: Arc<str> = self.look_up(uid).unwrap_or_else(|| uid.to_string()).into();
        self.names.insert(uid, name.clone());
        name
    }

    /// Forgets all names, so that changes of the user database show.
    pub(super) fn clear(&mut self) {
        self.names.clear();
    }

    fn look_up(&self, uid: u32) -> Option<String> {
        let passwd = read_plain(&self.passwd, PASSWD_BYTES_MAX).unwrap_or_default();
        let local = user_name_in(&String::from_utf8_lossy(&passwd), uid).map(str::to_owned);
        let of_service = || {
            let uid = nix::unistd::Uid::from_raw(uid);
            let user = nix::unistd::User::from_uid(uid).ok().flatten();
            user.map(|user| user.name)
        };
        match local {
            None if self.has_directory_service => of_service(),
            local => local,
        }
    }
}
