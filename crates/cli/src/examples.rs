//! Examples of every command, shown by `--help` and in the manual pages.

/// A command line and what it does.
pub(crate) struct Example {
    pub line: &'static str,
    pub text: &'static str,
}

const fn example(line: &'static str, text: &'static str) -> Example {
    Example { line, text }
}

/// Returns the examples of a command; `path` are the names after `pegel`.
pub(crate) fn of(path: &[&str]) -> &'static [Example] {
    match path {
        [] => PEGEL,
        ["agent"] => AGENT,
        ["run"] => RUN,
        ["job"] => JOB,
        ["tunnel"] => TUNNEL,
        ["view"] => VIEW,
        ["list"] => LIST,
        ["values"] => VALUES,
        ["get"] => GET,
        ["query"] => QUERY,
        ["track"] => TRACK,
        ["top"] => TOP,
        ["jobs"] => JOBS,
        ["nodes"] => NODES,
        ["tree"] => TREE,
        ["tree", "init"] => TREE_INIT,
        ["stuck"] => STUCK,
        ["push"] => PUSH,
        ["mark"] => MARK,
        ["alerts"] => ALERTS,
        ["rules"] => RULES,
        ["rules", "check"] => RULES_CHECK,
        ["rules", "test"] => RULES_TEST,
        ["rules", "list"] => RULES_LIST,
        ["inputs"] => INPUTS,
        ["inputs", "enable"] => INPUTS_ENABLE,
        ["inputs", "disable"] => INPUTS_DISABLE,
        ["session"] => SESSION,
        ["session", "start"] => SESSION_START,
        ["session", "status"] => SESSION_STATUS,
        ["session", "stop"] => SESSION_STOP,
        ["session", "credentials"] => SESSION_CREDENTIALS,
        ["snapshot"] => SNAPSHOT,
        ["record"] => RECORD,
        ["record", "info"] => RECORD_INFO,
        ["record", "check"] => RECORD_CHECK,
        ["record", "cat"] => RECORD_CAT,
        ["record", "trace"] => RECORD_TRACE,
        ["export"] => EXPORT,
        ["hook"] => HOOK,
        ["bundle"] => BUNDLE,
        ["grafana"] | ["grafana", "provision"] => GRAFANA_PROVISION,
        ["prometheus-config"] => PROMETHEUS_CONFIG,
        ["config"] => CONFIG,
        ["config", "init"] => CONFIG_INIT,
        ["config", "check"] => CONFIG_CHECK,
        ["config", "show"] => CONFIG_SHOW,
        ["doctor"] => DOCTOR,
        ["version"] => VERSION,
        ["completions"] => COMPLETIONS,
        ["man"] => MAN,
        _ => &[],
    }
}

/// Adds the examples to the long help of a command and of all commands below it.
pub(crate) fn add_to_help(command: clap::Command, path: &[&str]) -> clap::Command {
    let examples = of(path);
    let mut command = command;
    if !examples.is_empty() {
        let lines = examples
            .iter()
            .map(|e| format!("  {}\n      {}\n", e.line, e.text));
        let text = format!("Examples:\n{}", lines.collect::<String>());
        command = command.after_long_help(text.trim_end().to_owned());
    }
    let names: Vec<String> = command
        .get_subcommands()
        .map(|inner| inner.get_name().to_owned())
        .collect();
    for name in names {
        let path = [path, &[name.as_str()]].concat();
        command = command.mut_subcommand(&name, |inner| add_to_help(inner, &path));
    }
    command
}

const PEGEL: &[Example] = &[
    example("pegel", "show the state of the agent and what to type next"),
    example(
        "pegel agent",
        "run the agent in this terminal; Ctrl-C stops it",
    ),
    example("pegel top", "show the node live"),
    example(
        "pegel run -s -- grep -r needle /usr",
        "run a program and count its system calls",
    ),
    example(
        "pegel get node_load1",
        "print the current value of a metric",
    ),
];

