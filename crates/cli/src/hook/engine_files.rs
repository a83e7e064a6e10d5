//! The files of each engine, made from the templates in this folder.

use super::quoting::{groovy_text, python_literal, shell_word};
use super::{HookEngine, HookFile, HookOptions, MARK};
use crate::command_error::CommandError;

/// The function that calls pegel, part of most scripts.
const SESSION_CALL: &str = include_str!("templates/session_call.sh");
const PEGEL_TASK: &str = include_str!("templates/pegel_task.sh");
const TES: &str = include_str!("templates/tes.sh");
const AZURE_BATCH: &str = include_str!("templates/azure_batch.txt");
const AZURE_BATCH_START_TASK: &str = include_str!("templates/azure_batch_start_task.sh");
const CROMWELL: &str = include_str!("templates/cromwell.conf");
const NEXTFLOW: &str = include_str!("templates/nextflow.config");
const NEXTFLOW_BEFORE: &str = include_str!("templates/nextflow_before.sh");
const NEXTFLOW_AFTER: &str = include_str!("templates/nextflow_after.sh");
const SNAKEMAKE: &str = include_str!("templates/snakemake.smk");
const SNAKEMAKE_PREFIX: &str = include_str!("templates/snakemake_prefix.sh");
const SLURM: &str = include_str!("templates/slurm.conf");
const SLURM_TASK_PROLOG: &str = include_str!("templates/slurm_task_prolog.sh");
const SLURM_EPILOG: &str = include_str!("templates/slurm_epilog.sh");

const FLUX: &str = include_str!("templates/flux.txt");
const FLUX_ENV: &str = include_str!("templates/flux_env.sh");
/// The part of the scripts for Flux that they share.
const FLUX_COMMON: &str = include_str!("templates/flux_common.sh");
const FLUX_RC1: &str = include_str!("templates/flux_rc1.sh");
const FLUX_RC3: &str = include_str!("templates/flux_rc3.sh");
const FLUX_EPILOG: &str = include_str!("templates/flux_epilog.sh");

/// Where the start task of Azure Batch installs the program.
const AZURE_BATCH_PEGEL: &str = r#""${AZ_BATCH_NODE_SHARED_DIR:-/tmp}/pegel/pegel""#;
/// Where the start script of a bundle installs it.
const BUNDLE_PEGEL: &str =
    r#""${PEGEL_NODE_DIR:-${AZ_BATCH_NODE_SHARED_DIR:-/tmp}/pegel-$(id -u)}/pegel""#;
const PATH_PEGEL: &str = "pegel";

/// A slot per directory, for engines that run several tasks on a node at the same time.
const DIRECTORY_SLOT: &str =
    r#"${PEGEL_SLOT:-cromwell-$(printf '%s' "$dir" | cksum | cut -d ' ' -f 1)}"#;
const NAMED_SLOT: &str = "${PEGEL_SLOT:-}";
/// Cromwell's scripts always end with 0, and leave the status of the task in a file.
const CROMWELL_STATUS: &str = r#"if [ -r "$dir/execution/rc" ]; then
    read -r pegel_recorded <"$dir/execution/rc" || pegel_recorded=$pegel_status
fi"#;

/// Returns the files of an engine.
pub(super) fn files(
    engine: HookEngine,
    options: &HookOptions,
) -> Result<Vec<HookFile>, anyhow::Error> {
    if options.bundle.is_some() && !matches!(engine, HookEngine::Tes | HookEngine::AzureBatch) {
        return Err(CommandError::usage(
            "--bundle is for tes and azure-batch, whose nodes download the program",
        ));
    }
    Ok(match engine {
        HookEngine::Tes => vec![script(
            "pegel-tes.sh",
            &fill(TES, options, BUNDLE_PEGEL),
            false,
        )],
        HookEngine::AzureBatch => azure_batch(options),
        HookEngine::Cromwell => cromwell(options)?,
        HookEngine::Nextflow => vec![script("pegel.config", &nextflow(options), false)],
        HookEngine::Snakemake => vec![script("pegel.smk", &snakemake(options), false)],
        HookEngine::Slurm => slurm(options)?,
        HookEngine::Flux => flux(options)?,
    })
}

