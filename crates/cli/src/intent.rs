//! What the command line means: every value checked and every default filled in, before anything is done.

use crate::args::{
    BenchCommand, CableArgs, CableKindArg, Command, CompareArgs, ConfigCommand, Crosslane, DoctorArgs,
    ExecArgs, ExplainArgs, HostArgs, KeyArgs, KeyCommand, KillArgs, LabCommand, PingArgs, ReportArgs,
    ResilienceArg, TopArgs, TopologyArg, UpArgs,
};
use crate::plan::PlanArgs;
use crate::{
    compare, config, doctor, exit, explain, fault, key, lab, pages, ping, plan, report, run, status, top,
};
use anyhow::Result;
use crosslane_bench::all::args::run_all;
use crosslane_bench::apps::args::run_apps;
use crosslane_bench::cli::{PerfArgs, run_perf};
use crosslane_bench::demo::{DemoArgs, run_demo};
use crosslane_bench::direct::args::run_direct;
use crosslane_bench::kernel::args::run_kernel;
use crosslane_bench::media::args::run_media;
use crosslane_bench::quick::args::run_quick;
use crosslane_bench::ring::args::run_ring;
use crosslane_bench::scale::args::run_scale;
use crosslane_bench::sdp::args::run_sdp;
use crosslane_bench::stack::command::run_stack;
use crosslane_bench::steady::args::run_steady;
use crosslane_client::session::socket_path;
use crosslane_lab::{CableKind, Machines, Options, Posted, Preload, Resilience, Topology};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// An action.
#[derive(Debug)]
pub(crate) enum Action {
    LabUp(Box<Options>),
    LabExec { name: String, host: String, preload: Preload, command: Vec<OsString> },
    LabStatus { name: String, json: bool },
    LabDown { name: Option<String> },
    LabList { json: bool },
    LabCable { name: String, one: String, other: String, cut: bool, json: bool },
    LabKill { name: String, host: String, programs: bool },
    LabStart { name: String, host: String },
    Run { socket: Option<PathBuf>, large: Option<u64>, command: Vec<OsString> },
    Status { socket: PathBuf, json: bool },
    Ping { socket: PathBuf, args: PingArgs },
    Perf(Box<PerfArgs>),
    Bench(BenchCommand),
    Demo(Box<DemoArgs>),
    Compare(CompareArgs),
    Report(ReportArgs),
    Top { socket: PathBuf, delay: Duration, args: TopArgs },
    Explain { socket: PathBuf, pid: u32, fd: Option<i32>, json: bool },
    Plan(Box<PlanArgs>),
    Doctor { socket: PathBuf, given: bool, root: PathBuf, json: bool },
    Hosts { socket: PathBuf, json: bool },
    Metrics { socket: PathBuf },
    ConfigCheck { file: PathBuf },
    Key { file: PathBuf, host: Option<String>, new: bool },
    Completions { shell: clap_complete::Shell },
    Man { folder: Option<PathBuf> },
}

impl Action {
    /// Turns the parsed arguments `typed` into an action.
    ///
    /// # Errors
    /// A value makes no sense; exit code 2.
    pub(crate) fn of(typed: Crosslane) -> Result<Self> {
        let given = typed.socket.clone();
        let socket = typed.socket.unwrap_or_else(socket_path);
        Ok(match typed.command {
            Command::Lab(command) => Self::of_lab(command)?,
            Command::Run(args) => Self::Run { socket: given, large: args.malloc, command: args.command },
            Command::Status(args) => Self::Status { socket, json: args.json },
            Command::Ping(args) => Self::Ping { socket, args },
            Command::Perf(args) => Self::Perf(args),
            Command::Bench(command) => {
                check(&command).map_err(|error| exit::usage(format!("--only: {error}")))?;
                Self::Bench(command)
            }
            Command::Demo(args) => Self::Demo(args),
            Command::Compare(args) => Self::Compare(compare_of(args)?),
            Command::Report(args) => Self::Report(args),
            Command::Top(args) => Self::Top { socket, delay: delay_of(&args)?, args },
            Command::Explain(args) => explain_of(socket, &args)?,
            Command::Plan(args) => {
                args.settings()?;
                Self::Plan(args)
            }
            Command::Doctor(DoctorArgs { json, root }) => {
                Self::Doctor { socket, given: given.is_some(), root, json }
            }
            Command::Hosts(args) => Self::Hosts { socket, json: args.json },
            Command::Metrics => Self::Metrics { socket },
            Command::Config(ConfigCommand::Check { file }) => Self::ConfigCheck { file },
            Command::Key(KeyCommand::Generate(args)) => key_of(args, true)?,
            Command::Key(KeyCommand::Show(args)) => key_of(args, false)?,
            Command::Completions(args) => Self::Completions { shell: args.shell },
            Command::Man(args) => Self::Man { folder: args.folder },
        })
    }