const AGENT: &[Example] = &[
    example(
        "pegel agent",
        "run with the defaults: page on http://127.0.0.1:1337, two days on disk",
    ),
    example(
        "pegel agent --listen 1338 --rate 1s",
        "listen on another port of loopback, sample once a second",
    ),
    example(
        "pegel agent --dir /tmp/p --socket /tmp/p/push.sock --port-search",
        "run a second agent beside another one",
    ),
    example(
        "pegel agent --once",
        "print one sample as Prometheus text and exit",
    ),
    example(
        "pegel agent --config /etc/pegel/pegel.yaml --log journal:info",
        "run as a service does",
    ),
    example(
        "pegel agent --parent head1:1338 --parent head2:1338",
        "be a node of a tree, with a second parent if the first is not reachable",
    ),
];

const JOB: &[Example] = &[
    example(
        "pegel job -- srun -n 512 ./app",
        "in an allocation of Slurm: an agent on every node while the program runs",
    ),
    example(
        "pegel job --hosts n1,n2 --out run7 -- mpirun ./app",
        "start the agents with ssh, and keep the samples of both nodes in run7",
    ),
    example(
        "pegel job --level 2 --rate 1s -- ./app",
        "on this machine, with fewer metrics, once a second",
    ),
];

const TUNNEL: &[Example] = &[
    example(
        "pegel tunnel -J login1 nid0027:/tmp/pegel-job-1000-4fa29c",
        "on your own machine: the page of a job at http://localhost:1337",
    ),
    example(
        "pegel tunnel -J proxy1,login1 --port 8080 nid0027:/tmp/pegel-job-1000-4fa29c",
        "through two hosts, at http://localhost:8080",
    ),
];

const VIEW: &[Example] = &[
    example(
        "pegel view run7",
        "serve what `pegel job --out run7` collected",
    ),
    example("pegel view run7/nid0003", "only one node"),
];

const RUN: &[Example] = &[
    example(
        "pegel run -s -- grep -r needle /usr",
        "count system calls: hits, bytes, time, errors",
    ),
    example(
        "mpirun -np 8 pegel run -m -s -- ./solver input",
        "count MPI calls too, on every rank",
    ),
    example(
        "pegel run -s --report calls.json -- make",
        "write the counts to a file",
    ),
    example(
        "pegel run -S 4711",
        "count the system calls of a running process; Ctrl-C detaches",
    ),
];

const LIST: &[Example] = &[
    example(
        "pegel list",
        "list all series with type, unit and help text",
    ),
    example(
        "pegel list --match memory",
        "list series that contain \"memory\"",
    ),
    example(
        "pegel list 'node_network_*' -f csv",
        "list matching series as CSV",
    ),
];

const VALUES: &[Example] = &[
    example(
        "pegel values",
        "show all current values; counters with their rate",
    ),
    example("pegel values node_load1 node_load5", "show named series"),
    example(
        "pegel values --match cpu --match memory",
        "show series that contain either text",
    ),
    example(
        "pegel values --match 'mpi_hits_total*' --per-node",
        "show the series of each node below this agent",
    ),
    example(
        "pegel values 'node_cpu_seconds_total{mode!=\"idle\"}' -f json",
        "select by labels, print JSON",
    ),
];

const GET: &[Example] = &[
    example(
        "pegel get node_load1,node_memory_MemFree_bytes",
        "show two metrics",
    ),
    example(
        "pegel get 'node_cpu_seconds_total{cpu=\"0\"}'",
        "show the series of one CPU",
    ),
    example(
        "pegel get 'node_filesystem_*' --match /home",
        "show matching series that contain \"/home\"",
    ),
];

