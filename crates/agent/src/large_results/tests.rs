use rockbot_contracts::{AgentName, SessionId, ToolSource};
use rockbot_store::{Clock, ManualClock, MemoryStore, Store};
use serde_json::json;

use super::*;

fn owner() -> MemoryOwner {
    let session = SessionId::new("abc123").unwrap();
    MemoryOwner { agent: AgentName::new("assistant").unwrap(), session }
}

fn with_memory(store: impl Store) -> (LargeResults, WorkingMemory) {
    let memory = WorkingMemory::new(Arc::new(store));
    (LargeResults { memory: Some(memory.clone()) }, memory)
}

async fn shown(large: &LargeResults, tool: &str, text: &str, threshold: usize) -> String {
    shown_to(large, tool, text, Reader { threshold, readable: usize::MAX, can_read: true }).await
}

/// Limits of a model.
struct Reader {
    threshold: usize,
    readable: usize,
    can_read: bool,
}

async fn shown_to(large: &LargeResults, tool: &str, text: &str, reader: Reader) -> String {
    let Reader { threshold, readable, can_read: can_read_chunks } = reader;
    let (call, text) = (ToolCallId::generate(), text.to_owned());
    let hint = None;
    let result = LongResult { tool, call: &call, text, threshold, readable, can_read_chunks, hint };
    large.render(&owner(), result).await
}

fn keys(rendered: &str) -> Vec<&str> {
    let rows = rendered.lines().filter(|line| line.starts_with("| ") && line.contains('`'));
    rows.filter_map(|row| row.split('`').nth(1)).collect()
}

#[tokio::test]
async fn long_result_is_stored_and_fully_readable() {
    let clock = ManualClock::new();
    let (large, memory) = with_memory(MemoryStore::new(Clock::from(&clock)));
    let part = |name: &str| format!("# {name}\n{}", "many words, für alle\n".repeat(2000));
    let text = format!("{}{}{}", part("Models"), part("Pricing"), part("Limits"));
    let rendered = shown(&large, "list_models", &text, 64_000).await;
    assert!(rendered.starts_with("The result of 'list_models' has 126 028 chars"), "{rendered}");
    let keys = keys(&rendered);
    assert_eq!(keys.len(), 3, "{rendered}");
    assert!(keys[0].starts_with("session/abc123/tool-list_models-"), "{rendered}");
    assert!(keys[2].ends_with("-chunk2"), "{rendered}");
    assert!(rendered.contains("| 1 | Pricing | 42010 |"), "{rendered}");

    let mut whole = String::new();
    for key in &keys {
        whole.push_str(&memory.get(&owner(), key).await.unwrap().unwrap());
    }
    assert!(whole == text);
    let index = keys[0].replace("-chunk0", "-index");
    let outline = memory.get(&owner(), &index).await.unwrap().unwrap();
    assert!(outline.starts_with("## Document Outline\n- **Models** → `session/abc123/"));
    assert!(outline.contains(&format!("- **Pricing** → `{}`", keys[1])), "{outline}");

    clock.advance(Duration::from_secs(20 * 60));
    assert_eq!(memory.get(&owner(), keys[0]).await.unwrap(), None);
}

#[tokio::test]
async fn text_without_headings_is_split_into_parts() {
    let (large, memory) = with_memory(MemoryStore::new(Clock::System));
    let rendered = shown(&large, "logs", &"line\n".repeat(10_000), 1000).await;
    let keys = keys(&rendered);
    assert_eq!(keys.len(), 3, "{rendered}");
    let index = keys[0].replace("-chunk0", "-index");
    let outline = memory.get(&owner(), &index).await.unwrap().unwrap();
    assert!(outline.contains(&format!("- **Part 2** → `{}`", keys[2])), "{outline}");

    let chunk = memory.get(&owner(), keys[0]).await.unwrap().unwrap();
    assert_eq!(chunk.len(), 20_000);
    let read = shown(&large, "get_from_working_memory", &chunk, 1000).await;
    assert!(read == chunk, "a chunk is not split again");
}

#[tokio::test]
async fn result_is_truncated_without_chunk_reader() {
    let (large, memory) = with_memory(MemoryStore::new(Clock::System));
    let reader = Reader { threshold: 1000, readable: usize::MAX, can_read: false };
    let rendered = shown_to(&large, "logs", &"x".repeat(1500), reader).await;
    let expected = format!("{}\n[result truncated — 500 chars omitted]", "x".repeat(1000));
    assert_eq!(rendered, expected);
    assert!(memory.list(&owner(), None).await.unwrap().is_empty());
}

