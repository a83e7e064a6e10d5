//! `pegel tree init`: an authority, the certificate of the parents, a token, and certificates of
//! nodes, in one private directory.

use std::fs::{DirBuilder, OpenOptions};
use std::io::Write;
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use pegel_tree::certificates::{CertificateAuthority, IssuedCertificate};
use rustix::rand::GetRandomFlags;

use crate::command_error::CommandError;
use crate::output;

/// Random bytes of a token.
const TOKEN_BYTES: usize = 32;
const DAYS_MAX: u32 = 36_500;
const PORT: u16 = 1338;
/// The largest file that is read back.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// Make the certificates and the token of a tree; requires no agent
///
/// Writes an authority (ca.pem, ca.key), the certificate of the parents (parent.pem, parent.key), a
/// token, and configuration files for the head and the nodes. With --node also a certificate for
/// each node, which proves its name; later calls add more nodes. Existing files are not changed.
#[derive(Debug, clap::Args)]
pub(super) struct InitArgs {
    /// Directory of the files; others must not have access to it
    #[arg(long, value_name = "DIR", default_value = "pegel-tree")]
    dir: PathBuf,
    /// Host name or address under which nodes reach a parent; may be repeated [default: this
    /// machine's name and addresses, localhost]
    #[arg(long, value_name = "NAME|ADDRESS")]
    host: Vec<String>,
    /// Name of a node that gets a certificate; may be repeated
    #[arg(long, value_name = "NAME")]
    node: Vec<String>,
    /// Days for which certificates are valid; the authority is valid for 10 years at least
    #[arg(long, value_name = "N", default_value = "825", value_parser = clap::value_parser!(u32).range(1..=i64::from(DAYS_MAX)))]
    days: u32,
}

/// A file to write, relative to the directory.
struct NewFile {
    name: String,
    text: String,
    is_secret: bool,
}

impl NewFile {
    fn public(name: impl Into<String>, text: impl Into<String>) -> NewFile {
        NewFile {
            name: name.into(),
            text: text.into(),
            is_secret: false,
        }
    }

    fn secret(name: impl Into<String>, text: impl Into<String>) -> NewFile {
        NewFile {
            is_secret: true,
            ..NewFile::public(name, text)
        }
    }
}

pub(super) fn run(args: &InitArgs) -> anyhow::Result<()> {
    for node in &args.node {
        // The name becomes the name of a file.
        if node.contains('/') || node.starts_with('.') {
            return Err(CommandError::usage(format!(
                "--node {node}: the name of a node must not contain / or start with a dot"
            )));
        }
    }
    let dir = std::path::absolute(&args.dir).unwrap_or_else(|_| args.dir.clone());
    let has_authority = dir.join("ca.key").exists() && dir.join("ca.pem").exists();
    let is_addition = has_authority && !args.node.is_empty() && args.host.is_empty();
    let text = match is_addition {
        true => add_nodes(args, &dir)?,
        false => create(args, &dir)?,
    };
    output::write(None, &text)
}

/// Writes all files of a new tree.
fn create(args: &InitArgs, dir: &Path) -> anyhow::Result<String> {
    let hosts = match args.host.as_slice() {
        [] => default_hosts()?,
        hosts => hosts.to_vec(),
    };
    let usage = |error| CommandError::usage(format!("{error}"));
    let authority = CertificateAuthority::create(args.days)?;
    let parent = authority.issue_server(&hosts, args.days).map_err(usage)?;
    let mut files = vec![
        NewFile::public("ca.pem", authority.certificate_pem()),
        NewFile::secret("ca.key", authority.key_pem()),
        NewFile::public("parent.pem", parent.certificate),
        NewFile::secret("parent.key", parent.key),
        NewFile::secret("token", new_token()?),
    ];
    let has_nodes = !args.node.is_empty();
    files.push(NewFile::public("head.yaml", head_config(dir, has_nodes)));
    files.push(NewFile::public(
        "node.yaml",
        node_config(dir, &hosts[0], &parent.fingerprint, has_nodes),
    ));
    files.extend(node_files(&authority, args)?);
    write_files(dir, &files)?;
    let dir = dir.display();
    let names: Vec<&str> = files.iter().map(|file| file.name.as_str()).collect();
    let copied = if has_nodes {
        "ca.pem, token and nodes/NAME.* of the node"
    } else {
        "ca.pem and token"
    };
    Ok(format!(
        "wrote {} to {dir}\n\
         the certificate of the parents is valid for {} days, for {}\n\
         fingerprint (SHA-256) {}\n\
         \n\
         1. On the head:   pegel agent --config {dir}/head.yaml\n\
         2. On each node:  copy {copied} (never ca.key or parent.key), then\n\
         \x20                 pegel agent --config {dir}/node.yaml\n\
         3. On the head:   pegel nodes\n",
        names.join(", "),
        args.days,
        hosts.join(", "),
        parent.fingerprint,
    ))
}

