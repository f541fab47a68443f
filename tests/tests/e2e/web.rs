//! The web tools of a handler process, with a search service and a site on loopback.

use std::fmt::Write as _;

use rockbot_agent::AgentClient;
use rockbot_contracts::{AgentName, InstanceId, ReplyBody, SessionId, UserMessage};
use rockbot_testkit::fixture::within_timeout;
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::{
    fleet::{Fleet, assert_contains},
    process::Running,
    site::{Reply, Site},
};

pub(crate) const SEARCH: &str = "/res/v1/web/search";
const KEY: &str = "brave-key-of-this-test";
const SECTIONS: usize = 12;

/// Starts a handler of the pool `web` that searches with this site, and may read its pages.
pub(crate) async fn web_handler(fleet: &Fleet, site: &Site) -> Running {
    let (url, ports) = (site.url(""), format!("[{}]", site.port()));
    let settings = [
        ("ROCKBOT_HANDLER__POOL", "web"),
        ("ROCKBOT_HANDLER__FAMILIES", r#"["web"]"#),
        ("ROCKBOT_WEB__ALLOW_PRIVATE", r#"["127.0.0.1"]"#),
        ("ROCKBOT_WEB__PORTS", &ports),
        ("ROCKBOT_WEB__SEARCH__BRAVE__BASE_URL", &url),
        ("BRAVE_API_KEY", KEY),
    ];
    fleet.handler_with("web-1", &settings).await
}

/// Returns a page with sections of about 2,000 characters.
fn long_page() -> String {
    let mut html =
        "<html><head><title>The guide</title></head><body><main><h1>The guide</h1>".to_owned();
    for section in 0..SECTIONS {
        let sentence = format!("Sentence about subject {section}, with some words behind it. ");
        let _ = write!(html, "<h2>Subject {section}</h2><p>{}</p>", sentence.repeat(36));
    }
    html + "</main></body></html>"
}

/// Returns a document of one page with this text.
fn pdf(text: &str) -> Vec<u8> {
    let content = format!("BT /F1 12 Tf 72 720 Td ({text}) Tj ET");
    let objects = [
        "<< /Type /Catalog /Pages 2 0 R >>".to_owned(),
        "<< /Type /Pages /Kids [4 0 R] /Count 1 /MediaBox [0 0 612 792] \
         /Resources << /Font << /F1 3 0 R >> >> >>"
            .to_owned(),
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>"
            .to_owned(),
        "<< /Type /Page /Parent 2 0 R /Contents 5 0 R >>".to_owned(),
        format!("<< /Length {} >>\nstream\n{content}\nendstream", content.len()),
    ];
    let mut file = "%PDF-1.7\n".to_owned();
    let mut table = format!("xref\n0 {}\n0000000000 65535 f \n", objects.len() + 1);
    for (number, object) in (1..).zip(&objects) {
        let _ = writeln!(table, "{:010} 00000 n ", file.len());
        let _ = write!(file, "{number} 0 obj\n{object}\nendobj\n");
    }
    let (offset, size) = (file.len(), objects.len() + 1);
    let trailer = format!("trailer\n<< /Size {size} /Root 1 0 R >>\nstartxref\n{offset}\n%%EOF\n");
    (file + &table + &trailer).into_bytes()
}

#[tokio::test]
async fn web_pool_searches_and_reads_pages() {
    let results = json!({"query": {"original": "harbor"}, "web": {"results": [
        {"title": "The <b>harbor</b>", "url": "https://example.com/harbor",
            "description": "Built by merchants."}]}});
    let page = "<title>The harbor</title><main><h1>The harbor</h1><p>Built by the town's merchants, \
                who needed a quay.</p></main>";
    let site = Site::start([
        (SEARCH, vec![Reply::json(&results)]),
        ("/harbor", vec![Reply::ok("text/html", page)]),
        ("/harbor.pdf", vec![Reply::ok("application/pdf", pdf("The quay is 200 meters long"))]),
    ])
    .await;
    let fleet = Fleet::new();
    let handler = web_handler(&fleet, &site).await;

    let search = fleet.run(&["tools", "call", "web_search", r#"{"query": "harbor"}"#]).await;
    search.assert_code(0);
    let line = "1. [The harbor](https://example.com/harbor) — Built by merchants.";
    assert_contains(&search.stdout, &[line, "(brave)"]);
    assert_eq!(site.requests(SEARCH)[0].header("x-subscription-token"), Some(KEY));
    for (path, expected) in [
        ("/harbor", "Built by the town's merchants, who needed a quay."),
        ("/harbor.pdf", "The quay is 200 meters long"),
    ] {
        let arguments = json!({"url": site.url(path)}).to_string();
        let read = fleet.run(&["tools", "call", "web_browse", &arguments]).await;
        read.assert_code(0);
        assert_contains(&read.stdout, &[expected, &format!("URL: {}", site.url(path))]);
        assert_eq!(site.requests(path).len(), 1);
        assert_eq!(site.requests(path)[0].header("x-subscription-token"), None);
    }
    assert_eq!(site.requests("/robots.txt").len(), 1, "kept for the second page");
    assert!(!handler.log().contains(KEY), "{}", handler.log());

    let private = r#"{"url": "http://127.0.0.2/"}"#;
    let refused = fleet.run(&["--json", "tools", "call", "web_browse", private]).await;
    refused.assert_code(1);
    assert_eq!(refused.json()["code"], "not_permitted");
}

#[tokio::test]
async fn agent_reads_long_page_in_chunks() {
    let site = Site::start([("/guide", vec![Reply::ok("text/html", long_page())])]).await;
    let (fleet, session) = (Fleet::new(), SessionId::generate());
    let _handler = web_handler(&fleet, &site).await;

    let url = site.url("/guide");
    let hash: String = Sha256::digest(&url)[..4].iter().map(|byte| format!("{byte:02x}")).collect();
    let key = format!("session/{session}/web-http-127.0.0.1_{}_guide-{hash}", site.port());
    let script = format!(
        r#"
[[turn]]
[[turn.call]]
name = "web_browse"
arguments = {{ url = "{url}#subject-3" }}

[[turn]]
[[turn.call]]
name = "get_from_working_memory"
arguments = {{ key = "{key}-chunk1" }}
[[turn.call]]
name = "get_from_working_memory"
arguments = {{ key = "{key}-index" }}

[[turn]]
text = """
{{{{result.0}}}}
=====
{{{{result.1}}}}
=====
{{{{result.2}}}}"""
"#
    );
    let script = fleet.write("script.toml", &script);
    let mut agent = fleet.program("rockbot-agent");
    agent
        .env("ROCKBOT_LLM__PROVIDER", "scripted")
        .env("ROCKBOT_LLM__SCRIPT", script)
        .env("ROCKBOT_MEMORY__STORE", "memory:");
    let mut agent = Running::start(agent);
    agent.expect_log("ready").await;
    agent.expect_log("handler announced its tools").await;

    let answer = ask(&fleet, session, "What does the guide say?").await;
    let [page, chunk, index] = answer.split("\n=====\n").collect::<Vec<_>>()[..] else {
        panic!("not three results: {answer}");
    };
    assert!(!page.contains("Sentence about"), "the page was not split: {page}");
    let note = "too many to show. It was split into 7 chunk(s) in working memory, for 30 minutes";
    assert_contains(page, &[note, "| # | Heading | Chars | Key |"]);
    let mut rows = page.lines().filter(|line| line.contains(&key) && line.contains("| Subject "));
    let first = rows.next().expect("a row");
    assert!(first.contains("Subject 3"), "the table does not begin with the fragment: {page}");
    assert_contains(chunk, &["Sentence about subject"]);
    assert!(
        !chunk.contains("Sentence about subject 0,"),
        "the second chunk is not the first: {chunk}"
    );
    assert_contains(index, &["## Document Outline", "Subject 11", &format!("{key}-chunk0")]);
    assert_eq!(site.requests("/guide").len(), 1);
}

/// Sends a message of a conversation to the agent, and returns its answer.
async fn ask(fleet: &Fleet, session_id: SessionId, text: &str) -> String {
    let bus = fleet.bus(|_| {}).await;
    let client = AgentClient::connect(bus, &InstanceId::generate()).await.expect("a reply queue");
    let agent = AgentName::new("assistant").expect("a name");
    let message = UserMessage::new(session_id, text);
    let mut replies = client.send(&agent, &message).await.expect("sent");
    loop {
        let reply = within_timeout("a reply", replies.next()).await.expect("a final reply");
        if let ReplyBody::Answer { text, .. } = reply.expect("a reply").body {
            return text;
        }
    }
}