const QUERY: &[Example] = &[
    example(
        "pegel query 'sum by (mode) (rate(node_cpu_seconds_total[1m]))'",
        "show how much time processors spend in each mode",
    ),
    example(
        "pegel query --range 10m 'node_load1'",
        "draw the load of the last ten minutes as a chart",
    ),
    example(
        "pegel query --range 1h --step 10s -f csv 'node_load1'",
        "write the samples of an hour as CSV",
    ),
    example(
        "pegel query --watch=5s 'topk(5, rate(node_disk_written_bytes_total[30s]))'",
        "repeat every five seconds, until interrupted",
    ),
    example(
        "pegel query --job 4711 --range job 'sum(rate(node_cpu_seconds_total{mode!=\"idle\"}[1m]))'",
        "draw how busy the CPUs of a job were, over its time",
    ),
];
const TRACK: &[Example] = &[
    example(
        "pegel track node_context_switches_total",
        "print every change until Ctrl-C",
    ),
    example(
        "pegel track 'node_network_*_bytes_total' -F 1 -o net.csv",
        "write changes to a file, once a second",
    ),
    example("pegel track", "track all nonzero counters"),
    example(
        "pegel track --node nid0003 node_load1",
        "follow a value of another node, through the tree",
    ),
];

const TOP: &[Example] = &[
    example("pegel top", "show the node live; q quits, ? shows all keys"),
    example(
        "pegel top --match 'flux.*' -F 1",
        "list only some series, refresh once a second",
    ),
    example(
        "pegel top --node nid0003",
        "show another node, through the tree",
    ),
];

const NODES: &[Example] = &[
    example(
        "pegel nodes",
        "show every node of the tree, those with problems first",
    ),
    example(
        "pegel nodes 'nid00*' --state late --state lost",
        "show those of these nodes that do not deliver values",
    ),
    example(
        "pegel nodes --check -f csv -o nodes.csv",
        "write a file, and exit with 1 if a node is not up",
    ),
];

const TREE: &[Example] = &[
    example(
        "pegel tree",
        "draw the tree below this agent, and list what is wrong",
    ),
    example("pegel tree -f json", "print it for a program"),
];

const TREE_INIT: &[Example] = &[
    example(
        "pegel tree init --host head1 --host head2 --host 10.0.0.1",
        "make an authority, a certificate for two heads and a token, in ./pegel-tree",
    ),
    example(
        "pegel tree init --dir /etc/pegel/tree --node nid0001 --node nid0002",
        "also make a certificate for each node, or add them later",
    ),
];

const PUSH: &[Example] = &[
    example("pegel push queue.depth=42 --tag q=main", "set a gauge"),
    example(
        "pegel push -t counter jobs.done=1 jobs.bytes=4096",
        "add to two counters",
    ),
    example(
        "pegel push loss=0.031 --ts 1713379493250",
        "store a value with its own time",
    ),
];

const INPUTS: &[Example] = &[
    example("pegel inputs", "show the inputs with their last errors"),
    example("pegel inputs -f json", "show them as /status does"),
];

const INPUTS_ENABLE: &[Example] = &[
    example("pegel inputs enable power", "read the input power"),
    example(
        "pegel inputs enable flux/kvs",
        "read the counters of Flux's module kvs",
    ),
];

const INPUTS_DISABLE: &[Example] = &[
    example("pegel inputs disable power", "do not read the input power"),
    example(
        "pegel inputs disable flux/kvs",
        "do not read the counters of Flux's module kvs",
    ),
];

const MARK: &[Example] = &[
    example("pegel mark 'checkpoint 12'", "set a mark, now"),
    example(
        "pegel mark --start assembly; ./assemble; pegel mark --end assembly",
        "show a part of a script as a phase",
    ),
    example(
        "pegel mark \"new driver\" --time -10m --tag version=570.1",
        "set a mark at another time, with a label",
    ),
];

const JOBS: &[Example] = &[
    example("pegel jobs --since 7d", "show the jobs of a week"),
    example(
        "pegel jobs --user ada -f csv",
        "write the jobs of a user as CSV",
    ),
    example("pegel jobs 4711 --steps", "show a job and its steps"),
];

const STUCK: &[Example] = &[
    example(
        "pegel stuck",
        "show which ranks of MPI programs the others wait for",
    ),
    example(
        "pegel stuck --job 4711 --ranks",
        "list every rank of a job as well",
    ),
    example(
        "pegel stuck --stacks",
        "show the stacks of those ranks, if they run on this node",
    ),
    example(
        "pegel stuck --after 60 -f json",
        "count a rank as waiting after a minute in one call; show all figures",
    ),
];

