//! Services that an agent finds: MCP servers and other agents, by a tool and as a hint in every turn.

use serde_json::{Value, json};

use crate::{
    fleet::{Fleet, assert_contains},
    model_server::{COMPLETIONS, answer, calls, contents},
    process::Running,
    site::Site,
    stdio_server,
};

const HEADING: &str = "Potentially relevant services for this request (call search_known_services for full search):\n";
const MESSAGE: &str = "Prepare the sales report and search leads.";

/// Starts an agent that knows the MCP server `sales-crm` and the agent `SalesOps`.
async fn start(fleet: &Fleet, model: &Site) -> (Running, Running) {
    let ok = stdio_server::text("ok");
    let tools = ["search_leads", "update_opportunity", "list_accounts", "delete_account"];
    let tools: Value = tools.iter().map(|name| ((*name).to_owned(), ok.clone())).collect();
    let servers = json!({"sales-crm": stdio_server::entry(&tools),
        "weather": stdio_server::entry(&json!({"forecast": ok}))});
    let bridge = fleet.bridge("bridge-1", &servers).await;
    let known = json!([{"agentName": "SalesOps", "description": "Sales workflows.", "skills": [
        {"id": "sales-report", "name": "Sales report"}, {"id": "audit-leads", "name": "Audit"}]}]);
    let known = fleet.write("known.json", &known.to_string());
    let mut agent = fleet.program("rockbot-agent");
    agent
        .env("ROCKBOT_AGENT__WELL_KNOWN_AGENTS", known)
        .env("ROCKBOT_LLM__BASE_URL", model.url("/v1"))
        .env("ROCKBOT_LLM__MODEL", "gpt-4o")
        .env("ROCKBOT_LLM__API_KEY", "sk-of-this-test");
    let mut agent = Running::start(agent);
    agent.expect_log("ready").await;
    // The agent discovers the servers shortly after it is ready.
    for _ in 0..100 {
        let listed = fleet.run(&["tools", "list", "--agent", "assistant"]).await.stdout;
        if listed.contains("sales-crm__search_leads") && listed.contains("weather__forecast") {
            break;
        }
    }
    (bridge, agent)
}

#[tokio::test]
async fn agent_hints_and_finds_servers_and_agents() {
    let fleet = Fleet::new();
    let search = json!({"query": "sales leads report"});
    let replies = vec![calls([("search_known_services", search)]), answer("Found.")];
    let model = Site::start([(COMPLETIONS, replies)]).await;
    let (_bridge, _agent) = start(&fleet, &model).await;
    let chat = fleet.run(&["chat", MESSAGE]).await;
    chat.assert_code(0);
    assert_contains(&chat.stdout, &["Found."]);
    let requests = model.requests(COMPLETIONS);
    let [first, second] = requests.as_slice() else { panic!("{} requests", requests.len()) };

    let message = contents(&first.json(), "user").pop().expect("a message");
    let (_, hints) = message.split_once(HEADING).unwrap_or_else(|| panic!("no heading: {message}"));
    let hints: Vec<_> = hints.lines().take_while(|line| line.starts_with("- ")).collect();
    assert_eq!(hints.len(), 2, "{message}");
    let hint = |start: &str| {
        let found = hints.iter().find(|hint| hint.starts_with(start));
        *found.unwrap_or_else(|| panic!("no {start}: {hints:?}"))
    };
    assert!(hint("- SalesOps (a2a): ").ends_with(", top skills: sales-report, audit-leads"));
    let server = hint("- sales-crm (mcp): ");
    assert!(server.contains(", top tools: ") && server.contains("search_leads"), "{server}");

    let found = contents(&second.json(), "tool").pop().expect("a result");
    let found: Value = serde_json::from_str(&found).unwrap_or_else(|_| panic!("no JSON: {found}"));
    let results = found["results"].as_array().expect("results");
    assert_eq!(results.len(), 2, "{found}");
    assert_eq!(results[0]["relevance_score"], json!(1.0), "{found}");
    let score = results[1]["relevance_score"].as_f64().expect("a score");
    assert!(score > 0.0 && score <= 1.0, "{found}");
    let fields = |id: &str| {
        let result = results.iter().find(|one| one["id"] == id);
        let result =
            result.and_then(Value::as_object).unwrap_or_else(|| panic!("no {id}: {found}"));
        let names: Vec<_> = result.keys().map(String::as_str).collect();
        (result.clone(), names.join(" "))
    };
    let (agent, names) = fields("SalesOps");
    assert_eq!(names, "id relevance_score summary top_skills type");
    assert_eq!((&agent["type"], &agent["summary"]), (&json!("a2a"), &json!("Sales workflows.")));
    assert_eq!(agent["top_skills"], json!(["sales-report", "audit-leads"]));
    let (server, names) = fields("sales-crm");
    assert_eq!(names, "id relevance_score summary top_tools type");
    assert_eq!(
        (&server["type"], server["top_tools"].as_array().map(Vec::len)),
        (&json!("mcp"), Some(3))
    );
}
