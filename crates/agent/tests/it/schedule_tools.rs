//! The tools for scheduled tasks, and what they refuse.

use std::sync::Arc;

use rockbot_agent::ScheduleSection;
use rockbot_contracts::{ScheduleRequest, schedule::NewTask};
use rockbot_llm::ScriptedTurn;
use serde_json::{Value, json};

use crate::{
    harness::{RecordingModel, send},
    schedule_harness::{Process, Site, new_task},
};

const MORNING: &str = "2026-11-25T07:00:00Z";

/// Starts a process whose model makes these calls in its first turn.
async fn calling(site: &Site, calls: impl IntoIterator<Item = (&'static str, Value)>) -> Process {
    let turn = calls
        .into_iter()
        .fold(ScriptedTurn::default(), |turn, (tool, arguments)| turn.call(tool, arguments));
    site.start("one", &RecordingModel::script([turn, ScriptedTurn::text("Done.")])).await
}

#[tokio::test(start_paused = true)]
async fn model_schedules_lists_and_cancels_a_task() {
    let site = Site::at(MORNING);
    let report = json!({"name": "Report", "cron": "0 9 1 * MON", "description": "a | b",
        "timezone": "Europe/Berlin"});
    let process = calling(
        &site,
        [
            ("list_scheduled_tasks", json!({})),
            ("schedule_task", report.clone()),
            ("schedule_task", report),
            ("list_scheduled_tasks", json!({})),
            ("cancel_scheduled_task", json!({"name": "report"})),
            ("cancel_scheduled_task", json!({"name": "report"})),
        ],
    )
    .await;
    send(&process.agent, "every Monday").await;
    let results = process.model.tool_results();
    assert!(
        results[0].starts_with("No scheduled tasks. Current time: 2026-11-25"),
        "{}",
        results[0]
    );
    let added = &results[1];
    assert!(added.starts_with("Scheduled task 'Report' with cron '0 9 1 * MON'."), "{added}");
    let next =
        "Next fire: 2026-11-30 09:00:00, then 2026-12-01 09:00:00, then 2026-12-07 09:00:00.";
    assert!(added.contains(next), "{added}");
    assert!(added.contains("every day that meets its day of the month or"), "{added}");
    assert!(
        added.contains("Current time: 2026-11-25 08:00:00 (Europe/Berlin, UTC+01:00)."),
        "{added}"
    );
    assert!(results[2].contains("It replaces the task with cron '0 9 1 * MON'."), "{}", results[2]);
    let listed = &results[3];
    assert!(listed.contains("Scheduled tasks (1):"), "{listed}");
    assert!(listed.contains("| Report | 0 9 1 * MON (Europe/Berlin) | "), "{listed}");
    assert!(listed.ends_with("| no | never | a \\| b |\n"), "{listed}");
    assert_eq!(results[4], "Cancelled scheduled task 'Report'.");
    assert_eq!(results[5], "No scheduled task named 'report'.");
}

#[tokio::test(start_paused = true)]
async fn invalid_tasks_are_refused_with_a_reason() {
    let site = Site::at(MORNING);
    let model = RecordingModel::script([ScriptedTurn::text("Done.")]);
    let section = ScheduleSection { max_tasks: 2, ..ScheduleSection::default() };
    let process = site.start_with("one", &model, section, site.stores.store.clone()).await;
    let add = async |task: NewTask| process.request(ScheduleRequest::Add { task }).await;
    let daily = || new_task("daily", "@daily");
    for (task, reason) in [
        (NewTask { name: "../x".to_owned(), ..daily() }, "letters, digits, spaces"),
        (NewTask { cron: "0 9 * *".to_owned(), ..daily() }, "is not a cron expression"),
        (NewTask { cron: "0 0 30 2 *".to_owned(), ..daily() }, "never comes true"),
        (NewTask { cron: "*/5 * * * * *".to_owned(), ..daily() }, "60 s is the shortest interval"),
        (NewTask { description: " ".to_owned(), ..daily() }, "the description has 1 bytes"),
        (NewTask { description: "x".repeat(4097), ..daily() }, "4097 bytes"),
        (NewTask { timezone: Some("Mars".to_owned()), ..daily() }, "unknown time zone"),
    ] {
        let refused = add(task.clone()).await.unwrap_err();
        assert!(refused.contains(reason), "{task:?}: {refused}");
    }
    add(new_task("каждый день", "@daily")).await.unwrap();
    add(daily()).await.unwrap();
    let refused = add(new_task("third", "@daily")).await.unwrap_err();
    assert!(refused.contains("there are 2 scheduled tasks"), "{refused}");
    add(NewTask { name: "DAILY".to_owned(), ..daily() }).await.unwrap();
    assert_eq!(process.tasks().await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn turns_of_one_task_create_a_bounded_number_of_tasks() {
    let site = Site::at(MORNING);
    let create = |number: usize| {
        let name = format!("child {number}");
        ("schedule_task", json!({"name": name, "cron": "@daily", "description": "more"}))
    };
    let process = calling(&site, (0..12).map(create)).await;
    process.add("parent", "0 9 * * *").await;
    site.set("2026-11-25T09:00:00Z");
    process.wait_for(|tasks| tasks.iter().any(|task| task.last.is_some())).await;
    let tasks = process.tasks().await;
    let children: Vec<_> =
        tasks.iter().filter(|task| task.created_by_task.as_deref() == Some("parent")).collect();
    assert_eq!((tasks.len(), children.len()), (11, 10));
    assert!(children.iter().all(|task| task.created_in.is_some()));
    let results = process.model.tool_results();
    assert!(results[11].contains("have created 10 tasks"), "{}", results[11]);
}

#[tokio::test(start_paused = true)]
async fn agent_without_a_schedule_refuses_requests() {
    use rockbot_agent::{AgentClient, ConversationServiceBuilder};
    use rockbot_bus::{Bus, MemoryBus};

    let bus: Arc<dyn Bus> = Arc::new(MemoryBus::new());
    let model = RecordingModel::script([ScriptedTurn::text("Done.")]);
    let agent = crate::harness::AgentFixture::new().agent(&model);
    let name = agent.name().clone();
    let _service = ConversationServiceBuilder::for_agent(agent).serve(bus.clone()).await.unwrap();
    let instance = rockbot_contracts::InstanceId::generate();
    let client = AgentClient::connect(bus, &instance).await.unwrap();
    let refused = client.request_schedule(&name, &ScheduleRequest::List {}).await.unwrap_err();
    assert!(refused.to_string().contains("scheduling is off"), "{refused}");
}