const ALERTS: &[Example] = &[
    example("pegel alerts", "show pending and firing alerts"),
    example(
        "pegel alerts -f json",
        "show them as GET /api/v1/alerts does",
    ),
];

const RULES: &[Example] = &[
    example(
        "pegel rules check rules/*.yml",
        "report errors in rule files",
    ),
    example("pegel rules test tests/*.yml", "run unit tests of rules"),
    example("pegel rules list", "show the rules of the agent"),
];

const RULES_CHECK: &[Example] = &[
    example(
        "pegel rules check rules/*.yml",
        "report every error with its file and line; exit code 2 if there are any",
    ),
    example(
        "pegel rules check node.yml > /dev/null",
        "print the errors alone, for example before a commit",
    ),
];

const RULES_TEST: &[Example] = &[
    example(
        "pegel rules test tests/*.yml",
        "compare alerts and values with those that the files expect; exit code 1 if they differ",
    ),
    example(
        "pegel rules test tests/node.yml",
        "run the tests of one file; it names the rule files it needs",
    ),
];

const RULES_LIST: &[Example] = &[
    example(
        "pegel rules list",
        "show every rule with its state, its health and its last error",
    ),
    example(
        "pegel rules list -f json",
        "show them as GET /api/v1/rules does",
    ),
];

const SESSION: &[Example] = &[
    example(
        "pegel session start --task align --workflow wf-7 --to azblob://acct/container",
        "record this task; ends the record of the previous task",
    ),
    example(
        "pegel session status",
        "show what is recorded, where, and what went wrong",
    ),
    example("pegel session stop", "end the record"),
];

const SESSION_START: &[Example] = &[
    example(
        "pegel session start --to s3://records/site",
        "name the task as its workflow engine or batch system does",
    ),
    example(
        "pegel session start --task align --attempt 2 --to file:///shared/records --wait",
        "return when the first block is stored",
    ),
    example(
        "pegel session start --slot gpu0 --pid 4711 --to gs://records",
        "record the task of process 4711 in a slot of its own",
    ),
];

const SESSION_STATUS: &[Example] = &[
    example("pegel session status", "show all sessions of this user"),
    example(
        "pegel session status --slot gpu0 -f json",
        "show one slot for a program",
    ),
];

const SESSION_STOP: &[Example] = &[
    example(
        "pegel session stop --exit-status 137",
        "end the record of a task that was killed",
    ),
    example(
        "pegel session stop --wait --timeout 20",
        "wait until the record is stored",
    ),
];

const SESSION_CREDENTIALS: &[Example] = &[
    example(
        "pegel session credentials --slot gpu0",
        "pass the credentials in the environment to the session of a slot",
    ),
    example(
        "AZURE_STORAGE_SAS_TOKEN=TOKEN pegel session credentials",
        "replace a SAS token before it expires",
    ),
];

const SNAPSHOT: &[Example] = &[
    example("pegel snapshot", "describe this machine on one page"),
    example(
        "pegel snapshot -o node.json",
        "write the description as JSON",
    ),
];

const RECORD: &[Example] = &[
    example(
        "pegel record info wf-7/align/1",
        "describe a record: task, node, times, series, gaps, end",
    ),
    example("pegel record check wf-7/align/1", "report damaged blocks"),
    example(
        "pegel record cat --match memory wf-7/align/1",
        "print samples as CSV",
    ),
    example(
        "pegel record trace wf-7",
        "write a trace file of all tasks of a workflow",
    ),
];

const RECORD_INFO: &[Example] = &[
    example(
        "pegel record info wf-7/align/1",
        "describe the record in a folder",
    ),
    example(
        "pegel record info -f json record-00000.pgl",
        "describe one part for a program",
    ),
];

const RECORD_CHECK: &[Example] = &[
    example(
        "pegel record check wf-7/align/1",
        "list damaged, missing and repeated blocks; exit code 1 if content is lost",
    ),
    example(
        "cat wf-7/align/1/record-*.pgl | pegel record check -",
        "check a record from standard input",
    ),
];

