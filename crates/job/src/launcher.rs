//! The command lines that start one agent on each node with the launcher of the site.

use std::path::PathBuf;

use crate::allocation::Site;

/// The programs that start processes on other nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LauncherKind {
    Srun,
    Flux,
    Pbsdsh,
    Blaunch,
    Mpirun,
    Ssh,
}

/// The implementations of `mpirun`, whose options differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MpiFlavour {
    OpenMpi,
    /// MPICH, Intel MPI, MVAPICH.
    Hydra,
}

impl MpiFlavour {
    /// Recognises the output of `mpirun --version`.
    pub fn of_version(text: &str) -> MpiFlavour {
        match text.contains("Open MPI") || text.contains("OpenRTE") || text.contains("PRRTE") {
            true => MpiFlavour::OpenMpi,
            false => MpiFlavour::Hydra,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LauncherError {
    #[error(
        "--launcher {0}: not a known launcher; srun, flux, pbsdsh, blaunch, mpirun, mpiexec and ssh \
         are accepted, also with a path and options"
    )]
    Unknown(String),
}

/// A launcher, with the options of the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launcher {
    pub kind: LauncherKind,
    /// The program and further options: `ssh -F config`.
    words: Vec<String>,
}

/// How a node starts its agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentInvocation {
    pub binary: PathBuf,
    /// The job file on a shared file system; launchers that pass standard input on do not use it.
    pub job_file: PathBuf,
}

/// A process that starts agents on these nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaunchCommand {
    pub argv: Vec<String>,
    pub nodes: Vec<String>,
    /// The job file is written to standard input, whose end is the end of the job.
    pub is_fed: bool,
}

impl Launcher {
    /// Returns the launcher of a site; `None` if there is nothing to launch.
    pub fn of_site(site: Site) -> Option<Launcher> {
        let (kind, program) = match site {
            Site::Slurm => (LauncherKind::Srun, "srun"),
            Site::Flux => (LauncherKind::Flux, "flux"),
            Site::Pbs => (LauncherKind::Pbsdsh, "pbsdsh"),
            Site::Lsf => (LauncherKind::Blaunch, "blaunch"),
            Site::Hosts => (LauncherKind::Ssh, "ssh"),
            Site::Local => return None,
        };
        let words = vec![program.to_owned()];
        Some(Launcher { kind, words })
    }

    /// Parses `--launcher`: a program by its name or path, with options.
    pub fn parse(text: &str) -> Result<Launcher, LauncherError> {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        let name = words.first().and_then(|word| word.rsplit('/').next());
        let kind = match name.unwrap_or_default() {
            "srun" => LauncherKind::Srun,
            "flux" => LauncherKind::Flux,
            "pbsdsh" => LauncherKind::Pbsdsh,
            "blaunch" => LauncherKind::Blaunch,
            "ssh" => LauncherKind::Ssh,
            name if name.starts_with("mpirun") || name.starts_with("mpiexec") => {
                LauncherKind::Mpirun
            }
            _ => return Err(LauncherError::Unknown(text.to_owned())),
        };
        Ok(Launcher { kind, words })
    }

    /// Returns the program and the options of the user.
    pub fn words(&self) -> &[String] {
        &self.words
    }

    pub fn program(&self) -> &str {
        self.words.first().map_or("", String::as_str)
    }

    /// Returns the processes that start agents on these nodes.
    pub fn commands(
        &self,
        nodes: &[String],
        agent: &AgentInvocation,
        flavour: MpiFlavour,
    ) -> Vec<LaunchCommand> {
        if self.kind == LauncherKind::Ssh {
            let command = |node: &String| LaunchCommand {
                argv: self.ssh_words(node, agent),
                nodes: vec![node.clone()],
                is_fed: true,
            };
            return nodes.iter().map(command).collect();
        }
        let mut argv = self.words.clone();
        argv.extend(self.options(nodes, flavour));
        argv.push(agent.binary.to_string_lossy().into_owned());
        argv.extend(["job-agent", "--file"].map(str::to_owned));
        argv.push(agent.job_file.to_string_lossy().into_owned());
        vec![LaunchCommand {
            argv,
            nodes: nodes.to_vec(),
            is_fed: false,
        }]
    }

