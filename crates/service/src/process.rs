//! The main function of a service.

use std::{
    ffi::OsString,
    fmt::Display,
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
};

use tracing::error;

use crate::{
    admin::{Admin, AdminSection},
    config::Configuration,
    exit,
    health::Health,
    healthcheck, logging,
    sections::{LogSection, ServiceSection},
    serve_error::ServeError,
    shutdown::Shutdown,
    telemetry::{
        Metrics, TelemetrySection,
        traces::{Identity, InvalidExporter, Traces},
    },
    tls::install_tls_provider,
};

/// A service process: its name, version and defaults.
#[derive(Debug, Clone, Copy)]
pub struct Process {
    /// Name of the binary.
    pub name: &'static str,
    /// Description in one line.
    pub about: &'static str,
    /// Version of the build.
    pub version: &'static str,
    /// Commented default configuration, in TOML.
    pub defaults: &'static str,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Arguments {
    config: Option<PathBuf>,
    check_config: bool,
    healthcheck: bool,
    print: Option<Print>,
}

#[derive(Debug, PartialEq, Eq)]
enum Print {
    Help,
    Version,
    Defaults,
}

impl Process {
    /// Runs the service like [`Self::run`], with the admin port if one is configured. `serve` adds its
    /// checks to the [`Health`] and marks it as ready.
    pub fn serve<C>(
        self,
        read: impl FnOnce(&mut Configuration) -> C,
        serve: impl AsyncFnOnce(C, &Shutdown, &Health) -> Result<(), ServeError>,
    ) -> ExitCode {
        let read = |configuration: &mut Configuration| {
            let admin: AdminSection = configuration.section("admin");
            (admin, read(configuration))
        };
        self.run(read, async |(admin, settings), shutdown| {
            let health = Health::new(shutdown.token().clone());
            let Some(address) = admin.address else {
                return serve(settings, shutdown, &health).await;
            };
            let metrics = Metrics::start(self.name, self.version);
            let health = health.with_metrics(metrics);
            let listening = Admin::start(address, health.clone()).await;
            let _admin = listening.map_err(|error| {
                let what = format!("admin.address: cannot listen on {address}: {error}");
                ServeError::Unavailable(what)
            })?;
            serve(settings, shutdown, &health).await
        })
    }

