//! Identifiers of Slurm jobs: a number, and since 26.05 also a SLUID, an `s` and 13 characters of
//! Crockford's base
//! 32. Used by the collectors and by the snapshot.

/// The digits of the largest `u64`; a longer job number is malformed.
const DIGITS_MAX: usize = 20;

pub fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

pub fn is_sluid(name: &str) -> bool {
    let is_base_32 = |byte: u8| byte.is_ascii_alphanumeric() && !b"ILOUilou".contains(&byte);
    name.len() == 14 && name.starts_with('s') && name.bytes().skip(1).all(is_base_32)
}

/// Returns the job number that belongs to this SLUID in the environment of a process
/// (`/proc/PID/environ`).
pub fn job_id_in<'a>(environment: &'a [u8], sluid: &str) -> Option<&'a str> {
    let value = |name: &[u8]| {
        let mut variables = environment.split(|byte| *byte == 0);
        let value =
            variables.find_map(|variable| variable.strip_prefix(name)?.strip_prefix(b"="))?;
        std::str::from_utf8(value).ok()
    };
    if value(b"SLURM_JOB_SLUID")? != sluid {
        return None;
    }
    value(b"SLURM_JOB_ID").filter(|id| is_number(id) && id.len() <= DIGITS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sluid_is_an_s_and_13_characters_of_base_32() {
        for name in ["s06JQ5T8XK2M9R", "s0000000000000", "s06jq5t8xk2m9r"] {
            assert!(is_sluid(name), "{name}");
        }
        for name in [
            "system",
            "s06JQ5T8XK2M9",
            "s06JQ5T8XK2M9RR",
            "s06JQ5T8XK2M9U",
            "x06JQ5T8XK2M9R",
            "s06JQ5T8XK2M9-",
        ] {
            assert!(!is_sluid(name), "{name}");
        }
    }

    #[test]
    fn a_number_counts_only_beside_its_sluid() {
        let sluid = "s06JQ5T8XK2M9R";
        let number = |id: &str, sluid_of: &str| {
            let text = format!("A=1\0{id}\0SLURM_JOB_SLUID={sluid_of}\0");
            job_id_in(text.as_bytes(), sluid).map(str::to_owned)
        };
        assert_eq!(number("SLURM_JOB_ID=18", sluid).as_deref(), Some("18"));
        assert_eq!(number("SLURM_JOB_ID=18", "s000000000000A"), None);
        assert_eq!(number("SLURM_JOB_ID=x", sluid), None);
        assert_eq!(number("SLURM_JOB_ID=", sluid), None);
        assert_eq!(number("XSLURM_JOB_ID=1", sluid), None);
        let long = format!("SLURM_JOB_ID={}", "7".repeat(DIGITS_MAX + 1));
        assert_eq!(number(&long, sluid), None);
        assert_eq!(job_id_in(b"SLURM_JOB_ID=18\0", sluid), None);
    }
}