    fn of_lab(command: LabCommand) -> Result<Self> {
        Ok(match command {
            LabCommand::Up(args) => Self::LabUp(Box::new(up_of(args)?)),
            LabCommand::Exec(ExecArgs { host, plain, name, command }) => {
                let preload = if plain { Preload::Off } else { Preload::On };
                Self::LabExec { name, host, preload, command }
            }
            LabCommand::Status(args) => Self::LabStatus { name: args.name, json: args.json },
            LabCommand::Down(args) => Self::LabDown { name: (!args.all).then_some(args.name) },
            LabCommand::List(args) => Self::LabList { json: args.json },
            LabCommand::Cut(args) => cable_of(args, true),
            LabCommand::Mend(args) => cable_of(args, false),
            LabCommand::Kill(KillArgs { host: HostArgs { host, name }, programs }) => {
                Self::LabKill { name, host, programs }
            }
            LabCommand::Start(HostArgs { host, name }) => Self::LabStart { name, host },
        })
    }

    /// Runs the action.
    ///
    /// # Errors
    /// See [`exit::code`].
    pub(crate) fn run(self) -> Result<()> {
        match self {
            Self::LabUp(options) => lab::up(&options),
            Self::LabExec { name, host, preload, command } => lab::exec(&name, host, preload, command),
            Self::LabStatus { name, json } => lab::status(&name, json),
            Self::LabDown { name } => lab::down(name.as_deref()),
            Self::LabList { json } => lab::list(json),
            Self::LabCable { name, one, other, cut, json } => fault::cable(&name, &one, &other, cut, json),
            Self::LabKill { name, host, programs } => fault::kill(&name, &host, programs),
            Self::LabStart { name, host } => fault::start(&name, &host),
            Self::Run { socket, large, command } => run::run(socket.as_deref(), large, &command),
            Self::Status { socket, json } => status::status(&socket, json),
            Self::Ping { socket, args } => ping::ping(&socket, &args),
            Self::Perf(args) => run_perf(&args),
            Self::Bench(BenchCommand::All(args)) => run_all(&args),
            Self::Bench(BenchCommand::Quick(args)) => run_quick(&args),
            Self::Bench(BenchCommand::Ring(args)) => run_ring(&args),
            Self::Bench(BenchCommand::Stack(args)) => run_stack(&args),
            Self::Bench(BenchCommand::Sdp(args)) => run_sdp(&args),
            Self::Bench(BenchCommand::Apps(args)) => run_apps(&args),
            Self::Bench(BenchCommand::Kernel(args)) => run_kernel(&args),
            Self::Bench(BenchCommand::DirectVsTcp(args)) => run_direct(&args),
            Self::Bench(BenchCommand::Media(args)) => run_media(&args),
            Self::Bench(BenchCommand::Scale(args)) => run_scale(&args),
            Self::Bench(BenchCommand::Steady(args)) => run_steady(&args),
            Self::Demo(args) => run_demo(&args),
            Self::Compare(args) => compare::compare(&args),
            Self::Report(args) => report::report(&args),
            Self::Top { socket, delay, args } => top::top(&socket, delay, &args),
            Self::Explain { socket, pid, fd, json } => explain::explain(&socket, pid, fd, json),
            Self::Plan(args) => plan::run(&args),
            Self::Doctor { socket, given, root, json } => doctor::doctor(&socket, given, &root, json),
            Self::Hosts { socket, json } => status::hosts(&socket, json),
            Self::Metrics { socket } => status::metrics(&socket),
            Self::ConfigCheck { file } => config::check(&file),
            Self::Key { file, host, new } => key::key(&file, host.as_deref(), new),
            Self::Completions { shell } => pages::completions(shell),
            Self::Man { folder } => pages::man(folder.as_deref()),
        }
    }
}

