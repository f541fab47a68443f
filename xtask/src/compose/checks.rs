//! Checks of a running fleet.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::additions::{INSTANCE, PACKAGE};
use super::fleet::{Fleet, GITHUB_TOKEN};
use super::traces;
use crate::broker::wait_before_poll;
use crate::{console, process};

/// Services that run unprivileged on a read-only root.
const OWN_SERVICES: [&str; 6] =
    ["agent", "tool-handler", "web-handler", "mcp-bridge", "example-mcp", "package-index"];
/// The port of our admin servers and of Prometheus.
const ADMIN_PORT: u16 = 9090;
const JAEGER_PORT: u16 = 16686;
const AGENT_TRACES: &str = "/api/traces?service=rockbot-agent&limit=100";
/// The longest wait for scrapes and exported traces.
const TIMEOUT: Duration = Duration::from_secs(90);
const NONROOT: &str = "65532:65532";
/// The secrets that each service mounts.
const SECRETS: [(&str, &[&str]); 6] = [
    ("agent", &["broker-url", "model-key", "store-url"]),
    ("tool-handler", &["broker-url", "store-url"]),
    ("web-handler", &["brave-key", "broker-url", "github-token", "store-url", "tavily-key"]),
    ("mcp-bridge", &["broker-url", "store-url"]),
    ("example-mcp", &[]),
    ("package-index", &[]),
];
/// The networks of the two handlers, without the project's name.
const NETWORKS: [(&str, &[&str]); 2] =
    [("tool-handler", &["fleet"]), ("web-handler", &["fleet", "outside"])];

pub(super) fn run(fleet: &Fleet<'_>) -> Result<()> {
    step("services run unprivileged on a read-only root", || unprivileged(fleet))?;
    step("services mount their own secrets only", || secrets(fleet))?;
    step("only the pool web reaches other networks", || networks(fleet))?;
    step("the package index serves the handler", || package_index(fleet))?;
    step("a script gets a package from the index", || script_package(fleet))?;
    step("settings of the file of a service apply", || settings_file(fleet))?;
    step("a large result is stored under a handle", || large_result(fleet))?;
    step("a tool call runs unprivileged", || tool_call(fleet))?;
    step("a command cannot read a key of the pool web", || keys_of_web(fleet))?;
    step("the queue of the pool web refuses other handlers", || queue_of_web(fleet))?;
    step("the pool web offers no search without a provider", || tools_of_web(fleet))?;
    step("a call is counted once", || counted_once(fleet))?;
    step("an MCP call succeeds", || mcp_call(fleet))?;
    step("a turn uses a tool and an MCP server", || turn(fleet))?;
    step("agents and their tools are listed", || agents(fleet))?;
    step("dead letters and calls are visible to their users", || people(fleet))?;
    step("each face of the gateway is called", || faces(fleet))?;
    step("a turn is one trace, from the agent to the MCP server", || traced(fleet))?;
    step("Prometheus scrapes every process", || scraped(fleet))
}

fn step(name: &str, check: impl FnOnce() -> Result<()>) -> Result<()> {
    check().with_context(|| format!("check failed: {name}"))?;
    console::progress("compose", format_args!("ok: {name}"));
    Ok(())
}

fn unprivileged(fleet: &Fleet<'_>) -> Result<()> {
    let running = fleet.services()?;
    let file = tempfile::NamedTempFile::new()?;
    for service in OWN_SERVICES {
        ensure!(running.iter().any(|name| name == service), "{service} does not run");
        let template = "{{.Config.User}} {{.HostConfig.ReadonlyRootfs}} {{.HostConfig.CapDrop}} \
             {{.HostConfig.SecurityOpt}} {{.HostConfig.Privileged}}";
        let actual = fleet.inspect(service, template)?;
        let expected = format!("{NONROOT} true [ALL] [no-new-privileges:true] false");
        ensure!(actual == expected, "{service} runs with {actual}");
        let process = fleet.inspect(service, "{{.State.Pid}}")?;
        let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
        for line in ["Uid:\t65532\t65532\t65532\t65532", "CapEff:\t0000000000000000"] {
            ensure!(
                status.lines().any(|found| found == line),
                "{service} has no {line}:\n{status}"
            );
        }
        // Even Docker cannot copy a file into it.
        let into = format!("{}:/usr/local/bin/stray", fleet.container(service)?);
        let copied = process::stdout(fleet.docker().arg("cp").arg(file.path()).arg(into));
        ensure!(copied.is_none(), "a file can be copied into {service}");
    }
    Ok(())
}