fn script(name: &'static str, text: &str, is_executable: bool) -> HookFile {
    HookFile {
        name,
        text: text.to_owned(),
        is_executable,
    }
}

/// Fills a template of the shell. `pegel` is the program without `--pegel`, in shell syntax.
fn fill(template: &str, options: &HookOptions, pegel: &str) -> String {
    let to = options.to.as_deref();
    let to = to.map(|place| format!("--to {} ", shell_word(place)));
    let bundle = options.bundle.as_deref().unwrap_or_default();
    let bundle = match bundle {
        "" => String::new(),
        url => shell_word(url),
    };
    let given = options.pegel.as_deref().map(shell_word);
    let values = [
        ("@SESSION@", SESSION_CALL.trim_end()),
        ("@MARK@", MARK),
        ("@PEGEL@", given.as_deref().unwrap_or(pegel)),
        ("@OPTIONS@", to.as_deref().unwrap_or_default()),
        ("@BUNDLE@", bundle.as_str()),
    ];
    replace_all(template, &values)
}

/// Replaces placeholders in one pass: a value that contains a placeholder stays as it is.
fn replace_all(template: &str, values: &[(&str, &str)]) -> String {
    let mut filled = String::new();
    let mut rest = template;
    while let Some(at) = rest.find('@') {
        let (before, after) = rest.split_at(at);
        filled.push_str(before);
        let found = values.iter().find(|(name, _)| after.starts_with(name));
        let (text, length) = found.map_or(("@", 1), |(name, value)| (*value, name.len()));
        filled.push_str(text);
        rest = &after[length..];
    }
    filled + rest
}

fn task_wrapper(options: &HookOptions, pegel: &str, slot: &str, status: &str) -> HookFile {
    let template = PEGEL_TASK
        .replace("@SLOT@", slot)
        .replace("@STATUS@\n", &format!("{status}\n").replace("\n\n", "\n"));
    script("pegel-task.sh", &fill(&template, options, pegel), true)
}

fn azure_batch(options: &HookOptions) -> Vec<HookFile> {
    let start_task = fill(AZURE_BATCH_START_TASK, options, AZURE_BATCH_PEGEL);
    vec![
        script(
            "README",
            &fill(AZURE_BATCH, options, AZURE_BATCH_PEGEL),
            false,
        ),
        script("start-task.sh", &start_task, true),
        task_wrapper(options, AZURE_BATCH_PEGEL, NAMED_SLOT, ""),
    ]
}

fn cromwell(options: &HookOptions) -> Result<Vec<HookFile>, anyhow::Error> {
    let wrapper = format!("{}/pegel-task.sh", options.dir);
    // Cromwell expands placeholders, and three quotes end the string.
    if ["${", "~{", "\"\"\"", "\\"]
        .iter()
        .any(|text| wrapper.contains(text))
    {
        return Err(CommandError::usage(format!(
            "--install {}: Cromwell's configuration cannot contain this path",
            options.dir
        )));
    }
    let conf = fill(CROMWELL, options, PATH_PEGEL).replace("@WRAPPER@", &shell_word(&wrapper));
    Ok(vec![
        script("pegel.conf", &conf, false),
        task_wrapper(options, PATH_PEGEL, DIRECTORY_SLOT, CROMWELL_STATUS),
    ])
}

fn nextflow(options: &HookOptions) -> String {
    let before = fill(NEXTFLOW_BEFORE, options, PATH_PEGEL);
    let after = fill(NEXTFLOW_AFTER, options, PATH_PEGEL);
    NEXTFLOW
        .replace("@MARK@", MARK)
        .replace("@BEFORE@", &groovy_text(&before))
        .replace("@AFTER@", &groovy_text(&after))
}

fn snakemake(options: &HookOptions) -> String {
    let prefix = fill(SNAKEMAKE_PREFIX, options, PATH_PEGEL);
    SNAKEMAKE
        .replace("@MARK@", MARK)
        .replace("@SCRIPT@", &python_literal(&prefix))
}

