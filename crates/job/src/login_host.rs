//! The `ssh` lines by which a user reaches the head of a job from another machine.

/// Variables that name the host from which a job was submitted.
const SUBMIT_HOSTS: [&str; 4] = [
    "SLURM_SUBMIT_HOST",
    "PBS_O_HOST",
    "LSB_SUB_HOST",
    "FLUX_SUBMIT_HOST",
];

/// Returns the host through which users reach the compute nodes: the given one, else the one from
/// which the job was submitted, unless that is the head itself.
pub fn login_host(
    given: Option<&str>,
    environment: impl Fn(&str) -> Option<String>,
    head: &str,
) -> Option<String> {
    if let Some(given) = given {
        return Some(given.to_owned());
    }
    let short = |name: &str| name.split('.').next().unwrap_or_default().to_owned();
    let named = SUBMIT_HOSTS.iter().find_map(|name| environment(name));
    named.filter(|host| !host.is_empty() && short(host) != short(head))
}

/// The ends of a tunnel from the user's machine to the head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tunnel {
    /// The name of the head's machine.
    pub head: String,
    pub login: Option<String>,
    /// Ports of the head that require the token: the page and Grafana's data source.
    pub ports: Vec<(u16, u16)>,
    /// The directory of the job on the head.
    pub dir: String,
}

impl Tunnel {
    /// Returns the line that forwards the ports in one step, through the login host.
    pub fn jump_line(&self) -> String {
        let jump = self.login.iter().map(|login| format!("-J {login} "));
        format!(
            "ssh {}{} {}",
            jump.collect::<String>(),
            self.forwards(),
            self.head
        )
    }

    /// Returns the lines of both hops, for sites where `-J` is not possible: the first on the login
    /// host, the second on the user's machine.
    pub fn hop_lines(&self) -> Option<(String, String)> {
        let login = self.login.as_ref()?;
        let here: Vec<String> = { self.ports.iter() }
            .map(|(near, _)| format!("-NL {near}:localhost:{near}"))
            .collect();
        Some((
            format!("ssh {} {}", self.forwards(), self.head),
            format!("ssh {} {login}", here.join(" ")),
        ))
    }

    /// Returns the command of `pegel tunnel` on the user's machine.
    pub fn tunnel_line(&self) -> String {
        let jump = self.login.iter().map(|login| format!("-J {login} "));
        format!(
            "pegel tunnel {}{}:{}",
            jump.collect::<String>(),
            self.head,
            self.dir
        )
    }

    fn forwards(&self) -> String {
        let forwards: Vec<String> = { self.ports.iter() }
            .map(|(near, far)| format!("-NL {near}:localhost:{far}"))
            .collect();
        forwards.join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_login_host_is_given_or_the_one_of_the_submission() {
        let slurm = |name: &str| (name == "SLURM_SUBMIT_HOST").then(|| "login1.x.org".to_owned());
        assert_eq!(
            login_host(None, slurm, "nid1").as_deref(),
            Some("login1.x.org")
        );
        assert_eq!(login_host(Some("gw"), slurm, "nid1").as_deref(), Some("gw"));
        assert_eq!(login_host(None, slurm, "login1"), None, "the head is there");
        assert_eq!(login_host(None, |_| None, "nid1"), None);
    }

    #[test]
    fn the_lines_can_be_typed() {
        let mut tunnel = Tunnel {
            head: "nid0027".to_owned(),
            login: Some("login1".to_owned()),
            ports: vec![(1337, 1337), (4242, 4250)],
            dir: "/tmp/pegel-job-7-x".to_owned(),
        };
        assert_eq!(
            tunnel.jump_line(),
            "ssh -J login1 -NL 1337:localhost:1337 -NL 4242:localhost:4250 nid0027"
        );
        let (first, second) = tunnel.hop_lines().expect("two hops");
        assert_eq!(
            first,
            "ssh -NL 1337:localhost:1337 -NL 4242:localhost:4250 nid0027"
        );
        assert_eq!(
            second,
            "ssh -NL 1337:localhost:1337 -NL 4242:localhost:4242 login1"
        );
        assert_eq!(
            tunnel.tunnel_line(),
            "pegel tunnel -J login1 nid0027:/tmp/pegel-job-7-x"
        );
        tunnel.login = None;
        assert_eq!(
            tunnel.jump_line(),
            "ssh -NL 1337:localhost:1337 -NL 4242:localhost:4250 nid0027"
        );
        assert_eq!(tunnel.hop_lines(), None);
    }
}
