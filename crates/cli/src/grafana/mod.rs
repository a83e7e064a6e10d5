//! `pegel grafana`: provisions data sources and dashboards.

mod access_advice;
mod dashboard;
mod dashboard_json;
mod dashboards;
mod provision;
mod provisioning_dir;
mod provisioning_yaml;
mod source;
mod token;

/// Set up Grafana's data source and dashboards
#[derive(Debug, clap::Args)]
pub(crate) struct GrafanaArgs {
    #[command(subcommand)]
    action: GrafanaAction,
}

#[derive(Debug, clap::Subcommand)]
enum GrafanaAction {
    Provision(Box<provision::ProvisionArgs>),
}

pub(crate) fn run(args: &GrafanaArgs) -> anyhow::Result<()> {
    match &args.action {
        GrafanaAction::Provision(args) => provision::run(args),
    }
}