fn slurm(options: &HookOptions) -> Result<Vec<HookFile>, anyhow::Error> {
    if options
        .dir
        .contains(|c: char| c.is_whitespace() || c == '#' || c == ',')
    {
        return Err(CommandError::usage(format!(
            "--install {}: slurm.conf accepts no path with blanks, commas or #",
            options.dir
        )));
    }
    let conf = SLURM.replace("@MARK@", MARK).replace("@DIR@", &options.dir);
    let prolog = fill(SLURM_TASK_PROLOG, options, PATH_PEGEL);
    let epilog = fill(SLURM_EPILOG, options, PATH_PEGEL);
    Ok(vec![
        script("slurm.conf.pegel", &conf, false),
        script("pegel-task-prolog.sh", &prolog, true),
        script("pegel-epilog.sh", &epilog, true),
    ])
}

fn flux(options: &HookOptions) -> Result<Vec<HookFile>, anyhow::Error> {
    if options.to.is_some() {
        return Err(CommandError::usage(
            "--to is not for flux, whose scripts start an agent and record no tasks",
        ));
    }
    if options.dir.contains([':', '"', '\\']) {
        return Err(CommandError::usage(format!(
            "--install {}: FLUX_RC_EXTRA accepts no path with colons, quotes or backslashes",
            options.dir
        )));
    }
    let text = |template: &str| {
        let template = template.replace("@FLUX@", FLUX_COMMON.trim_end());
        let template = template.replace("@DIR_WORD@", &shell_word(&options.dir));
        fill(
            &template.replace("@DIR@", &options.dir),
            options,
            PATH_PEGEL,
        )
    };
    Ok(vec![
        script("README", &text(FLUX), false),
        script("env.sh", &text(FLUX_ENV), false),
        script("rc1.d/50-pegel", &text(FLUX_RC1), true),
        script("rc3.d/50-pegel", &text(FLUX_RC3), true),
        script("pegel-epilog.sh", &text(FLUX_EPILOG), true),
    ])
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    fn options() -> HookOptions {
        HookOptions {
            to: Some("file:///data/it's here".to_owned()),
            pegel: Some("/opt/two words/pegel".to_owned()),
            bundle: None,
            dir: "/opt/hooks".to_owned(),
        }
    }

    #[test]
    fn every_placeholder_is_filled_and_every_file_marked() {
        for engine in HookEngine::value_variants() {
            let options = HookOptions {
                to: options().to.filter(|_| *engine != HookEngine::Flux),
                ..options()
            };
            for file in files(*engine, &options).expect("valid") {
                let text = &file.text;
                assert!(text.contains(MARK), "{}", file.name);
                let is_placeholder = |word: &str| {
                    word.len() > 2 && word.bytes().all(|byte| byte.is_ascii_uppercase())
                };
                let left = text.split('@').skip(1).find(|word| is_placeholder(word));
                assert_eq!(left, None, "{}:\n{text}", file.name);
            }
        }
    }

    #[test]
    fn paths_that_a_configuration_cannot_hold_are_refused() {
        let with_dir = |dir: &str| HookOptions {
            dir: dir.to_owned(),
            ..options()
        };
        assert!(files(HookEngine::Slurm, &with_dir("/a b")).is_err());
        assert!(files(HookEngine::Cromwell, &with_dir("/a${b}")).is_err());
        let bundle = HookOptions {
            bundle: Some("https://x/y".to_owned()),
            ..options()
        };
        assert!(files(HookEngine::Nextflow, &bundle).is_err());
        assert!(files(HookEngine::Tes, &bundle).is_ok());
    }

    #[test]
    fn values_with_placeholders_stay_as_they_are() {
        let values = [("@A@", "x @B@ y"), ("@B@", "z")];
        let filled = replace_all("1@A@2@B@3@C@ a@b", &values);
        assert_eq!(filled, "1x @B@ y2z3@C@ a@b");
    }
}
