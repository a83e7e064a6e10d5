//! The agent's environment. Only variables on an allow-list are ever shown.

use std::collections::BTreeMap;
use std::fmt;

use pegel_machine::redact;

/// Variables that affect how programs run, or identify where they run.
#[rustfmt::skip]
const ALLOWED: &[&str] = &[
    "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK",
    "ONEAPI_DEVICE_SELECTOR", "NVIDIA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "LD_LIBRARY_PATH", "LD_PRELOAD",
    "PATH", "LANG", "LC_ALL", "TZ", "TMPDIR", "HOSTNAME", "SHELL", "USER", "LOGNAME", "HOME", "PWD",
    "XDG_RUNTIME_DIR", "XDG_STATE_HOME", "LOADEDMODULES", "LMOD_SYSTEM_NAME", "CONDA_DEFAULT_ENV",
    "VIRTUAL_ENV", "MALLOC_ARENA_MAX", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS",
    "PEGEL_CONFIG", "PEGEL_SOCKET", "PEGEL_LANES", "PEGEL_LISTEN", "PEGEL_PARENT", "PEGEL_JOB", "PEGEL_LEVEL",
    "PEGEL_RATE", "PEGEL_DIR", "PEGEL_LOG", "PEGEL_DISABLE", "PEGEL_AUTO_AGENT", "PEGEL_ROOT", "PEGEL_IMDS_URL",
    "DRAGON_TELEMETRY_LEVEL", "DRAGON_TELEMETRY_CONFIG",
    // Azure Batch; AZ_BATCH_AUTHENTICATION_TOKEN is excluded.
    "AZ_BATCH_ACCOUNT_NAME", "AZ_BATCH_POOL_ID", "AZ_BATCH_NODE_ID", "AZ_BATCH_JOB_ID", "AZ_BATCH_TASK_ID",
    "AZ_BATCH_NODE_IS_DEDICATED", "AZ_BATCH_TASK_DIR", "AZ_BATCH_NODE_ROOT_DIR",
    // Slurm; SLURM_JWT is excluded.
    "SLURM_JOB_ID", "SLURM_JOB_SLUID", "SLURM_JOB_NAME", "SLURM_JOB_NODELIST", "SLURM_JOB_NUM_NODES",
    "SLURM_JOB_PARTITION", "SLURM_JOB_QOS", "SLURM_CLUSTER_NAME", "SLURM_CPUS_PER_TASK", "SLURM_CPUS_ON_NODE",
    "SLURM_NTASKS", "SLURM_MEM_PER_NODE", "SLURM_MEM_PER_CPU", "SLURM_GPUS_ON_NODE", "SLURM_JOB_GPUS",
    "PBS_JOBID", "PBS_JOBNAME", "PBS_QUEUE", "PBS_NODEFILE", "LSB_JOBID", "LSB_JOBNAME", "LSB_QUEUE",
    "FLUX_JOB_ID", "FLUX_JOB_SIZE", "FLUX_JOB_NNODES",
];
/// Prefixes of variables that control performance and placement.
const ALLOWED_PREFIXES: &[&str] = &["OMP_", "GOMP_", "KMP_", "NCCL_", "UCX_", "FI_", "MPICH_"];
const VALUE_BYTES_MAX: usize = 4096;

/// An environment: names to values. `Debug` prints only the number of variables.
#[derive(Clone, Default)]
pub struct ProcessEnvironment(BTreeMap<String, String>);

impl ProcessEnvironment {
    /// The environment of this process. Variables that are not UTF-8 are left out.
    pub fn current() -> ProcessEnvironment {
        let pairs = std::env::vars_os();
        let pairs = pairs.filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)));
        ProcessEnvironment(pairs.collect())
    }

    pub fn from_pairs(pairs: &[(&str, &str)]) -> ProcessEnvironment {
        let pairs = pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        ProcessEnvironment(pairs.collect())
    }

    /// Returns the value of a variable, if it is set and not empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        let value = self.0.get(name).map(String::as_str);
        value.filter(|value| !value.is_empty())
    }

    /// Returns the variables on the allow-list, with secrets in their values redacted.
    pub(crate) fn allowed_variables(&self) -> BTreeMap<String, String> {
        let pairs = self.0.iter().filter(|(name, _)| is_allowed(name));
        pairs
            .map(|(name, value)| (name.clone(), redacted_value(value)))
            .collect()
    }
}

impl fmt::Debug for ProcessEnvironment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Environment({} variables)", self.0.len())
    }
}

fn is_allowed(name: &str) -> bool {
    let is_listed = ALLOWED.contains(&name);
    let has_prefix = ALLOWED_PREFIXES
        .iter()
        .any(|prefix| name.starts_with(prefix));
    is_listed || (has_prefix && !redact::is_secret_name(name) && !redact::has_secret_ending(name))
}

fn redacted_value(value: &str) -> String {
    redact::redact_value(value)
        .chars()
        .take(VALUE_BYTES_MAX)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_left_out() {
        let environment = ProcessEnvironment::from_pairs(&[
            ("OMP_NUM_THREADS", "8"),
            ("PATH", "/bin"),
            ("PEGEL_TOKEN", "PLANTED"),
            ("SLURM_JWT", "PLANTED"),
            ("AZ_BATCH_AUTHENTICATION_TOKEN", "PLANTED"),
            ("AWS_SECRET_ACCESS_KEY", "PLANTED"),
            ("UCX_AUTH_TOKEN", "PLANTED"),
            ("UCX_KEY", "PLANTED"),
            ("NCCL_PWD", "PLANTED"),
            ("FI_USERPASS", "PLANTED"),
            ("MPICH_CREDENTIALS", "PLANTED"),
            ("http_proxy", "http://u:PLANTED@proxy"),
            ("PEGEL_PARENT", "https://u:PLANTED@parent:1/?token=PLANTED"),
            ("PEGEL_IMDS_URL", "http://u:PLANTED@127.0.0.1:1"),
        ]);
        let allowed = environment.allowed_variables();
        assert!(!format!("{environment:?} {allowed:?}").contains("PLANTED"));
        assert_eq!(allowed["OMP_NUM_THREADS"], "8");
        assert_eq!(allowed["PEGEL_IMDS_URL"], "http://127.0.0.1:1");
        assert_eq!(allowed.len(), 4, "{allowed:?}");
    }
}