/// Checks what clap cannot.
fn check(command: &BenchCommand) -> Result<()> {
    match command {
        BenchCommand::All(args) => args.check(),
        BenchCommand::Quick(args) => args.check(),
        BenchCommand::Steady(args) => args.check(),
        BenchCommand::Apps(args) => args.check(),
        BenchCommand::Ring(_)
        | BenchCommand::Stack(_)
        | BenchCommand::Sdp(_)
        | BenchCommand::Kernel(_)
        | BenchCommand::Media(_)
        | BenchCommand::Scale(_)
        | BenchCommand::DirectVsTcp(_) => Ok(()),
    }
}

fn cable_of(CableArgs { one, other, name, json }: CableArgs, cut: bool) -> Action {
    Action::LabCable { name, one, other, cut, json }
}

fn key_of(args: KeyArgs, new: bool) -> Result<Action> {
    let is_host = |host: &str| host == "*" || host.parse::<u8>().is_ok_and(|host| (1..=254).contains(&host));
    if let Some(host) = args.host.as_deref().filter(|host| !is_host(host)) {
        return Err(exit::usage(format!("--host {host}: neither a host id from 1 to 254 nor `*`")));
    }
    Ok(Action::Key { file: args.file, host: args.host, new })
}

fn up_of(args: UpArgs) -> Result<Options> {
    let topology = match args.topology {
        TopologyArg::Ring => Topology::Ring,
        TopologyArg::Pair => Topology::Pair,
        TopologyArg::Chain => Topology::Chain,
        TopologyArg::Torus => Topology::Torus,
    };
    let resilience = args.resilience.map(|kind| match kind {
        ResilienceArg::Keep => Resilience::Keep,
        ResilienceArg::Reset => Resilience::Reset,
    });
    let options = Options {
        cable_kind: cable_kind_of(&args)?,
        hosts: args.hosts,
        topology,
        beside: args.beside,
        window: args.window,
        ring_max: args.ring_max,
        spin_us: args.spin_us,
        one_way: args.one_way,
        all_ways: args.all_ways,
        stripe: args.stripe,
        pump: args.pump,
        resilience,
        rules: args.rules,
        log: args.log,
        force: args.force,
        patience: Duration::from_secs(args.timeout.unwrap_or(if args.vms { 300 } else { 20 })),
        ..Options::named(&args.name)
    };
    let machines = args.vms.then(|| Machines::find(args.vm_image)).transpose()?;
    let memory = args.vm_memory;
    let machines = machines.map(|it| Machines { memory_mb: memory.unwrap_or(it.memory_mb), ..it });
    let options = Options { machines, ..options };
    options.check()?;
    Ok(options)
}

fn cable_kind_of(args: &UpArgs) -> Result<CableKind> {
    if args.cable_kind == CableKindArg::Posted || args.cable.is_some() {
        let UpArgs { delay_us, cable: link, seed, .. } = *args;
        return Ok(CableKind::Posted(Posted {
            delay_us,
            link,
            seed,
            combine: args.in_order.then_some(false),
        }));
    }
    if args.delay_us.is_some() || args.seed.is_some() || args.in_order {
        return Err(exit::usage(
            "--delay-us, --seed and --in-order are for --cable-kind posted; --seed for --cable, too"
                .to_owned(),
        ));
    }
    Ok(CableKind::Soft)
}

fn compare_of(args: CompareArgs) -> Result<CompareArgs> {
    let CompareArgs { confidence, min, limit, .. } = args;
    if !(0.0..=1000.0).contains(&limit) {
        return Err(exit::usage(format!("--limit {limit}: give a percentage from 0 to 1000, as 15")));
    }
    if !(50.0..=99.99).contains(&confidence) {
        return Err(exit::usage(format!(
            "--confidence {confidence}: give a percentage from 50 to 99.99, as 95"
        )));
    }
    if !(0.0..=1000.0).contains(&min) {
        return Err(exit::usage(format!("--min {min}: give a percentage from 0 to 1000, as 2.5")));
    }
    Ok(args)
}

fn delay_of(args: &TopArgs) -> Result<Duration> {
    let delay = Duration::try_from_secs_f64(args.delay).ok().filter(|delay| !delay.is_zero());
    delay.ok_or_else(|| exit::usage(format!("--delay {}: give seconds above 0", args.delay)))
}

