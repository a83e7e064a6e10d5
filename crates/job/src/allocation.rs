//! Finds the nodes of the allocation in which this process runs.

use std::io;
use std::path::{Path, PathBuf};

use pegel_plain_file::read_plain;

use crate::host_list::{HostListError, expand_host_list, parse_host_file};

/// The largest host file: 20,000 names with their slots.
const HOST_FILE_BYTES_MAX: u64 = 4 << 20;

/// Where a list of nodes came from; decides the launcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Site {
    Slurm,
    Flux,
    Pbs,
    Lsf,
    /// `--hosts` or `--hostfile`.
    Hosts,
    /// This machine alone.
    Local,
}

#[derive(Debug, thiserror::Error)]
pub enum AllocationError {
    #[error("{origin}: {source}")]
    List {
        origin: String,
        #[source]
        source: HostListError,
    },
    #[error("cannot read the host file {path}: {source}")]
    File {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{0} names no host")]
    Empty(String),
    #[error("cannot list the hosts of the Flux instance: {0}")]
    Flux(String),
}

/// The nodes of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allocation {
    pub site: Site,
    pub nodes: Vec<String>,
}

/// What the user and the environment say about the nodes.
pub struct AllocationRequest<'a> {
    /// `--hosts`.
    pub hosts: Option<&'a str>,
    /// `--hostfile`.
    pub host_file: Option<&'a Path>,
    pub environment: &'a dyn Fn(&str) -> Option<String>,
    /// Returns the hosts of the Flux instance, as `flux getattr hostlist` prints them.
    pub flux_hosts: &'a dyn Fn() -> Result<String, String>,
    /// The name of this machine.
    pub own_name: &'a str,
}

impl std::fmt::Debug for AllocationRequest<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("AllocationRequest");
        shown
            .field("hosts", &self.hosts)
            .field("host_file", &self.host_file);
        shown.finish_non_exhaustive()
    }
}

impl AllocationRequest<'_> {
    /// Returns the nodes: those of the command line, else those of the innermost scheduler, else
    /// this machine.
    pub fn find(&self) -> Result<Allocation, AllocationError> {
        let variable = |name: &str| (self.environment)(name).filter(|text| !text.is_empty());
        if let Some(hosts) = self.hosts {
            return list(Site::Hosts, "--hosts".to_owned(), hosts);
        }
        if let Some(path) = self.host_file {
            return file(Site::Hosts, path);
        }
        // Flux first: its instances run inside jobs of other schedulers.
        if variable("FLUX_URI").is_some() {
            let hosts = (self.flux_hosts)().map_err(AllocationError::Flux)?;
            return list(Site::Flux, "flux getattr hostlist".to_owned(), hosts.trim());
        }
        for name in ["SLURM_JOB_NODELIST", "SLURM_NODELIST"] {
            if let Some(hosts) = variable(name) {
                return list(Site::Slurm, format!("${name}"), &hosts);
            }
        }
        if let Some(path) = variable("PBS_NODEFILE") {
            return file(Site::Pbs, Path::new(&path));
        }
        if let Some(path) = variable("LSB_DJOB_HOSTFILE") {
            return file(Site::Lsf, Path::new(&path));
        }
        if let Some(hosts) = variable("LSB_MCPU_HOSTS") {
            // Pairs of a host and its number of slots.
            let names: Vec<&str> = hosts.split_whitespace().step_by(2).collect();
            return list(Site::Lsf, "$LSB_MCPU_HOSTS".to_owned(), &names.join(","));
        }
        Ok(Allocation {
            site: Site::Local,
            nodes: vec![self.own_name.to_owned()],
        })
    }
}

fn list(site: Site, origin: String, text: &str) -> Result<Allocation, AllocationError> {
    checked(site, &origin, expand_host_list(text))
}

fn file(site: Site, path: &Path) -> Result<Allocation, AllocationError> {
    let bytes = read_plain(path, HOST_FILE_BYTES_MAX).map_err(|source| AllocationError::File {
        path: path.to_owned(),
        source,
    })?;
    let text = String::from_utf8_lossy(&bytes);
    checked(site, &path.display().to_string(), parse_host_file(&text))
}