const RECORD_CAT: &[Example] = &[
    example(
        "pegel record cat --match node_load1 wf-7/align/1",
        "print one series as CSV",
    ),
    example(
        "pegel record cat -f openmetrics wf-7/align/1 > align.om",
        "convert a record, for promtool tsdb create-blocks-from openmetrics",
    ),
    example(
        "pegel record cat -f jsonl --start 2026-11-17T10:00:00Z file:///records/wf-7/align/1",
        "print the samples after a time, one JSON object per line",
    ),
    example(
        "pegel record cat --documents wf-7/align/1",
        "print the snapshot of the machine, autopsies and the summary",
    ),
];

const RECORD_TRACE: &[Example] = &[
    example(
        "pegel record trace wf-7 -o trace.txt",
        "write a line for each task of a workflow",
    ),
    example(
        "pegel record trace --work work --raw records/nextflow",
        "add Nextflow's names of tasks, and write plain numbers",
    ),
];

const HOOK: &[Example] = &[
    example(
        "pegel hook nextflow --to file:///shared/records > pegel.config",
        "record every task of a workflow: nextflow -c pegel.config run ...",
    ),
    example(
        "pegel hook slurm --to s3://records/site --install /etc/slurm/pegel",
        "write TaskProlog, Epilog and the lines for slurm.conf",
    ),
    example(
        "pegel hook tes --to azblob://acct/records",
        "print the lines for the batch script of each task",
    ),
];

const EXPORT: &[Example] = &[
    example(
        "pegel export --to /data/samples",
        "all stored samples as Parquet files, one folder per day and node",
    ),
    example(
        "pegel export --to s3://bucket/samples --match 'node_cpu*' --start -6h",
        "the processors' last six hours, to object storage",
    ),
    example(
        "pegel export --to /data/job7 --store out/",
        "what `pegel job --out out` collected, without an agent",
    ),
];

const BUNDLE: &[Example] = &[
    example(
        "pegel bundle --out pegel.tar.gz --to azblob://acct/records",
        "make an archive of this program and print the line for a batch script",
    ),
    example(
        "pegel bundle --out pegel.tar.gz --config node.yaml --upload file:///shared/pegel",
        "add a configuration, and store the archive where tasks find it",
    ),
];

const GRAFANA_PROVISION: &[Example] = &[
    example(
        "pegel grafana provision --dir /etc/grafana/provisioning",
        "write data source and dashboards for the running agent",
    ),
    example(
        "pegel grafana provision --dir ./grafana --seen-as /etc/grafana/provisioning",
        "write them for a Grafana in a container",
    ),
    example(
        "pegel grafana provision --dir ./grafana --url https://node7:1337 --token-file token",
        "describe the agent of another node",
    ),
    example(
        "pegel grafana provision --dir ./grafana --source opentsdb",
        "query the agent through OpenTSDB's API, as Dragon's dashboards do",
    ),
];

const PROMETHEUS_CONFIG: &[Example] = &[
    example(
        "pegel prometheus-config",
        "print the scrape configuration for this node",
    ),
    example(
        "pegel prometheus-config --nodes node1,node2:1338 -o pegel.yml",
        "write it for two other nodes",
    ),
];

const CONFIG: &[Example] = &[
    example(
        "pegel config init pegel.yaml",
        "write the default file with every key explained",
    ),
    example(
        "pegel config check pegel.yaml",
        "report all errors of a file",
    ),
    example(
        "pegel config show",
        "show the configuration of the running agent",
    ),
];

const CONFIG_INIT: &[Example] = &[
    example(
        "pegel config init",
        "print the default file with every key explained",
    ),
    example("pegel config init pegel.yaml", "write it to a new file"),
];

const CONFIG_CHECK: &[Example] = &[
    example(
        "pegel config check pegel.yaml",
        "report all errors, also in the files it names",
    ),
    example(
        "pegel config check --text-only node7.yaml",
        "check a file of another machine",
    ),
];

