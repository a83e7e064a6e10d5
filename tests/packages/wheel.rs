//! The Python wheel with client and program.

use std::process::Command;

use pegel_testkit::{TempDir, need_peer};

use crate::built_packages::{check_program, packages, succeed};

#[test]
fn the_wheel_has_the_client_and_the_command() {
    let Some(packages) = packages() else { return };
    let Some(python) = need_peer("python-client/bin/python") else {
        return;
    };
    let home = TempDir::new();
    let venv = home.join("venv");
    succeed(Command::new(python).args(["-m", "venv"]).arg(&venv));
    let wheel = packages.find(".whl");
    let name = wheel
        .file_name()
        .expect("a name")
        .to_string_lossy()
        .into_owned();
    assert!(name.contains("-abi3-manylinux_2_"), "{name}");
    let mut pip = Command::new(venv.join("bin/pip"));
    pip.args(["install", "--quiet", "--no-index"]).arg(&wheel);
    succeed(&mut pip);
    let mut import = Command::new(venv.join("bin/python"));
    let version = succeed(import.args(["-c", "import pegel; print(pegel.__version__)"]));
    assert_eq!(version.trim(), env!("CARGO_PKG_VERSION"));
    check_program(&venv.join("bin/pegel"));
    // Checks every file against RECORD.
    let check = "import base64, csv, hashlib, importlib.metadata as m\n\
        files = m.files('pegel')\n\
        assert any(str(f).endswith('sboms/pegel.cdx.json') for f in files), files\n\
        for f in files:\n    \
            if f.hash: assert base64.urlsafe_b64encode(hashlib.sha256(f.read_binary()).digest()).rstrip(b'=').decode() == f.hash.value, f\n";
    succeed(Command::new(venv.join("bin/python")).args(["-c", check]));
    let mut pip = Command::new(venv.join("bin/pip"));
    succeed(pip.args(["uninstall", "--quiet", "--yes", "pegel"]));
    assert!(!venv.join("bin/pegel").exists());
}
