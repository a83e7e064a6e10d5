mod advice;
mod dashboard;
mod dashboards;
mod json;
mod provision;
mod shelf;
mod sources;
mod token;

/// Set Grafana up: data source and dashboards
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    Provision(Box<provision::Args>),
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    match &args.action {
        Action::Provision(args) => provision::run(args),
    }
}