#[tokio::test]
async fn chunks_and_table_fit_small_window() {
    let (large, memory) = with_memory(MemoryStore::new(Clock::System));
    let reader = || Reader { threshold: 4000, readable: 4000, can_read: true };
    let text = format!("# {}\n{}\n", "long | title ".repeat(20), "words ".repeat(500));
    let rendered = shown_to(&large, "logs", &text.repeat(60), reader()).await;
    assert!(rendered.chars().count() <= 4000, "{rendered}");
    let keys = keys(&rendered);
    assert!(keys.len() > 5 && keys.last().unwrap().ends_with("-chunk59"), "{rendered}");
    let index = keys[0].replace("-chunk0", "-index");
    for key in [keys[0], &index] {
        let kept = memory.get(&owner(), key).await.unwrap().unwrap();
        assert!(kept.chars().count() <= 4000, "{key}");
        assert!(shown_to(&large, CHUNK_READER, &kept, reader()).await == kept, "{key}");
    }
}

#[test]
fn note_counts_earlier_truncations() {
    let once = truncated("ü".repeat(100), 60);
    assert_eq!(truncated(once.clone(), 10), truncated("ü".repeat(100), 10));
    assert_eq!(truncated(once.clone(), 60), once, "the note does not count");
}

#[tokio::test]
async fn result_is_truncated_without_working_memory() {
    let closed = MemoryStore::new(Clock::System);
    closed.close().await;
    let (full, _) = with_memory(closed);
    for large in [LargeResults::default(), full] {
        let rendered = shown(&large, "logs", &"ü".repeat(70_000), 64_000).await;
        let expected = format!("{}\n[result truncated — 6000 chars omitted]", "ü".repeat(64_000));
        assert!(rendered == expected);
        assert_eq!(shown(&large, "logs", "short", 64_000).await, "short");
    }
}

/// A page as `web_browse` returns it.
async fn page(large: &LargeResults, text: &str, fragment: Option<&str>, reader: Reader) -> String {
    let call = ToolCallId::generate();
    let details = json!({"chunking": {"threshold": 8000, "max": 4000, "stem": "web-example.com_docs_a",
        "ttlSeconds": 1800, "title": "Docs", "fragment": fragment}});
    let hint = TrustedHint::from_details(Some(&details), &ToolSource::Web);
    let Reader { threshold, readable, can_read: can_read_chunks } = reader;
    let (tool, text) = ("web_browse", text.to_owned());
    let result = LongResult { tool, call: &call, text, threshold, readable, can_read_chunks, hint };
    large.render(&owner(), result).await
}

const MODEL: Reader = Reader { threshold: 64_000, readable: usize::MAX, can_read: true };

async fn joined(memory: &WorkingMemory) -> (usize, String) {
    let (mut count, mut text) = (0, String::new());
    let key = |number| format!("session/abc123/web-example.com_docs_a-chunk{number}");
    while let Some(chunk) = memory.get(&owner(), &key(count)).await.unwrap() {
        text.push_str(&chunk);
        count += 1;
    }
    (count, text)
}

#[tokio::test]
async fn hinted_result_has_keys_of_its_document() {
    let clock = ManualClock::new();
    let (large, memory) = with_memory(MemoryStore::new(Clock::from(&clock)));
    assert_eq!(page(&large, "short", None, MODEL).await, "short");
    let part = |number: usize| format!("## Part {number}\n\n{}\n", "words ".repeat(500));
    let text: String = (0..4).map(part).collect();
    let rendered = page(&large, &text, None, MODEL).await;
    assert!(
        rendered.starts_with("The result of 'web_browse' (\"Docs\") has 12 048 chars"),
        "{rendered}"
    );
    assert!(rendered.contains("for 30 minutes"), "{rendered}");
    let key = "session/abc123/web-example.com_docs_a-chunk2";
    assert!(rendered.contains(&format!("| 2 | Part 2 | 3012 | `{key}` |")), "{rendered}");
    assert_eq!(joined(&memory).await, (4, text));
    let index = "session/abc123/web-example.com_docs_a-index";
    let outline = memory.get(&owner(), index).await.unwrap().unwrap();
    let items: String = (0..4)
        .map(|n| {
            let key = format!("session/abc123/web-example.com_docs_a-chunk{n}");
            format!("  - **Part {n}** → `{key}` (3012 chars)\n")
        })
        .collect();
    assert_eq!(outline, format!("## Document Outline\n{items}"));
    let entries = memory.list(&owner(), None).await.unwrap();
    assert_eq!(entries.len(), 5);
    assert!(entries.iter().all(|entry| entry.category.as_deref() == Some("web")), "{entries:?}");
    clock.advance(Duration::from_secs(30 * 60));
    assert_eq!(memory.get(&owner(), key).await.unwrap(), None);
}