/// Adds certificates of nodes to an existing directory.
fn add_nodes(args: &InitArgs, dir: &Path) -> anyhow::Result<String> {
    let read = |name: &str| -> anyhow::Result<String> {
        let path = dir.join(name);
        let bytes = pegel_plain_file::read_plain(&path, FILE_BYTES_MAX)
            .with_context(|| format!("cannot read {}", path.display()))?;
        String::from_utf8(bytes).with_context(|| format!("{} is not text", path.display()))
    };
    let authority = CertificateAuthority::from_pem(&read("ca.pem")?, &read("ca.key")?)
        .with_context(|| format!("cannot use the authority in {}", dir.display()))?;
    let files = node_files(&authority, args)?;
    write_files(dir, &files)?;
    let names: Vec<&str> = files.iter().map(|file| file.name.as_str()).collect();
    let dir = dir.display();
    Ok(format!(
        "wrote {} to {dir}\n\
         \n\
         1. On each of these nodes: copy ca.pem, token and its own two files, and set\n\
         \x20  tree.client_cert and tree.client_key to them\n\
         2. On the parents: tree.client_ca: {dir}/ca.pem requires certificates from every node\n\
         3. On the head: pegel nodes\n",
        names.join(", "),
    ))
}

fn node_files(authority: &CertificateAuthority, args: &InitArgs) -> anyhow::Result<Vec<NewFile>> {
    let mut files = Vec::new();
    for node in &args.node {
        let issued: IssuedCertificate = authority
            .issue_client(node, args.days)
            .map_err(|error| CommandError::usage(format!("--node: {error}")))?;
        files.push(NewFile::public(
            format!("nodes/{node}.pem"),
            issued.certificate,
        ));
        files.push(NewFile::secret(format!("nodes/{node}.key"), issued.key));
    }
    Ok(files)
}

/// Writes all files, or none if one of them exists.
fn write_files(dir: &Path, files: &[NewFile]) -> anyhow::Result<()> {
    let existing: Vec<&str> = files
        .iter()
        .filter(|file| dir.join(&file.name).symlink_metadata().is_ok())
        .map(|file| file.name.as_str())
        .collect();
    if !existing.is_empty() {
        bail!(
            "{} already contains {}; choose another directory with --dir, or add nodes with --node alone",
            dir.display(),
            existing.join(", ")
        );
    }
    make_private_dir(dir)?;
    if files.iter().any(|file| file.name.starts_with("nodes/")) {
        make_private_dir(&dir.join("nodes"))?;
    }
    for file in files {
        let path = dir.join(&file.name);
        let mode = if file.is_secret { 0o600 } else { 0o644 };
        let opened = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&path);
        opened
            .and_then(|mut opened| opened.write_all(file.text.as_bytes()))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// Creates a directory for this user alone. An existing one must be private already.
fn make_private_dir(dir: &Path) -> anyhow::Result<()> {
    match dir.metadata() {
        Ok(found) if found.is_dir() && found.permissions().mode() & 0o077 == 0 => Ok(()),
        Ok(found) if found.is_dir() => bail!(
            "other users have access to {}, and keys are written there; run: chmod 700 {}",
            dir.display(),
            dir.display()
        ),
        Ok(_) => bail!("{} is not a directory", dir.display()),
        Err(_) => DirBuilder::new()
            .mode(0o700)
            .recursive(true)
            .create(dir)
            .with_context(|| format!("cannot create {}", dir.display())),
    }
}

fn new_token() -> anyhow::Result<String> {
    let mut bytes = [0; TOKEN_BYTES];
    let filled = rustix::rand::getrandom(&mut bytes, GetRandomFlags::empty());
    let filled = filled.context("cannot get random bytes")?;
    anyhow::ensure!(filled == TOKEN_BYTES, "cannot get random bytes");
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("{digits}\n"))
}

