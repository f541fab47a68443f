//! `rockbot worker check`: checks that the workers of a pool keep what callers rely on.

mod announcements;
mod calls;
mod check;
mod copies;
mod draining;
mod messages;
mod prober;
mod report;
mod requests;
mod subject;
mod timing;

use std::{sync::Arc, time::Duration};

use rockbot_bus::Bus;
use rockbot_contracts::{
    AgentName, HandlerPool, InstanceId, RoutingKey, ToolRegistration, identity::CLI,
    topology::ReplyAddress,
};
use rockbot_service::exit;
use tokio::time::timeout;

use self::{
    announcements::{Announcement, Announcements},
    check::{Check, Status, Verdict, failed},
    messages::Messages,
    prober::Prober,
    report::Report,
    subject::Subject,
};
use crate::{
    arguments::{Worker, WorkerCheck},
    failure::{Failure, OrExit, Outcome},
    fleet::Fleet,
    print::note,
    settings::Settings,
    tools,
};

/// Time limit of one check.
const CHECK_TIMEOUT: Duration = Duration::from_secs(90);

pub(crate) async fn run(settings: &Settings, command: Worker, json: bool) -> Outcome {
    let Worker::Check(options) = command;
    if settings.embeds() {
        return Err(Failure::usage("the checks need a running fleet; give its broker with --bus"));
    }
    let pool = HandlerPool::Named(options.pool.clone());
    let given = |arguments: Option<&String>| {
        arguments.map(|given| tools::read_arguments(Some(given))).transpose()
    };
    let arguments = Given {
        short: given(options.arguments.as_ref())?,
        slow: given(options.slow_arguments.as_ref())?,
        large: given(options.large_arguments.as_ref())?,
    };
    let fleet = Fleet::open(settings).await?;
    let namespace = &settings.bus.namespace;
    let is_fleet_user = fleet.user().is_some_and(|user| user.starts_with(&format!("{namespace}.")));
    let target = Target {
        bus: fleet.bus.clone(),
        instance: fleet.instance.clone(),
        user: is_fleet_user.then(|| pool.user().name(namespace)),
        key: pool.invoke_key(),
    };
    let report = check(&target, &options, arguments).await;
    let outcome = report.and_then(|report| {
        report.print(json)?;
        let letters = "the refused requests are dead letters of the pool; remove them with `rockbot dlq purge";
        note!("{letters} {}`", target.key);
        let passed = report.count(Status::Failed) == 0;
        Ok(if passed { exit::OK } else { exit::ANSWERED_WITH_ERROR })
    });
    fleet.close().await;
    outcome
}

/// The workers to check, and this process's access to them.
struct Target {
    bus: Arc<dyn Bus>,
    instance: InstanceId,
    key: RoutingKey,
    /// Broker user of the pool; `None` when the broker does not know the users of the fleet.
    user: Option<String>,
}

/// Arguments of the tool from the command line.
#[derive(Debug, Default)]
struct Given {
    short: Option<String>,
    slow: Option<String>,
    large: Option<String>,
}

/// Makes all checks.
async fn check<'a>(
    target: &Target,
    options: &'a WorkerCheck,
    given: Given,
) -> Result<Report<'a>, Failure> {
    let (bus, key) = (target.bus.clone(), target.key.clone());
    let announcements = Announcements::collect(bus.clone(), key.clone(), &target.instance).await;
    let announcements = announcements.or_exit(exit::UNAVAILABLE)?;
    let Some(first) = announcements.first().await else {
        return Err(Failure::unavailable(format!(
            "no worker announced tools with the key {key} within 12 s; start one, and check its \
             announcements with `rockbot watch`"
        )));
    };
    let tool = select(&first, options.tool.as_deref())?;
    let needs_nothing = tool.parameters["required"].as_array().is_none_or(Vec::is_empty);
    // A tool that changes something is called only with arguments that a person chose.
    let default = (needs_nothing && tool.hints.read_only).then(|| "{}".to_owned());
    let Given { short, slow, large } = given;
    let subject = Subject { tool, arguments: short.or(default), slow, large };
    let name = AgentName::new(CLI).or_exit(exit::SOFTWARE)?;
    let address = ReplyAddress::new(name, target.instance.clone());
    let replies = Messages::collect(bus.as_ref(), address.queue()).await;
    let prober = Prober { bus, address, key, replies: replies.or_exit(exit::UNAVAILABLE)? };

    let mut checks = Checks::default();
    let heartbeat = announcements.heartbeat(&first.catalog.instance);
    let calls = check_calls(target, &prober, &subject, &announcements, &first);
    let (heartbeat, calls) = tokio::join!(heartbeat, calls);
    checks.0.extend(calls);
    checks.add("heartbeat", heartbeat);
    checks.add("announcements-readable", announcements.readable());
    checks.run("serves-after-all", requests::reply_probe(&prober)).await;
    let drain = draining::drain(&prober, &subject, &announcements, options.drain_pid);
    checks.run("drain", drain).await;
    let workers = announcements.instances().iter().map(ToString::to_string).collect();
    let tool = subject.tool.name;
    Ok(Report { pool: options.pool.as_str(), tool, workers, checks: checks.0 })
}