#[tokio::test]
async fn outline_of_web_page_leads_to_chunks_with_its_headings() {
    let (large, memory) = with_memory(MemoryStore::new(Clock::System));
    let words = |count: usize| "words ".repeat(count);
    let headings = ["# Docs", "## Install", "### Linux", "### macOS", "## Use", "## Limits"];
    let lengths = [10, 20, 400, 30, 2500, 300];
    let parts = headings.iter().zip(lengths);
    let text: String =
        parts.map(|(heading, count)| format!("{heading}\n\n{}\n\n", words(count))).collect();
    page(&large, &text, None, MODEL).await;
    let index = "session/abc123/web-example.com_docs_a-index";
    let outline = memory.get(&owner(), index).await.unwrap().unwrap();
    let mut items = outline.lines();
    assert_eq!(items.next(), Some("## Document Outline"));
    for heading in headings {
        let item = items.next().unwrap();
        let (marks, title) = heading.split_once(' ').unwrap();
        let start = format!("{}- **{title}** → `", "  ".repeat(marks.len() - 1));
        let (key, rest) = item.strip_prefix(&start).unwrap().split_once('`').unwrap();
        assert!(key.starts_with("session/abc123/web-example.com_docs_a-chunk"), "{item}");
        let chunk = memory.get(&owner(), key).await.unwrap().unwrap();
        assert!(chunk.lines().any(|line| line == heading), "{item}: {chunk}");
        // A section of several chunks names the last one as well.
        assert_eq!(rest.contains(" … `"), title == "Use" || title == "Docs", "{item}");
    }
    assert_eq!(items.next(), None);
}

#[tokio::test]
async fn shorter_document_leaves_no_earlier_chunks() {
    let (large, memory) = with_memory(MemoryStore::new(Clock::System));
    page(&large, &"old line\n".repeat(5000), None, MODEL).await;
    assert_eq!(joined(&memory).await.0, 12);
    let other = "session/abc123/web-example.com_docs_ab-chunk7";
    let options = rockbot_memory::SaveOptions::default();
    memory.save(&owner(), other, "other", options).await.unwrap();
    let text = "new line\n".repeat(1000);
    page(&large, &text, None, MODEL).await;
    assert_eq!(joined(&memory).await, (3, text));
    let entries = memory.list(&owner(), None).await.unwrap();
    let keys: Vec<_> = entries.iter().map(|entry| entry.key.as_str()).collect();
    assert_eq!(keys.len(), 5, "{keys:?}");
    assert!(keys.contains(&other), "{keys:?}");
}

#[tokio::test]
async fn hinted_result_has_at_most_sixty_chunks() {
    let lines = "a line of the page\n".repeat(15_789);
    let headings: String = (0..2000).map(|n| format!("# {n}\n{}\n", "word ".repeat(30))).collect();
    for text in [lines, headings] {
        let (large, memory) = with_memory(MemoryStore::new(Clock::System));
        let rendered = page(&large, &text, None, MODEL).await;
        assert!(rendered.chars().count() <= 8500, "{}", rendered.chars().count());
        let (count, whole) = joined(&memory).await;
        assert!(count <= 60, "{count}");
        assert!(whole == text, "chunks are not the text");
    }
    // A model that reads little gets the beginning.
    let (large, memory) = with_memory(MemoryStore::new(Clock::System));
    let small = Reader { threshold: 2000, readable: 2000, can_read: true };
    page(&large, &"a line of the page\n".repeat(15_789), None, small).await;
    let (count, whole) = joined(&memory).await;
    assert!((50..=60).contains(&count), "{count}");
    assert!(whole.ends_with(" chars omitted]"), "{}", &whole[whole.len() - 100..]);
    assert_eq!(missing(&whole).map(|(body, omitted)| body.len() + omitted), Some(299_991));
}

#[tokio::test]
async fn table_begins_at_requested_heading() {
    let (large, _) = with_memory(MemoryStore::new(Clock::System));
    let part = |number: usize| format!("## Part No. {number}\n\n{}\n", "words ".repeat(600));
    let text: String = (0..6).map(part).collect();
    let rendered = page(&large, &text, Some("part-no-3"), MODEL).await;
    let rows: Vec<_> = rendered.lines().filter(|line| line.starts_with("| ")).collect();
    assert!(rows[1].starts_with("| … | 3 before | | from `"), "{rendered}");
    assert!(rows[2].starts_with("| 3 | Part No. 3 |"), "{rendered}");
    assert_eq!(rows.len(), 5, "{rendered}");
    let rendered = page(&large, &text, Some("no-such-part"), MODEL).await;
    assert!(rendered.contains("| 0 | Part No. 0 |"), "{rendered}");
}

#[tokio::test]
async fn hinted_result_is_truncated_without_chunk_reader() {
    let (large, _) = with_memory(MemoryStore::new(Clock::System));
    let reader = Reader { can_read: false, ..MODEL };
    let rendered = page(&large, &"x".repeat(9000), None, reader).await;
    let expected = format!("{}\n[result truncated — 1000 chars omitted]", "x".repeat(8000));
    assert_eq!(rendered, expected);
}