fn secrets(fleet: &Fleet<'_>) -> Result<()> {
    let template = "{{range .Mounts}}{{.Destination}} {{end}}";
    for (service, expected) in SECRETS {
        let mounts = fleet.inspect(service, template)?;
        let mounts = mounts.split_whitespace();
        let mut mounted: Vec<_> =
            mounts.filter_map(|path| path.strip_prefix("/run/secrets/")).collect();
        mounted.sort_unstable();
        ensure!(mounted == expected, "{service} mounts {mounted:?}");
    }
    Ok(())
}

fn networks(fleet: &Fleet<'_>) -> Result<()> {
    let template = "{{range $name, $_ := .NetworkSettings.Networks}}{{$name}} {{end}}";
    for (service, expected) in NETWORKS {
        let found = fleet.inspect(service, template)?;
        let mut found: Vec<_> = found
            .split_whitespace()
            .map(|name| name.rsplit(['_', '-']).next().unwrap_or_default())
            .collect();
        found.sort_unstable();
        ensure!(found == expected, "{service} is on the networks {found:?}");
    }
    Ok(())
}

/// Searches everything that `bash` can read of processes and secrets for the key of `web-handler`.
fn keys_of_web(fleet: &Fleet<'_>) -> Result<()> {
    let command = "echo kept; cat /proc/[0-9]*/environ /run/secrets/* 2>/dev/null; true";
    let output =
        fleet.rockbot(&["tools", "call", "bash", &format!("{{\"command\":\"{command}\"}}")])?;
    ensure!(output.contains("kept"), "the command did not run:\n{output}");
    ensure!(output.contains("rockbot.tool-handler"), "the command cannot read its own secrets");
    ensure!(
        !output.contains(GITHUB_TOKEN),
        "a command of the pool without a name reads a key of web"
    );
    Ok(())
}

/// Serves the pool web with the broker user of `tool-handler`, which every command there can read.
fn queue_of_web(fleet: &Fleet<'_>) -> Result<()> {
    let variables = [
        ("ROCKBOT_HANDLER__POOL", "web"),
        ("ROCKBOT_HANDLER__FAMILIES", "[\"web\"]"),
        ("ROCKBOT_STORE__URL", "memory:"),
    ];
    let served = fleet.rockbot_as("tool-handler", &variables, &["up"]);
    let refused = match served {
        Ok(output) => bail!("another pool's user served the queue of web:\n{output}"),
        Err(error) => format!("{error:#}"),
    };
    for expected in ["refused queue tool.invoke.pool.web", "ACCESS_REFUSED"] {
        ensure!(refused.contains(expected), "no {expected:?} in:\n{refused}");
    }
    Ok(())
}

/// Requests from the handler what the index answers without the internet, and a path that it refuses.
fn package_index(fleet: &Fleet<'_>) -> Result<()> {
    let command = "for path in healthz files/a; do python3 -c 'import sys, urllib.request as r; \
         print(r.urlopen(sys.argv[1], timeout=9).status)' http://package-index:8080/$path 2>&1 \
         | tail -n 1; done; touch /var/lib/rockbot/kept && echo writable";
    let arguments = serde_json::json!({ "command": command }).to_string();
    let output = fleet.rockbot(&["tools", "call", "bash", &arguments])?;
    for expected in ["200", "HTTP Error 404", "writable"] {
        ensure!(output.contains(expected), "no {expected:?} in:\n{output}");
    }
    Ok(())
}