/// Returns this machine's name, localhost, and its addresses, except link-local ones.
fn default_hosts() -> anyhow::Result<Vec<String>> {
    let name = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    let mut hosts = vec![name, "localhost".to_owned()];
    let interfaces = nix::ifaddrs::getifaddrs().context("cannot list this machine's addresses")?;
    for address in interfaces.filter_map(|interface| interface.address) {
        let v4 = address
            .as_sockaddr_in()
            .map(|address| IpAddr::V4(address.ip()));
        let v6 = address
            .as_sockaddr_in6()
            .map(|address| IpAddr::V6(address.ip()));
        let is_usable = |address: &IpAddr| match address {
            IpAddr::V4(address) => !address.is_link_local(),
            IpAddr::V6(address) => !address.is_unicast_link_local(),
        };
        hosts.extend(
            v4.or(v6)
                .filter(is_usable)
                .map(|address| address.to_string()),
        );
    }
    let mut seen = std::collections::HashSet::new();
    hosts.retain(|host| !host.is_empty() && seen.insert(host.clone()));
    Ok(hosts)
}

fn head_config(dir: &Path, has_nodes: bool) -> String {
    let file = |name: &str| quoted(&dir.join(name));
    let hash = if has_nodes { "" } else { "# " };
    format!(
        "# The head of a tree: pegel agent --config head.yaml\n\
         tree:\n\
         \x20 accept: 0.0.0.0:{PORT}\n\
         \x20 cert: {}\n\
         \x20 key: {}\n\
         \x20 token_file: {}\n\
         \x20 # Requires a certificate of its own from every node: pegel tree init --node NAME\n\
         \x20 {hash}client_ca: {}\n",
        file("parent.pem"),
        file("parent.key"),
        file("token"),
        file("ca.pem"),
    )
}

fn node_config(dir: &Path, host: &str, fingerprint: &str, has_nodes: bool) -> String {
    let file = |name: &str| quoted(&dir.join(name));
    let host = match host.parse::<IpAddr>() {
        Ok(IpAddr::V6(address)) => format!("[{address}]"),
        _ => host.to_owned(),
    };
    let hash = if has_nodes { "" } else { "# " };
    format!(
        "# A node of a tree: pegel agent --config node.yaml\n\
         # The files are named as on the head; change the paths if they are elsewhere on the nodes.\n\
         tree:\n\
         \x20 # In order of preference.\n\
         \x20 parents:\n\
         \x20   - \"{host}:{PORT}\"\n\
         \x20 ca: {}\n\
         \x20 # Instead of ca: this certificate and no other.\n\
         \x20 # fingerprint: {fingerprint}\n\
         \x20 token_file: {}\n\
         \x20 # The certificate of this node; replace NAME.\n\
         \x20 {hash}client_cert: {}\n\
         \x20 {hash}client_key: {}\n",
        file("ca.pem"),
        file("token"),
        file("nodes/NAME.pem"),
        file("nodes/NAME.key"),
    )
}

/// Quotes a path for YAML.
fn quoted(path: &Path) -> String {
    crate::format::json::string(&path.to_string_lossy())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_hosts_have_no_duplicates() {
        let hosts = default_hosts().expect("listed");
        assert!(hosts.iter().any(|host| host == "localhost"), "{hosts:?}");
        assert!(hosts.iter().any(|host| host == "127.0.0.1"), "{hosts:?}");
        let distinct: std::collections::BTreeSet<&String> = hosts.iter().collect();
        assert_eq!(distinct.len(), hosts.len(), "{hosts:?}");
    }

    #[test]
    fn an_ipv6_address_is_bracketed_in_the_list_of_parents() {
        let text = node_config(Path::new("/d"), "fd00::1", "ab", false);
        assert!(text.contains("    - \"[fd00::1]:1338\"\n"), "{text}");
        assert!(
            text.contains("  # client_cert: \"/d/nodes/NAME.pem\"\n"),
            "{text}"
        );
    }
}
