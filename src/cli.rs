//! The command line. Its doc comments are its help.
//!
//! **Invariant:** a command prints its result on standard output and its trouble on standard error,
//! each trouble on one line.

mod check;
mod completions;
mod confirm;
mod control;
mod day;
mod graph;
mod history;
mod init;
mod kind;
mod page;
mod plan;
mod publish;
mod replay;
mod schema;
mod screen;
mod simulate;
mod status;
mod step;
mod tell;

use crate::graph::Format;
use crate::host::policies::{Found, Unusable, find, last_good};
use crate::machine::PartWish;
use clap::{Args, Parser, Subcommand};
use control::Wish;
use plan::Form;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Keeps a Linux gateway's clients online when tunnels fail.
#[derive(Debug, Parser)]
#[command(version, about, max_term_width = 100)]
pub struct Cli {
    #[command(flatten)]
    places: Places,
    #[command(subcommand)]
    command: Command,
}

/// Where policies and state are.
#[derive(Clone, Debug, Args)]
struct Places {
    /// The folder of policies
    #[arg(long, global = true, env = "EGRESSCTL_POLICY_DIR", default_value = "/etc/egressctl")]
    policy_dir: PathBuf,
    /// The folder of state; without it systemd's `STATE_DIRECTORY`, else /var/lib/egressctl
    #[arg(long, global = true, env = "EGRESSCTL_STATE_DIR")]
    state_dir: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Look once, decide once, change once, prove it, and exit
    Step(StepArgs),
    /// Print what a step would do; change and create nothing
    Plan(PlanArgs),
    /// Keep what `step --try` has changed
    Confirm(ConfirmArgs),
    /// Say how things are
    Status(StatusArgs),
    /// Say what was done, and why
    History(HistoryArgs),
    /// Examine the policies and the machine, run the probes; change nothing
    Check(CheckArgs),
    /// Change nothing until `resume`; observing goes on
    Pause(PauseArgs),
    /// Go on after `pause`
    Resume(ResumeArgs),
    /// Choose by hand: SLOT=ENDPOINT, HOST=NODE, direct, or auto
    Switch(SwitchArgs),
    /// Ask the next step for a full refresh of the pool
    Refresh(NameArgs),
    /// Give the clients back, remove all that was made, and pause
    Down(DownArgs),
    /// Print a policy made from what is here, each guess named on standard error
    Init(InitArgs),
    /// Print the JSON Schema of a policy, a state file, or what status prints
    Schema(SchemaArgs),
    /// Print a script that makes a shell complete what follows egressctl
    Completions(CompletionsArgs),
    /// Play a scripted world through the same decisions; needs no rights and touches nothing
    Simulate(SimulateArgs),
    /// Decide again on what `step --record` wrote, and say whether it comes out the same
    Replay(ReplayArgs),
    /// Print the states and transitions of a kind, or of a policy with where it stands
    Graph(GraphArgs),
}

/// Which policies are meant.
#[derive(Debug, Args)]
struct Wanted {
    /// Policies by name or path; none given: all of the policy folder
    policies: Vec<String>,
}

#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
struct StepArgs {
    #[command(flatten)]
    wanted: Wanted,
    /// Only print what would be done
    #[arg(long)]
    plan: bool,
    /// Step although it is not due yet
    #[arg(long)]
    now: bool,
    /// Print one JSON object a policy
    #[arg(long)]
    json: bool,
    /// Accept that the policy's file has moved
    #[arg(long)]
    adopt: bool,
    /// Undo what is changed, and pause, unless `confirm` comes within so many seconds
    #[arg(long = "try", value_name = "SEC", conflicts_with = "plan",
          value_parser = clap::value_parser!(u32).range(1..=86_400))]
    try_sec: Option<u32>,
    /// Also say what was seen, and which rule applied
    #[arg(long, conflicts_with = "try_sec")]
    explain: bool,
    /// Write what the decision was made of to a file, for `replay`; no secret is in it
    #[arg(long, value_name = "FILE", conflicts_with_all = ["plan", "try_sec"])]
    record: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct ConfirmArgs {
    /// The policy
    policy: String,
    /// Undo what nobody has confirmed, as soon as its time is up
    #[arg(long, hide = true)]
    give_up: bool,
}

#[derive(Debug, Args)]
struct PlanArgs {
    #[command(flatten)]
    wanted: Wanted,
    /// Print one JSON object a policy
    #[arg(long)]
    json: bool,
    /// Also say what was seen, and which rule applied
    #[arg(long)]
    explain: bool,
}

#[derive(Debug, Args)]
struct StatusArgs {
    #[command(flatten)]
    wanted: Wanted,
    /// Print JSON: an object, or an array for several policies
    #[arg(long)]
    json: bool,
    /// Show it again every two seconds
    #[arg(long, conflicts_with = "json")]
    watch: bool,
}