/// Runs a script with a package, once after its installation and once with the installed one.
fn script_package(fleet: &Fleet<'_>) -> Result<()> {
    let module = PACKAGE.replace('-', "_");
    let script = format!("import {module}; print('value', {module}.VALUE)");
    let arguments = serde_json::json!({"script": script, "pip_packages": [PACKAGE]}).to_string();
    for _ in 0..2 {
        let output = fleet.rockbot(&["tools", "call", "execute_python_script", &arguments])?;
        ensure!(output.contains("value 42"), "the script has no package:\n{output}");
    }
    Ok(())
}

fn settings_file(fleet: &Fleet<'_>) -> Result<()> {
    let described = fleet.rockbot(&["tools", "describe", "bash"])?;
    ensure!(described.contains(INSTANCE), "no handler has the name {INSTANCE}:\n{described}");
    Ok(())
}

fn large_result(fleet: &Fleet<'_>) -> Result<()> {
    let output = fleet.rockbot(&["tools", "call", "bash", "{\"command\":\"seq 40000\"}"])?;
    for expected in ["\"handle\":\"out-", "\"lines\":40000"] {
        ensure!(output.contains(expected), "no {expected} in:\n{}", start(&output));
    }
    Ok(())
}

fn tools_of_web(fleet: &Fleet<'_>) -> Result<()> {
    let tools = fleet.rockbot(&["tools", "list"])?;
    ensure!(tools.contains("web_browse"), "no web_browse in:\n{tools}");
    ensure!(!tools.contains("web_search"), "web_search without a provider in:\n{tools}");
    Ok(())
}

fn tool_call(fleet: &Fleet<'_>) -> Result<()> {
    let command = "id -u; touch /usr/stray 2>&1; echo kept > note && cat note";
    let arguments = format!("{{\"command\":\"{command}\"}}");
    let output = fleet.rockbot(&["tools", "call", "bash", &arguments])?;
    for expected in ["65532", "Read-only file system", "kept"] {
        ensure!(output.contains(expected), "no {expected:?} in:\n{output}");
    }
    Ok(())
}

fn counted_once(fleet: &Fleet<'_>) -> Result<()> {
    const TOOL: &str = "list_files";
    let count = || -> Result<f64> {
        Ok(invocations(&fleet.get("tool-handler", ADMIN_PORT, "/metrics")?, TOOL))
    };
    let before = count()?;
    fleet.rockbot(&["tools", "call", TOOL, "{}"])?;
    let after = count()?;
    ensure!((after - before - 1.0).abs() < f64::EPSILON, "the count went from {before} to {after}");
    Ok(())
}

fn mcp_call(fleet: &Fleet<'_>) -> Result<()> {
    let arguments = "{\"text\":\"one two three\"}";
    let output = fleet.rockbot(&["mcp", "call", "example", "count_words", arguments])?;
    ensure!(output.contains('3'), "no 3 in:\n{output}");
    Ok(())
}

fn turn(fleet: &Fleet<'_>) -> Result<()> {
    let output = fleet.rockbot(&["chat", "List the files, and get the time."])?;
    // The file that `tool_call` wrote, and the time from the MCP server.
    for expected in ["note", "+00:00"] {
        ensure!(output.contains(expected), "no {expected:?} in:\n{output}");
    }
    Ok(())
}

fn agents(fleet: &Fleet<'_>) -> Result<()> {
    let agents = fleet.rockbot(&["agents"])?;
    for expected in ["assistant", "running", "reviewer", "tool of assistant"] {
        ensure!(agents.contains(expected), "no {expected:?} in:\n{agents}");
    }
    let tools = fleet.rockbot(&["tools", "list", "--agent", "assistant"])?;
    for expected in ["agent__reviewer", "MCP server example", "read_file", "web_browse"] {
        ensure!(tools.contains(expected), "no {expected:?} in:\n{tools}");
    }
    Ok(())
}

