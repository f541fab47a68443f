//! `rockbot`: a fleet in one process, or a client of a running fleet.

mod admin;
mod agent_memory;
mod agents;
mod approval;
mod arguments;
mod bench;
mod call_failure;
mod call_view;
mod chat;
mod completion;
mod config_folder;
mod confirm;
mod context_command;
mod contexts;
mod conversation;
mod conversation_history;
mod conversation_summary;
mod demo;
mod dlq;
mod doctor;
mod failure;
mod fleet;
mod follow_ups;
mod gateway;
mod host;
mod images;
mod init;
mod journaled_call;
mod man;
mod markdown;
mod mcp;
mod print;
mod private_file;
mod prompts;
mod render;
mod rest;
mod schedule;
mod scheduled_result;
mod script;
mod sessions;
mod settings;
mod similar_names;
mod stored_conversations;
mod tasks;
mod terminal_size;
mod tools;
mod up;
mod watch;
mod web;
mod work_queues;
mod worker;

use std::{io::Write, process::ExitCode, time::Duration};

use clap::{CommandFactory, Parser, error::ErrorKind};
use rockbot_service::{exit, logging, tls::install_tls_provider};

use self::{
    arguments::{Arguments, Command, Common, Mcp},
    contexts::SelectedContextUse,
    failure::{Failure, OrExit, Outcome},
    print::{note, outln},
    settings::Settings,
};

/// Calls make many small allocations that cross threads; this allocator is optimized for those.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    #[cfg(feature = "pdf")]
    if let Some(code) = rockbot_tool_handler::families::read_pdf_if_requested() {
        return code;
    }
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            let requested =
                matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
            return match error.print() {
                _ if !requested => ExitCode::from(exit::USAGE),
                printed => report(printed.map(|()| exit::OK).map_err(Failure::from)),
            };
        }
    };
    let json = arguments.common.json;
    let calls_tool = arguments.command.as_ref().is_some_and(Command::calls_tool);
    let outcome = run(arguments);
    report(if calls_tool { call_failure::complete(outcome, json) } else { outcome })
}

/// Prints the error of a failed command and returns the exit code.
fn report(outcome: Outcome) -> ExitCode {
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(Failure { code: exit::OK, .. }) => ExitCode::SUCCESS,
        Err(Failure { code, cause }) => {
            let mut stderr = anstream::stderr().lock();
            let bold = anstyle::Style::new().bold().fg_color(Some(anstyle::AnsiColor::Red.into()));
            let _ =
                writeln!(stderr, "{bold}error:{bold:#} {}", render::clean(&format!("{cause:#}")));
            ExitCode::from(code)
        }
    }
}