/// Makes the checks of announcements and calls.
async fn check_calls(
    target: &Target,
    prober: &Prober,
    subject: &Subject,
    announcements: &Announcements,
    first: &Announcement,
) -> Vec<Check> {
    let mut checks = Checks::default();
    let (user, instances) = (target.user.as_deref(), announcements.instances());
    checks.add("announcement-names", first.names());
    checks.add("announcement-user", first.user(user));
    checks.add("schemas", first.schemas());
    checks.add("hints", first.hints());
    checks.add("instructions", first.instructions());
    checks.add("guides", first.guides());
    checks.run("refresh", announcements.refresh()).await;

    checks.run("result", calls::result(prober, subject)).await;
    let properties = calls::properties(prober, subject, &instances, user);
    checks.run("reply-properties", properties).await;
    checks.run("trace", calls::trace(prober, subject)).await;
    checks.run("unknown-fields", calls::unknown_fields(prober, subject)).await;
    checks.run("large-arguments", calls::large_arguments(prober, subject)).await;
    checks.run("oversized-arguments", calls::oversized_arguments(prober, subject)).await;
    checks.run("large-result", calls::large_result(prober, subject)).await;
    checks.run("concurrent-calls", calls::concurrent_calls(prober, subject)).await;

    checks.run("reply-probe", requests::reply_probe(prober)).await;
    checks.run("unknown-tool", requests::unknown_tool(prober)).await;
    checks.run("arguments-not-json", requests::arguments_not_json(prober, subject)).await;
    checks.run("invalid-arguments", requests::invalid_arguments(prober, subject)).await;
    checks.run("bad-json", requests::bad_json(prober)).await;
    checks.run("missing-fields", requests::missing_fields(prober)).await;
    checks.run("wrong-type", requests::wrong_type(prober, subject)).await;
    checks.run("newer-wire", requests::newer_wire(prober, subject)).await;
    checks.run("no-reply-to", requests::no_reply_to(prober, subject)).await;
    checks.run("foreign-reply-to", requests::foreign_reply_to(prober, subject)).await;
    checks.run("odd-reply-to", requests::odd_reply_to(prober)).await;

    checks.run("expired", timing::expired(prober, subject)).await;
    checks.run("deadline", timing::deadline(prober, subject)).await;
    checks.run("cancel-before-start", timing::cancel_before(prober, subject)).await;
    checks.run("cancel-while-running", timing::cancel_during(prober, subject)).await;
    checks.run("cancel-of-unknown-call", timing::cancel_unknown(prober, subject)).await;
    checks.run("slow-call", timing::slow_call(prober, subject)).await;

    checks.run("retry-after-reply", copies::repeated(prober, subject)).await;
    checks.run("retry-in-flight", copies::in_flight(prober, subject)).await;
    checks.run("id-conflict", copies::id_conflict(prober, subject)).await;
    checks.add("progress", calls::progress(prober));
    checks.0
}

/// Collects the outcomes of checks.
#[derive(Default)]
struct Checks(Vec<Check>);

impl Checks {
    fn add(&mut self, name: &'static str, verdict: Verdict) {
        self.0.push(Check { name, verdict });
    }

    async fn run(&mut self, name: &'static str, check: impl Future<Output = Verdict>) {
        let verdict = timeout(CHECK_TIMEOUT, check).await;
        let late = |_| failed(format!("it did not end within {} s", CHECK_TIMEOUT.as_secs()));
        self.add(name, verdict.unwrap_or_else(late));
    }
}

/// Returns the tool to call: the one with the given name, or the first read-only one.
fn select(first: &Announcement, name: Option<&str>) -> Result<ToolRegistration, Failure> {
    let tools = &first.catalog.tools;
    let selected = match name {
        Some(name) => tools.iter().find(|tool| tool.name == name),
        None => tools.iter().find(|tool| tool.hints.read_only).or_else(|| tools.first()),
    };
    selected.cloned().ok_or_else(|| {
        let names: Vec<_> = tools.iter().map(|tool| tool.name.as_str()).collect();
        Failure::usage(format!("the pool has no such tool; it announces {}", names.join(", ")))
    })
}

#[cfg(test)]
mod tests;