fn people(fleet: &Fleet<'_>) -> Result<()> {
    let letters = fleet.rockbot_in("operator", &["dlq", "list"])?;
    for queue in ["tool.invoke", "tool.invoke.pool.web"] {
        ensure!(letters.contains(queue), "no {queue} in:\n{letters}");
    }
    fleet.rockbot_in("monitor", &["watch", "--json", "--for", "1"])?;
    Ok(())
}

fn faces(fleet: &Fleet<'_>) -> Result<()> {
    fleet.start("gateway", "gateway")?;
    retry_until_ok(|| fleet.get("gateway", ADMIN_PORT, "/readyz").map(drop))?;
    fleet.call_faces()
}

fn traced(fleet: &Fleet<'_>) -> Result<()> {
    fleet.start("observability", "jaeger")?;
    retry_until_ok(|| fleet.get("jaeger", JAEGER_PORT, AGENT_TRACES).map(drop))?;
    turn(fleet)?;
    let find_trace = || traces::complete_turn(&fleet.get("jaeger", JAEGER_PORT, AGENT_TRACES)?);
    let spans = retry_until_ok(find_trace)?;
    console::progress("compose", format_args!("the trace of a turn has {spans} spans"));
    Ok(())
}

fn scraped(fleet: &Fleet<'_>) -> Result<()> {
    // count(up{job=~"rockbot-.*|rabbitmq.*"} == 1): our five processes, and the broker in two jobs.
    const QUERY: &str =
        "/api/v1/query?query=count(up%7Bjob%3D~%22rockbot-.*%7Crabbitmq.*%22%7D%20%3D%3D%201)";
    const EXPECTED: &str = ",\"7\"]";
    fleet.start("observability", "prometheus")?;
    retry_until_ok(|| {
        // Prometheus refuses connections until it has started.
        let result = fleet.get("prometheus", ADMIN_PORT, QUERY)?;
        ensure!(result.contains(EXPECTED), "Prometheus returns {result}");
        Ok(())
    })
}

/// Returns the first lines of an output that may be long.
fn start(output: &str) -> String {
    output.lines().take(20).collect::<Vec<_>>().join("\n")
}

/// Repeats `check` until it succeeds or the time is over.
fn retry_until_ok<T>(check: impl Fn() -> Result<T>) -> Result<T> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        process::check_interrupt()?;
        match check() {
            Err(_) if Instant::now() < deadline => wait_before_poll(),
            outcome => return outcome,
        }
    }
}

/// Returns the number of successful calls of a tool from a handler's metrics.
fn invocations(metrics: &str, tool: &str) -> f64 {
    let tool_label = format!("tool_name=\"{tool}\"");
    let samples = metrics.lines().filter_map(|line| {
        let (series, value) = line.rsplit_once(' ')?;
        let labels = series.strip_prefix("rockbot_tool_invocations_total{")?;
        let matches = labels.contains(&tool_label) && labels.contains("status=\"ok\"");
        matches.then(|| value.parse::<f64>().ok())?
    });
    samples.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn successful_calls_of_a_tool_are_counted() {
        let metrics = "# TYPE rockbot_tool_invocations_total counter\n\
             rockbot_tool_invocations_total{tool_name=\"bash\",status=\"ok\"} 4\n\
             rockbot_tool_invocations_total{status=\"ok\",tool_name=\"search\"} 2\n\
             rockbot_tool_invocations_total{tool_name=\"bash\",status=\"timeout\"} 8\n\
             rockbot_tool_calls_running 1\n";
        assert!((invocations(metrics, "bash") - 4.0).abs() < f64::EPSILON);
        assert!((invocations(metrics, "search") - 2.0).abs() < f64::EPSILON);
        assert!(invocations("", "bash").abs() < f64::EPSILON);
    }
}
