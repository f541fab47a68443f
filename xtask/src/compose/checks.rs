//! What a running fleet must show.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::{fleet::Fleet, traces};
use crate::broker::pause;
use crate::{process, say};

/// Services of ours: what runs in them is nobody in particular and can write nowhere.
const OURS: [&str; 4] = ["agent", "tool-handler", "mcp-bridge", "example-mcp"];
/// Where our processes answer, and Prometheus.
const ADMIN_PORT: u16 = 9090;
const JAEGER_PORT: u16 = 16686;
const TRACES_OF_AGENTS: &str = "/api/traces?service=rockbot-agent&limit=100";
/// How long something may take that comes by itself.
const PATIENCE: Duration = Duration::from_secs(90);
const NOBODY: &str = "65532:65532";
/// What each service may see of the secrets.
const SECRETS: [(&str, &[&str]); 4] = [
    ("agent", &["broker-url", "model-key", "store-url"]),
    ("tool-handler", &["broker-url", "store-url"]),
    ("mcp-bridge", &["broker-url", "store-url"]),
    ("example-mcp", &[]),
];

pub(super) fn all(fleet: &Fleet<'_>) -> Result<()> {
    step("every service runs as nobody, on a root that it can't write", || unprivileged(fleet))?;
    step("every service sees its own secrets only", || secrets(fleet))?;
    step("a tool call runs, as nobody", || tool_call(fleet))?;
    step("a call is counted once", || counted_once(fleet))?;
    step("an MCP server is called", || mcp_call(fleet))?;
    step("an agent uses both in a turn", || turn(fleet))?;
    step("a turn is one trace, from the agent to the MCP server", || traced(fleet))?;
    step("Prometheus reads what every process tells", || scraped(fleet))
}

fn step(promise: &str, check: impl FnOnce() -> Result<()>) -> Result<()> {
    check().with_context(|| format!("not so: {promise}"))?;
    say::progress("compose", format_args!("ok: {promise}"));
    Ok(())
}

fn unprivileged(fleet: &Fleet<'_>) -> Result<()> {
    let running = fleet.services()?;
    let file = tempfile::NamedTempFile::new()?;
    for service in OURS {
        ensure!(running.iter().any(|name| name == service), "{service} does not run");
        let template = "{{.Config.User}} {{.HostConfig.ReadonlyRootfs}} {{.HostConfig.CapDrop}} \
             {{.HostConfig.SecurityOpt}} {{.HostConfig.Privileged}}";
        let said = fleet.inspect(service, template)?;
        let wanted = format!("{NOBODY} true [ALL] [no-new-privileges:true] false");
        ensure!(said == wanted, "{service} runs with {said}");
        let process = fleet.inspect(service, "{{.State.Pid}}")?;
        let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
        for line in ["Uid:\t65532\t65532\t65532\t65532", "CapEff:\t0000000000000000"] {
            ensure!(
                status.lines().any(|found| found == line),
                "{service} has no {line}:\n{status}"
            );
        }
        // Not even Docker itself gets a file into it.
        let into = format!("{}:/usr/local/bin/stray", fleet.container(service)?);
        let copied = process::answer(fleet.docker().arg("cp").arg(file.path()).arg(into));
        ensure!(copied.is_none(), "a file can be put into {service}");
    }
    Ok(())
}

fn secrets(fleet: &Fleet<'_>) -> Result<()> {
    let template = "{{range .Mounts}}{{.Destination}} {{end}}";
    for (service, wanted) in SECRETS {
        let mounts = fleet.inspect(service, template)?;
        let mounts = mounts.split_whitespace();
        let mut seen: Vec<_> =
            mounts.filter_map(|path| path.strip_prefix("/run/secrets/")).collect();
        seen.sort_unstable();
        ensure!(seen == wanted, "{service} sees {seen:?}");
    }
    Ok(())
}

fn tool_call(fleet: &Fleet<'_>) -> Result<()> {
    let command = "id -u; touch /usr/stray 2>&1; echo kept > note && cat note";
    let arguments = format!("{{\"command\":\"{command}\"}}");
    let said = fleet.rockbot(&["tools", "call", "bash", &arguments])?;
    for wanted in ["65532", "Read-only file system", "kept"] {
        ensure!(said.contains(wanted), "no {wanted:?} in:\n{said}");
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
    ensure!((after - before - 1.0).abs() < f64::EPSILON, "{before} became {after}");
    Ok(())
}

fn mcp_call(fleet: &Fleet<'_>) -> Result<()> {
    let words = "{\"text\":\"one two three\"}";
    let said = fleet.rockbot(&["mcp", "call", "example", "count_words", words])?;
    ensure!(said.contains('3'), "no 3 in:\n{said}");
    Ok(())
}

fn turn(fleet: &Fleet<'_>) -> Result<()> {
    let said = fleet.rockbot(&["chat", "What is there, and what time is it?"])?;
    // The note of the call before, and the time of the MCP server.
    for wanted in ["note", "+00:00"] {
        ensure!(said.contains(wanted), "no {wanted:?} in:\n{said}");
    }
    Ok(())
}

fn traced(fleet: &Fleet<'_>) -> Result<()> {
    fleet.start("observability", "jaeger")?;
    until(|| fleet.get("jaeger", JAEGER_PORT, TRACES_OF_AGENTS).map(drop))?;
    turn(fleet)?;
    let whole = || traces::whole_turn(&fleet.get("jaeger", JAEGER_PORT, TRACES_OF_AGENTS)?);
    let spans = until(whole)?;
    say::progress("compose", format_args!("the trace of a turn has {spans} spans"));
    Ok(())
}

fn scraped(fleet: &Fleet<'_>) -> Result<()> {
    // count(up{job=~"rockbot-.*|rabbitmq.*"} == 1): three processes of ours, and the broker in two jobs.
    const QUESTION: &str =
        "/api/v1/query?query=count(up%7Bjob%3D~%22rockbot-.*%7Crabbitmq.*%22%7D%20%3D%3D%201)";
    const WANTED: &str = ",\"5\"]";
    fleet.start("observability", "prometheus")?;
    until(|| {
        // It refuses connections until it has started.
        let said = fleet.get("prometheus", ADMIN_PORT, QUESTION)?;
        ensure!(said.contains(WANTED), "it says {said}");
        Ok(())
    })
}

/// What `check` returns as soon as it returns anything.
fn until<T>(check: impl Fn() -> Result<T>) -> Result<T> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        process::check_interrupt()?;
        match check() {
            Err(_) if Instant::now() < deadline => pause(),
            ended => return ended,
        }
    }
}

/// How many calls of a tool that went well a handler's metrics tell of.
fn invocations(metrics: &str, tool: &str) -> f64 {
    let of_tool = format!("tool_name=\"{tool}\"");
    let samples = metrics.lines().filter_map(|line| {
        let (series, value) = line.rsplit_once(' ')?;
        let labels = series.strip_prefix("rockbot_tool_invocations_total{")?;
        let fits = labels.contains(&of_tool) && labels.contains("status=\"ok\"");
        fits.then(|| value.parse::<f64>().ok())?
    });
    samples.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_one_tool_that_went_well_are_counted() {
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