#[derive(Debug, Args)]
struct CheckArgs {
    #[command(flatten)]
    wanted: Wanted,
    /// Print JSON: an object, or an array for several policies
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct HistoryArgs {
    /// The policy
    policy: String,
    /// At most so many lines, the newest last
    #[arg(short, default_value_t = 20)]
    n: usize,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct NameArgs {
    /// The policy
    policy: String,
}

#[derive(Debug, Args)]
struct PauseArgs {
    /// The policy
    policy: String,
    /// One of its hosts or hops; none given: all of it
    part: Option<String>,
    /// Also where clients are unprotected and the pause stops the way back
    #[arg(long)]
    force: bool,
}

#[derive(Debug, Args)]
struct ResumeArgs {
    /// The policy
    policy: String,
    /// One of its hosts or hops; none given: all of it
    part: Option<String>,
}

#[derive(Debug, Args)]
struct SwitchArgs {
    /// The policy
    policy: String,
    /// SLOT=ENDPOINT loads an endpoint of the list; direct sends all clients out by the WAN and
    /// pauses, or consents to that where no slot serves; auto gives the choice back; HOST=NODE sets a
    /// host name's record and leaves it alone
    target: String,
    /// Also what is not confirmed healthy, or leaves clients unprotected
    #[arg(long)]
    force: bool,
}

#[derive(Debug, Args)]
struct DownArgs {
    /// The policy
    policy: String,
    /// Only print what would be done
    #[arg(long)]
    plan: bool,
}

#[derive(Debug, Args)]
struct InitArgs {
    /// The kind of policy: pool or selector
    kind: String,
    /// The folder of wg-quick files that tunnels are made of
    #[arg(long, default_value = "/etc/wireguard")]
    configs: PathBuf,
    /// The own configuration of the proxy core that a selector is made for
    #[arg(long, value_name = "FILE")]
    core_config: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct SchemaArgs {
    /// What is described
    described: schema::Described,
}

#[derive(Debug, Args)]
struct CompletionsArgs {
    /// The shell
    shell: completions::For,
}

#[derive(Debug, Args)]
struct SimulateArgs {
    /// The scenario's file
    scenario: PathBuf,
    /// Print one JSON object a moment, a line each
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct ReplayArgs {
    /// The file that `step --record` wrote
    bundle: PathBuf,
    /// Print one JSON object a decision, a line each
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct GraphArgs {
    /// A kind (pool, selector, guard, dns, chain), or a policy by name or path
    #[arg(value_name = "KIND|POLICY")]
    shown: String,
    /// How the picture is written
    #[arg(long, value_enum, default_value_t = Format::Mermaid)]
    format: Format,
}

impl Places {
    fn state_dir(&self) -> PathBuf {
        self.state_dir.clone().unwrap_or_else(crate::host::environment::state_dir)
    }

    fn find(&self, wanted: &[String]) -> Vec<Result<Found, Unusable>> {
        find(&self.policy_dir, wanted)
    }
}

/// A policy to go on with.
struct Taken {
    found: Found,
    /// Why its file cannot be used, where it is the last good one that goes on.
    invalid: Option<String>,
}

impl Taken {
    /// The policy of a file, or the last good one in the place of an invalid one, which is said.
    fn of(found: Result<Found, Unusable>, state_dir: &Path) -> Option<Self> {
        let unusable = match found {
            Ok(found) => return Some(Self { found, invalid: None }),
            Err(unusable) => unusable,
        };
        complain(&unusable.to_string());
        let found = last_good(state_dir, &unusable)?;
        let invalid = format!("{unusable}; the last good policy goes on until it is mended");
        Some(Self { found, invalid: Some(invalid) })
    }
}

/// Runs a command and gives the program's exit code.
#[must_use]
pub fn run(cli: Cli) -> ExitCode {
    let places = cli.places;
    let code = match cli.command {
        Command::Step(args) if args.plan => {
            let form = Form { json: args.json, explain: args.explain };
            plan::plan(&places, &args.wanted.policies, form)
        }
        Command::Step(args) => step::step(&places, &args),
        Command::Plan(args) => {
            let form = Form { json: args.json, explain: args.explain };
            plan::plan(&places, &args.wanted.policies, form)
        }
        Command::Confirm(args) if args.give_up => confirm::give_up(&places, &args.policy),
        Command::Confirm(args) => confirm::confirm(&places, &args.policy),
        Command::Status(args) => status::status(&places, &args),
        Command::History(args) => history::history(&places, &args),
        Command::Check(args) => check::check(&places, &args),
        Command::Pause(args) => {
            let wish = match &args.part {
                Some(part) => Wish::Part { part, wish: PartWish::Pause },
                None => Wish::Pause { force: args.force },
            };
            control::control(&places, &args.policy, wish)
        }
        Command::Resume(args) => {
            let wish = match &args.part {
                Some(part) => Wish::Part { part, wish: PartWish::Resume },
                None => Wish::Resume,
            };
            control::control(&places, &args.policy, wish)
        }
        Command::Switch(args) => {
            let wish = Wish::Switch { target: &args.target, force: args.force };
            control::control(&places, &args.policy, wish)
        }
        Command::Refresh(args) => control::control(&places, &args.policy, Wish::Refresh),
        Command::Down(args) if args.plan => plan::down(&places, &args.policy),
        Command::Down(args) => control::control(&places, &args.policy, Wish::Down),
        Command::Init(args) => init::init(&places, &args),
        Command::Replay(args) => replay::replay(&args),
        Command::Graph(args) => graph::graph(&places, &args),
        Command::Simulate(args) => simulate::simulate(&args.scenario, args.json),
        Command::Schema(args) => schema::schema(args.described),
        Command::Completions(args) => completions::completions(args.shell),
    };
    ExitCode::from(code)
}

/// Prints a line of result. A reader that went away is no trouble of ours.
fn say(line: &str) {
    let _is_read = print(line);
}

/// The same, and whether there is a reader.
fn print(line: &str) -> bool {
    use std::io::Write as _;
    writeln!(std::io::stdout().lock(), "{line}").is_ok()
}

/// Prints what a policy asks for and this version does not do.
fn note(found: &Found) {
    for note in found.policy.notes() {
        complain(&format!("note: policy {}: {note}", found.name));
    }
}

/// Prints a line of trouble, for the journal with its urgency.
fn complain(line: &str) {
    use std::io::Write as _;
    let line: String =
        line.chars().map(|c| if crate::outcome::is_unfit(c) { ' ' } else { c }).collect();
    let urgency = if crate::host::journal::hears_errors() { "<4>" } else { "" };
    let _ = writeln!(std::io::stderr().lock(), "{urgency}egressctl: {line}").is_ok();
}