fn checked(
    site: Site,
    origin: &str,
    nodes: Result<Vec<String>, HostListError>,
) -> Result<Allocation, AllocationError> {
    let nodes = nodes.map_err(|source| AllocationError::List {
        origin: origin.to_owned(),
        source,
    })?;
    match nodes.is_empty() {
        true => Err(AllocationError::Empty(origin.to_owned())),
        false => Ok(Allocation { site, nodes }),
    }
}

/// Returns which of the nodes this machine is, by the name that the scheduler gave it
/// (`SLURMD_NODENAME`), its own name or `localhost`; names may have a domain on either side.
pub fn own_node<'a>(
    nodes: &'a [String],
    own_name: &str,
    scheduler_name: Option<&str>,
) -> Option<&'a str> {
    let exact = |wanted: &str| nodes.iter().find(|node| *node == wanted);
    if let Some(found) = scheduler_name.and_then(exact).or_else(|| exact(own_name)) {
        return Some(found);
    }
    let short = |name: &str| name.split('.').next().unwrap_or_default().to_owned();
    let is_same = |node: &&String| {
        let is_short = !node.contains('.') || !own_name.contains('.');
        let is_address = node.parse::<std::net::IpAddr>().is_ok();
        is_short && !is_address && short(node) == short(own_name)
    };
    let is_loopback = |node: &&String| ["localhost", "127.0.0.1", "::1"].contains(&node.as_str());
    let found = nodes.iter().find(is_same);
    found
        .or_else(|| nodes.iter().find(is_loopback))
        .map(String::as_str)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use pegel_testkit::TempDir;

    use super::*;

    fn find(variables: &[(&str, &str)]) -> Result<Allocation, AllocationError> {
        let environment = |name: &str| {
            let found = variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let request = AllocationRequest {
            hosts: None,
            host_file: None,
            environment: &environment,
            flux_hosts: &|| Ok("f[1-2]\n".to_owned()),
            own_name: "here",
        };
        request.find()
    }

    #[test]
    fn every_scheduler_names_its_nodes() {
        let dir = TempDir::new();
        let path = dir.join("nodes");
        fs::write(&path, "p1\np1\np2\n").expect("written");
        let path = path.to_str().expect("text");
        for (variables, site, nodes) in [
            (vec![], Site::Local, "here"),
            (
                vec![("SLURM_JOB_NODELIST", "s[1-3]")],
                Site::Slurm,
                "s1 s2 s3",
            ),
            (
                vec![("SLURM_JOB_NODELIST", "s1"), ("FLUX_URI", "local:///x")],
                Site::Flux,
                "f1 f2",
            ),
            (vec![("PBS_NODEFILE", path)], Site::Pbs, "p1 p2"),
            (vec![("LSB_DJOB_HOSTFILE", path)], Site::Lsf, "p1 p2"),
            (vec![("LSB_MCPU_HOSTS", "a 4 b 2")], Site::Lsf, "a b"),
        ] {
            let found = find(&variables).expect("found");
            assert_eq!(
                (found.site, found.nodes.join(" ").as_str()),
                (site, nodes),
                "{variables:?}"
            );
        }
    }

    #[test]
    fn a_missing_file_and_an_empty_list_are_errors() {
        let error = find(&[("PBS_NODEFILE", "/nonexistent/x")]).expect_err("missing");
        assert!(error.to_string().contains("/nonexistent/x"), "{error}");
        let error = find(&[("SLURM_JOB_NODELIST", " , ")]).expect_err("empty");
        assert_eq!(error.to_string(), "$SLURM_JOB_NODELIST names no host");
    }

    #[test]
    fn this_machine_is_found_by_any_of_its_names() {
        let nodes: Vec<String> = ["n1", "n2.x.org", "127.0.0.2"].map(str::to_owned).to_vec();
        let own = |own_name, scheduler| own_node(&nodes, own_name, scheduler);
        assert_eq!(own("n1", None), Some("n1"));
        assert_eq!(own("n1.x.org", None), Some("n1"));
        assert_eq!(own("n2", None), Some("n2.x.org"));
        assert_eq!(own("n2.y.org", None), None, "another domain");
        assert_eq!(own("login", Some("n1")), Some("n1"));
        assert_eq!(own("login", None), None);
        let nodes = ["localhost".to_owned(), "b".to_owned()];
        assert_eq!(own_node(&nodes, "x", None), Some("localhost"));
    }
}