const CONFIG_SHOW: &[Example] = &[
    example(
        "pegel config show",
        "show the configuration of the running agent",
    ),
    example(
        "pegel config show --new",
        "show that of an agent started here",
    ),
    example(
        "pegel config show --config pegel.yaml --level 4",
        "show the effect of a file and of flags",
    ),
];

const DOCTOR: &[Example] = &[
    example(
        "pegel doctor",
        "check the machine, the permissions and the running agent",
    ),
    example("pegel doctor -f json", "print the findings for a program"),
];

const VERSION: &[Example] = &[
    example("pegel version", "print the version"),
    example("pegel version --json", "print it as JSON"),
];

const COMPLETIONS: &[Example] = &[
    example(
        "pegel completions bash > ~/.local/share/bash-completion/completions/pegel",
        "install for bash",
    ),
    example(
        "pegel completions zsh > ~/.zfunc/_pegel",
        "install for zsh, with ~/.zfunc in fpath",
    ),
    example(
        "pegel completions fish > ~/.config/fish/completions/pegel.fish",
        "install for fish",
    ),
];

const MAN: &[Example] = &[
    example(
        "pegel man --dir ~/.local/share/man",
        "install the manual pages for this user",
    ),
    example(
        "pegel man --dir .",
        "write them below the current directory",
    ),
];

#[cfg(test)]
mod tests {
    use clap::FromArgMatches;

    use super::*;

    fn visit(command: &clap::Command, path: &[&str], check: &mut impl FnMut(&[&str])) {
        check(path);
        let shown = command
            .get_subcommands()
            .filter(|inner| !inner.is_hide_set());
        for inner in shown {
            visit(inner, &[path, &[inner.get_name()]].concat(), check);
        }
    }

    /// Splits a line as a shell does, as far as the examples need it.
    fn words(line: &str) -> Vec<String> {
        let mut words: Vec<String> = Vec::new();
        let (mut quote, mut is_open) = (None, false);
        for c in line.chars() {
            match (quote, c) {
                (Some(open), c) if c == open => quote = None,
                (None, '\'' | '"') => (quote, is_open) = (Some(c), words_open(&mut words, is_open)),
                (None, ' ') => is_open = false,
                (_, c) => {
                    is_open = words_open(&mut words, is_open);
                    words.last_mut().expect("open").push(c);
                }
            }
        }
        words
    }

    fn words_open(words: &mut Vec<String>, is_open: bool) -> bool {
        if !is_open {
            words.push(String::new());
        }
        true
    }

    #[test]
    fn every_command_has_examples_that_parse() {
        let mut lines = 0;
        visit(&crate::command(), &[], &mut |path| {
            let examples = of(path);
            assert!(examples.len() >= 2, "{path:?} has no examples");
            let commands = examples.iter().flat_map(|example| {
                let commands = example.line.split("; ");
                commands.map(move |command| (example, command))
            });
            for (example, command) in commands {
                let before_redirect = command.split(" > ").next().expect("a line");
                let words = words(before_redirect);
                // A line may contain the user's own commands too.
                let Some(start) = words.iter().position(|word| word == "pegel") else {
                    continue;
                };
                let parsed = crate::command().try_get_matches_from(&words[start..]);
                let parsed = parsed.and_then(|matches| crate::Cli::from_arg_matches(&matches));
                assert!(parsed.is_ok(), "{}: {parsed:?}", example.line);
                let is_about = path
                    .iter()
                    .all(|name| words.iter().any(|word| word == name));
                assert!(is_about, "{path:?}: {}", example.line);
                lines += 1;
            }
        });
        assert!(lines > 40);
    }

    #[test]
    fn every_long_help_shows_the_examples() {
        visit(&crate::command(), &[], &mut |path| {
            let mut command = crate::command();
            let mut found = &mut command;
            for name in path {
                found = found.find_subcommand_mut(name).expect("a command");
            }
            let help = found.render_long_help().to_string();
            for example in of(path) {
                assert!(help.contains(example.line), "{path:?}: {help}");
            }
        });
    }
}