    /// Reads arguments and configuration, starts logging, telemetry and signal handling, and serves until
    /// shutdown. Returns the exit code for `main`.
    pub fn run<C>(
        self,
        read: impl FnOnce(&mut Configuration) -> C,
        serve: impl AsyncFnOnce(C, &Shutdown) -> Result<(), ServeError>,
    ) -> ExitCode {
        let arguments = match parse(std::env::args_os().skip(1)) {
            Ok(arguments) => arguments,
            Err(problem) => {
                print_err(&format!("{}: {problem}; try --help", self.name));
                return ExitCode::from(exit::USAGE);
            }
        };
        if let Some(print) = arguments.print {
            return self.print(&self.text(&print));
        }
        let environment = std::env::vars_os().filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        });
        let mut configuration =
            Configuration::layered(self.defaults, arguments.config.as_deref(), environment)
                .for_check(arguments.check_config);
        if arguments.healthcheck {
            return match healthcheck::check(&mut configuration) {
                Ok(()) => ExitCode::SUCCESS,
                Err(problem) => self.fail(problem.exit_code(), &problem),
            };
        }
        let log: LogSection = configuration.section("log");
        if let Err(problem) = logging::validate(&log) {
            configuration.problem(problem.to_string());
        }
        let telemetry: TelemetrySection = configuration.section("telemetry");
        let service: ServiceSection = configuration.section("service");
        for problem in telemetry.validate() {
            configuration.problem(problem);
        }
        // Validation of a section may create a client.
        install_tls_provider();
        let settings = read(&mut configuration);
        if let Err(problems) = configuration.finish() {
            return self.fail(exit::USAGE, &problems);
        }
        let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(problem) => return self.fail(exit::SOFTWARE, &problem),
        };
        let traces = {
            // The exporter's connection is driven by the runtime.
            let _entered = runtime.enter();
            match self.traces(&telemetry, &service) {
                Ok(traces) => traces,
                Err(problem) => return self.fail(exit::USAGE, &problem),
            }
        };
        if arguments.check_config {
            return self.print("the configuration is valid");
        }
        if let Err(problem) = logging::start(&log, traces.as_ref()) {
            return self.fail(exit::USAGE, &problem);
        }
        let served = runtime.block_on(async {
            let shutdown = Shutdown::on_signal().map_err(|error| {
                ServeError::Unavailable(format!("signal handling failed: {error}"))
            })?;
            serve(settings, &shutdown).await
        });
        // The last export blocks this thread for 1 s at most and needs the runtime.
        if let Some(traces) = traces {
            traces.shut_down();
        }
        // The grace period of blocking work is over.
        runtime.shutdown_timeout(std::time::Duration::from_secs(1));
        match served {
            Ok(()) => ExitCode::SUCCESS,
            Err(problem @ ServeError::Configuration(_)) => self.fail(exit::USAGE, &problem),
            Err(problem @ ServeError::Unavailable(_)) => {
                error!(%problem, "service failed");
                self.fail(exit::UNAVAILABLE, &problem)
            }
        }
    }

    /// Creates the exporter of traces where one is configured.
    fn traces(
        self,
        telemetry: &TelemetrySection,
        service: &ServiceSection,
    ) -> Result<Option<Traces>, InvalidExporter> {
        let Self { name, version, .. } = self;
        let instance = service.instance();
        Traces::start(telemetry, Identity { name, version, instance: instance.as_str() })
    }

    fn print(self, text: &str) -> ExitCode {
        match writeln!(io::stdout(), "{text}") {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => match exit::unwritten(&error) {
                exit::OK => ExitCode::SUCCESS,
                code => self.fail(code, &format!("cannot write the output: {error}")),
            },
        }
    }

    fn fail(self, code: u8, problem: &dyn Display) -> ExitCode {
        print_err(&format!("{}: {problem}", self.name));
        ExitCode::from(code)
    }

    fn text(self, print: &Print) -> String {
        let Self { name, about, version, defaults } = self;
        match print {
            Print::Version => format!("{name} {version}"),
            Print::Defaults => defaults.to_owned(),
            Print::Help => {
                let has_bus = defaults.lines().any(|line| line == "[bus]");
                let example = if has_bus {
                    "ROCKBOT_BUS__URL=amqp://guest:guest@localhost:5672/%2f"
                } else {
                    "ROCKBOT_LOG__LEVEL=debug"
                };
                format!(
                    "{about}

Usage: {name} [--config FILE] [--check-config] [--healthcheck] [--print-config]

Options:
  --config FILE    read this TOML file over the built-in defaults
  --check-config   validate the configuration and exit
  --healthcheck    probe the readiness of the process with this configuration and exit
  --print-config   print the built-in defaults, with comments
  --version        print the version
  --help           print this

Every key can be set in the environment as ROCKBOT_<SECTION>__<KEY>, or as
ROCKBOT_<SECTION>__<KEY>_FILE with the name of a file that holds the value.

Examples:
  {name} --print-config > {name}.toml
  {example} {name}

Exit codes: 0 stopped on request, 64 invalid configuration, 69 resource unavailable,
74 the output cannot be written"
                )
            }
        }
    }
}

fn parse(arguments: impl Iterator<Item = OsString>) -> Result<Arguments, lexopt::Error> {
    use lexopt::prelude::{Long, Short};
    let mut parsed = Arguments::default();
    let mut parser = lexopt::Parser::from_args(arguments);
    while let Some(argument) = parser.next()? {
        match argument {
            Long("config") => parsed.config = Some(parser.value()?.into()),
            Long("check-config") => parsed.check_config = true,
            Long("healthcheck") => parsed.healthcheck = true,
            Long("print-config") => parsed.print = Some(Print::Defaults),
            Short('h') | Long("help") => parsed.print = Some(Print::Help),
            Short('V') | Long("version") => parsed.print = Some(Print::Version),
            other => return Err(other.unexpected()),
        }
    }
    Ok(parsed)
}

/// Prints to standard error; a closed one is not an error.
fn print_err(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "the cases below read better without `&`")]
    fn check(arguments: &[&str], expected: Option<Arguments>) {
        let parsed = parse(arguments.iter().map(OsString::from)).ok();
        assert_eq!(parsed, expected, "{arguments:?}");
    }

    #[test]
    fn unknown_arguments_are_rejected() {
        let config = Some(PathBuf::from("a.toml"));
        check(&[], Some(Arguments::default()));
        check(
            &["--config", "a.toml", "--check-config"],
            Some(Arguments { config, check_config: true, ..Arguments::default() }),
        );
        check(&["--healthcheck"], Some(Arguments { healthcheck: true, ..Arguments::default() }));
        check(&["--help"], Some(Arguments { print: Some(Print::Help), ..Arguments::default() }));
        check(&["--config"], None);
        check(&["--confg", "x"], None);
        check(&["stray"], None);
    }
}