fn run(arguments: Arguments) -> Outcome {
    let Arguments { common, command } = arguments;
    let command = match command {
        Some(command) => match run_without_settings(command, &common)? {
            Ran::Ended(code) => return Ok(code),
            Ran::NeedsSettings(command) => Some(*command),
        },
        None => None,
    };
    let environment = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let selected = command.as_ref().map_or(SelectedContextUse::Join, Command::selected_context);
    let mut settings = Settings::read(&common, selected, environment).or_exit(exit::USAGE)?;
    if common.check_config {
        settings.validate_all().or_exit(exit::USAGE)?;
        outln!("the configuration is valid")?;
        return Ok(exit::OK);
    }
    let Some(command) = command else {
        write!(anstream::stderr(), "{}", Arguments::command().render_help().ansi())?;
        return Ok(exit::USAGE);
    };
    if let Some(warning) = unused_servers(&common, &settings, &command) {
        note!("{warning}");
    }
    if let Some(name) = settings.unused_context.as_deref().map(render::clean) {
        note!(
            "the selected context {name} is not used: this command joins only a fleet named with --context \
             or --bus"
        );
    }
    install_tls_provider();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().or_exit(exit::SOFTWARE)?;
    let traces = match command {
        Command::Up(_) => {
            // The exporter's connection is driven by the runtime.
            let _entered = runtime.enter();
            up::start_traces(&settings)?
        }
        _ => None,
    };
    logging::start(&settings.log, traces.as_ref()).or_exit(exit::USAGE)?;
    let (user, namespace) = (command.broker_user(), settings.bus.namespace.clone());
    let outcome = runtime.block_on(async {
        match command {
            Command::Demo { first_process: Some(folder), .. } => {
                Box::pin(demo::team::run_first(settings, &folder)).await
            }
            Command::Demo { team: true, .. } => Box::pin(demo::team::run(settings)).await,
            Command::Demo { watch: true, .. } => Box::pin(demo::watch(settings, common.json)).await,
            Command::Demo { web: true, .. } => Box::pin(demo::web::run(settings)).await,
            Command::Demo { .. } => Box::pin(demo::run(settings)).await,
            Command::Chat(chat) => Box::pin(chat::run(settings, chat, common.json)).await,
            Command::Schedule(command) => schedule::run(settings, command, common.json).await,
            Command::Sessions(command) => sessions::run(settings, command, common.json).await,
            Command::Agents { command } => {
                Box::pin(agents::run(settings, command, common.json)).await
            }
            Command::Tasks(command) => tasks::run(settings, command, common.json).await,
            Command::Tools(arguments::Tools::List { agent: Some(agent) }) => {
                Box::pin(agents::list_tools(settings, agent, common.json)).await
            }
            Command::Tools(command) => {
                // An embedded fleet ends with the call, and a stored output with it.
                if matches!(command, arguments::Tools::Call { .. }) {
                    settings.outputs.enabled &= !settings.embeds();
                }
                tools::run(&settings, command, common.json).await
            }
            Command::Mcp(command) => mcp::run(&settings, command, common.json).await,
            Command::Rest(command) => rest::run(&settings, command, common.json).await,
            Command::Script(command) => script::run(&settings, command, common.json).await,
            Command::Up(arguments) => up::run(&settings, &arguments).await,
            Command::Gateway(command) => gateway::run(&settings, command, common.json),
            Command::Call { id } => journaled_call::run(&settings, &id, common.json).await,
            Command::Bench(options) => bench::run(&settings, options, common.json).await,
            Command::Doctor { watch } => {
                doctor::run(&settings, watch.map(Duration::from_secs), common.json).await
            }
            Command::Watch(command) => watch::run(&settings, &command, common.json).await,
            Command::Worker(command) => worker::run(&settings, command, common.json).await,
            Command::Dlq(command) => dlq::run(&settings, command, common.json).await,
            Command::Admin(command) => admin::run(&settings, command),
            Command::Completions { .. }
            | Command::Man { .. }
            | Command::Complete { .. }
            | Command::Context(_)
            | Command::Init(_) => Ok(exit::OK),
        }
    });
    // The last export blocks this thread for 1 s at most and needs the runtime.
    if let Some(traces) = traces {
        traces.shut_down();
    }
    // The thread that reads the terminal may still be blocked.
    runtime.shutdown_background();
    outcome.map_err(|failure| match &user {
        Some(user) if !call_failure::is_of_call(&failure) => failure.name_user(user, &namespace),
        _ => failure,
    })
}

/// Result of [`run_without_settings`].
enum Ran {
    /// The exit code of the command.
    Ended(u8),
    NeedsSettings(Box<Command>),
}

/// Runs a command that needs no configuration, which may be invalid.
fn run_without_settings(command: Command, common: &Common) -> Result<Ran, Failure> {
    let outcome = match command {
        Command::Completions { shell } => completion::print_script(shell),
        Command::Complete { words } => completion::print_names(&words),
        Command::Man { folder } => man::write(&folder),
        Command::Context(command) => context_command::run(command, common),
        Command::Init(arguments) => {
            install_tls_provider();
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
            runtime.or_exit(exit::SOFTWARE)?.block_on(init::run(arguments))
        }
        command => return Ok(Ran::NeedsSettings(Box::new(command))),
    };
    outcome.map(Ran::Ended)
}

/// Returns a warning if `--mcp` has no effect: a running fleet has the servers of its bridges.
fn unused_servers(common: &Common, settings: &Settings, command: &Command) -> Option<String> {
    let file = common.mcp.as_ref().filter(|_| !settings.embeds())?;
    let uses_file = matches!(
        command,
        Command::Demo { .. } | Command::Up(_) | Command::Mcp(Mcp::Check { .. } | Mcp::Login { .. })
    );
    (!uses_file).then(|| {
        format!(
            "warning: --mcp {} is not used: a running fleet has the servers of its bridges; add one with \
             `rockbot mcp add`, or embed a fleet without --bus",
            file.display()
        )
    })
}