    /// Returns the options by which a launcher starts one process per node, bound to no core.
    fn options(&self, nodes: &[String], flavour: MpiFlavour) -> Vec<String> {
        let (count, list) = (nodes.len(), nodes.join(","));
        let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        match self.kind {
            // Beside the steps of the job, with all of its memory; the step does not end with the
            // first agent that ends.
            LauncherKind::Srun => vec![
                "--overlap".to_owned(),
                format!("--nodes={count}"),
                format!("--ntasks={count}"),
                "--ntasks-per-node=1".to_owned(),
                format!("--nodelist={list}"),
                "--cpu-bind=none".to_owned(),
                "--mem=0".to_owned(),
                "--mpi=none".to_owned(),
                "--input=none".to_owned(),
                "--wait=0".to_owned(),
                "--kill-on-bad-exit=0".to_owned(),
                "--job-name=pegel".to_owned(),
            ],
            LauncherKind::Flux => owned(&["exec", "--noinput"]),
            LauncherKind::Pbsdsh => owned(&["--"]),
            LauncherKind::Blaunch => owned(&["-z", &nodes.join(" ")]),
            LauncherKind::Mpirun => match flavour {
                MpiFlavour::OpenMpi => owned(&[
                    "--host",
                    &list,
                    "-np",
                    &count.to_string(),
                    "--map-by",
                    "node",
                    "--bind-to",
                    "none",
                ]),
                MpiFlavour::Hydra => owned(&[
                    "-hosts",
                    &list,
                    "-ppn",
                    "1",
                    "-np",
                    &count.to_string(),
                    "-bind-to",
                    "none",
                ]),
            },
            LauncherKind::Ssh => Vec::new(),
        }
    }

    fn ssh_words(&self, node: &str, agent: &AgentInvocation) -> Vec<String> {
        let binary = shell_quoted(&agent.binary.to_string_lossy());
        let mut words = self.words.clone();
        // No question can be answered: many connections share one terminal.
        let options = ["-o", "BatchMode=yes", "-o", "ConnectTimeout=30"];
        words.extend(options.map(str::to_owned));
        words.extend(["-T", "--", node].map(str::to_owned));
        words.push(format!(
            "exec {binary} job-agent --stdin --node {}",
            shell_quoted(node)
        ));
        words
    }
}

/// Quotes a word for any shell.
pub fn shell_quoted(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-:@%+=,".contains(&byte);
    match !word.is_empty() && word.bytes().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(launcher: &str, flavour: MpiFlavour) -> Vec<String> {
        let launcher = Launcher::parse(launcher).expect("known");
        let agent = AgentInvocation {
            binary: "/opt/my pegel".into(),
            job_file: "/home/u/job".into(),
        };
        let nodes = ["n1".to_owned(), "n2".to_owned()];
        let commands = launcher.commands(&nodes, &agent, flavour);
        commands
            .iter()
            .map(|command| command.argv.join(" "))
            .collect()
    }

    #[test]
    fn every_launcher_starts_one_agent_per_node() {
        let end = "/opt/my pegel job-agent --file /home/u/job";
        assert_eq!(
            lines("/x/srun -v", MpiFlavour::Hydra),
            [format!(
                "/x/srun -v --overlap --nodes=2 --ntasks=2 --ntasks-per-node=1 --nodelist=n1,n2 \
                 --cpu-bind=none --mem=0 --mpi=none --input=none --wait=0 --kill-on-bad-exit=0 \
                 --job-name=pegel {end}"
            )]
        );
        assert_eq!(
            lines("flux", MpiFlavour::Hydra),
            [format!("flux exec --noinput {end}")]
        );
        assert_eq!(
            lines("pbsdsh", MpiFlavour::Hydra),
            [format!("pbsdsh -- {end}")]
        );
        assert_eq!(
            lines("blaunch", MpiFlavour::Hydra),
            [format!("blaunch -z n1 n2 {end}")]
        );
        assert_eq!(
            lines("mpirun", MpiFlavour::OpenMpi),
            [format!(
                "mpirun --host n1,n2 -np 2 --map-by node --bind-to none {end}"
            )]
        );
        assert_eq!(
            lines("mpiexec.hydra", MpiFlavour::Hydra),
            [format!(
                "mpiexec.hydra -hosts n1,n2 -ppn 1 -np 2 -bind-to none {end}"
            )]
        );
        assert_eq!(
            lines("ssh -F c", MpiFlavour::Hydra)[1],
            "ssh -F c -o BatchMode=yes -o ConnectTimeout=30 -T -- n2 exec '/opt/my pegel' job-agent --stdin --node n2"
        );
        assert!(Launcher::parse("rsh").is_err() && Launcher::parse(" ").is_err());
    }

    #[test]
    fn words_are_quoted_for_the_shell() {
        assert_eq!(shell_quoted("/usr/bin/pegel"), "/usr/bin/pegel");
        assert_eq!(shell_quoted("a'b $c"), "'a'\\''b $c'");
        assert_eq!(shell_quoted(""), "''");
    }

    #[test]
    fn implementations_of_mpirun_are_recognised() {
        let of = MpiFlavour::of_version;
        assert_eq!(of("mpirun (Open MPI) 4.1.4"), MpiFlavour::OpenMpi);
        assert_eq!(of("mpirun (PRRTE) 3.0"), MpiFlavour::OpenMpi);
        assert_eq!(of("HYDRA build details:"), MpiFlavour::Hydra);
    }
}