fn explain_of(socket: PathBuf, args: &ExplainArgs) -> Result<Action> {
    let bad = || exit::usage(format!("`{}` is no process: give PID, or PID:FD", args.target));
    let (pid, fd) = match args.target.split_once(':') {
        Some((pid, fd)) => (pid, Some(fd.parse().map_err(|_| bad())?)),
        None => (args.target.as_str(), None),
    };
    Ok(Action::Explain { socket, pid: pid.parse().map_err(|_| bad())?, fd, json: args.json })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{CommandFactory, Parser};

    fn meaning(line: &str) -> Result<Action> {
        Action::of(Crosslane::try_parse_from(line.split(' ')).map_err(|e| exit::usage(e.to_string()))?)
    }

    #[test]
    fn args_definition_is_sound() {
        Crosslane::command().debug_assert();
    }

    #[test]
    fn args_exec_takes_everything_behind_the_host() {
        let Ok(Action::LabExec { host, preload, command, .. }) =
            meaning("crosslane lab exec --plain h2 -- iperf3 -c 10.86.0.1 --json")
        else {
            panic!("not an exec");
        };
        assert_eq!((host.as_str(), preload), ("h2", Preload::Off));
        assert_eq!(command, ["iperf3", "-c", "10.86.0.1", "--json"]);
        assert!(meaning("crosslane lab exec h2").is_err());
    }

    #[test]
    fn args_plain_may_follow_the_host() {
        let Ok(Action::LabExec { preload, command, .. }) = meaning("crosslane lab exec h1 --plain -- true")
        else {
            panic!("not an exec");
        };
        assert_eq!(preload, Preload::Off);
        assert_eq!(command, ["true"]);
    }

    #[test]
    fn args_lab_has_its_faults_and_options() {
        let Ok(Action::LabUp(options)) =
            meaning("crosslane lab up --hosts 9 --topology torus --one-way --pump --resilience reset")
        else {
            panic!("not an up");
        };
        assert_eq!((options.hosts, options.topology), (9, Topology::Torus));
        assert_eq!(
            (options.one_way, options.pump, options.resilience),
            (true, true, Some(Resilience::Reset))
        );
        assert!(meaning("crosslane lab up --hosts 7 --topology torus").is_err());
        let timed = |more: &str| {
            let words = ["crosslane", "lab", "up", "--cable", "gen3 x4, fibre 10 m"];
            let words = words.into_iter().chain(more.split_whitespace());
            Action::of(Crosslane::try_parse_from(words).map_err(|error| exit::usage(error.to_string()))?)
        };
        let Ok(Action::LabUp(options)) = timed("--seed 4") else { panic!("not an up") };
        let link = Some("gen3 x4, fibre 10 m".parse().unwrap());
        assert_eq!(
            options.cable_kind,
            CableKind::Posted(Posted { link, seed: Some(4), ..Posted::default() })
        );
        assert!(timed("--delay-us 4").is_err() && timed("--vms").is_err());
        assert!(matches!(
            meaning("crosslane lab mend h1 2 --name x"),
            Ok(Action::LabCable { name, one, other, cut: false, json: false }) if (&*name, &*one, &*other) == ("x", "h1", "2")
        ));
        assert!(matches!(
            meaning("crosslane lab kill --programs h3"),
            Ok(Action::LabKill { host, programs: true, .. }) if host == "h3"
        ));
        assert!(meaning("crosslane lab cut h1").is_err());
    }

    #[test]
    fn args_values_are_checked_before_any_action() {
        assert!(meaning("crosslane lab up --hosts 3 --topology pair").is_err());
        assert!(meaning("crosslane lab up --hosts 0").is_err());
        assert!(meaning("crosslane lab up --name ../x").is_err());
        assert!(meaning("crosslane top -d 0").is_err());
        assert!(meaning("crosslane explain x:1").is_err());
        assert!(matches!(
            meaning("crosslane explain 12:3"),
            Ok(Action::Explain { pid: 12, fd: Some(3), .. })
        ));
    }

    #[test]
    fn args_socket_may_stand_anywhere() {
        let Ok(Action::Status { socket, json: true }) = meaning("crosslane status --json --socket /x") else {
            panic!("not a status");
        };
        assert_eq!(socket, PathBuf::from("/x"));
    }
}
