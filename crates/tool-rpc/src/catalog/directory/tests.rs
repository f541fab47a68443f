//! Announcements with any content.

use std::time::{Duration, Instant};

use proptest::{collection::vec, option, prelude::*, sample::select};
use rockbot_bus::MemoryBus;
use rockbot_contracts::{AgentName, InstanceId, Message, ToolCatalog, topology::ReplyAddress};
use serde_json::{Value, json};

use super::*;

/// Time limit for the announcements of one case.
const WITHIN: Duration = Duration::from_secs(10);

/// An announcement: its body, the broker user and the time of its sender.
type Sent = (Vec<u8>, Option<&'static str>, u64);

fn catalog(registry: &Arc<ToolRegistry>) -> Catalog {
    let name = AgentName::new("caller").unwrap();
    let address = ReplyAddress::new(name, InstanceId::generate());
    let requester = Arc::new(Requester::new(Arc::new(MemoryBus::new()), address));
    Catalog::new(RegistrySync::new(registry.clone(), requester), watch::channel(Arc::default()).0)
}

fn announcement((body, user, timestamp): &Sent) -> Option<Announcement> {
    let mut envelope = Envelope::raw(ToolCatalog::TYPE, body.clone());
    envelope.user_id = user.map(Arc::from);
    envelope.timestamp = *timestamp;
    Announcement::read(&envelope)
}

/// Checks that the registry has nothing but tools of live handlers.
fn check(registry: &ToolRegistry, snapshot: &CatalogSnapshot) -> Result<(), TestCaseError> {
    for tool in registry.list() {
        let owner = snapshot.owner(&tool.name);
        let is_announced = snapshot
            .handlers()
            .any(|known| Some(&known.pool) == owner && known.tools.contains(&tool));
        prop_assert!(is_announced, "{} has no handler", tool.name);
    }
    Ok(())
}

proptest! {
    #[test]
    fn any_announcements_are_applied_or_ignored(sent in vec(sent(), 1..8)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _entered = runtime.enter();
        let registry = Arc::new(ToolRegistry::new());
        let mut catalog = catalog(&registry);
        let started = Instant::now();
        for sent in &sent {
            if let Some(announcement) = announcement(sent) {
                catalog.update(Some(announcement));
                check(&registry, &catalog.observer.current())?;
            }
        }
        for known in catalog.observer.current().handlers() {
            let stopped = json!({"handler": "h", "instance": known.instance, "tools": [],
                "fingerprint": "", "invokeKey": known.pool.invoke_key()});
            let user = known.user.clone();
            let mut envelope = Envelope::raw(ToolCatalog::TYPE, stopped.to_string().into_bytes());
            envelope.user_id = user.map(Arc::from);
            catalog.update(Announcement::read(&envelope));
        }
        prop_assert_eq!(catalog.observer.current().handlers().count(), 0);
        prop_assert_eq!(registry.list().len(), 0);
        prop_assert!(started.elapsed() < WITHIN, "{:?}", started.elapsed());
    }
}

prop_compose! {
    fn sent()(
        body in prop_oneof![9 => announced(), 1 => any_value()],
        damage in option::weighted(0.2, (any::<prop::sample::Index>(), "[\\]}\",:0\\PC]{0,3}")),
        user in select(vec![None, Some("rockbot.tool-handler"), Some("rockbot.tool-handler.files"), Some("x")]),
        timestamp in prop_oneof![Just(0), Just(1_800_000_000), any::<u64>()],
    ) -> Sent {
        let mut body = body.to_string().into_bytes();
        if let Some((place, text)) = damage {
            let at = place.index(body.len());
            let end = (at + text.len()).min(body.len());
            drop(body.splice(at..end, text.bytes()));
        }
        (body, user, timestamp)
    }
}

prop_compose! {
    fn announced()(
        instance in select(vec!["h-1", "h-2", "h-3"]),
        tools in vec(tool(), 0..6),
        fingerprint in "[a-c]{0,2}",
        invoke_key in select(vec![json!(null), json!("tool.invoke"), json!("tool.invoke.pool.files"),
            json!("tool.invoke.pool.web"), json!("tool.invoke.mcp"), json!("user.message.x")]),
        removed in any_value(),
        load in any_value(),
        instructions in prop_oneof![vec(text_of_source(), 0..10).prop_map(Value::from), any_value()],
        guides in prop_oneof![vec(text_of_source(), 0..10).prop_map(Value::from), any_value()],
    ) -> Value {
        // Fields of another type make an announcement unreadable, so most have the right one.
        let or = |value: Value, default: Value| if value.is_object() || value.is_array() { value } else { default };
        json!({"handler": "tool-handler", "instance": instance, "tools": tools,
            "fingerprint": fingerprint, "invokeKey": invoke_key,
            "removed": if removed.is_array() { removed } else { json!(null) },
            "load": or(load, json!(null)), "instructions": or(instructions, json!(null)),
            "guides": or(guides, json!(null))})
    }
}

prop_compose! {
    fn text_of_source()(source in source(), name in "[a-z-]{0,5}|\\PC{0,5}", text in "\\PC{0,40}|.{0,5}") -> Value {
        json!({"source": source, "name": name, "summary": text, "text": text, "markdown": text})
    }
}

prop_compose! {
    fn tool()(
        name in prop_oneof![5 => "[ab]", 2 => "[a-z_.:/ -]{0,70}", 1 => "\\PC{0,5}|.{0,5}"],
        description in "[a-z ]{0,5}|\\PC{0,20}",
        parameters in prop_oneof![4 => schema(), 1 => any_value()],
        source in source(),
        hints in prop_oneof![Just(json!(null)), Just(json!({"readOnly": true})), any_value()],
        timeout_ms in option::of(any::<u64>()),
    ) -> Value {
        json!({"name": name, "description": description, "parameters": parameters,
            "source": source, "hints": hints, "timeoutMs": timeout_ms})
    }
}

fn source() -> impl Strategy<Value = Value> {
    let text = select(vec!["files", "internal", "mcp:git", "agent:x", "", ":", "mcp:"]);
    prop_oneof![9 => text.prop_map(Value::from), 1 => any_value()]
}

/// Object schemas with properties of any shape.
fn schema() -> impl Strategy<Value = Value> {
    let properties = proptest::collection::btree_map("[a-c$]{0,2}", property(), 0..4);
    (properties, any_value()).prop_map(|(properties, definitions)| {
        json!({"type": "object", "properties": properties, "$defs": definitions})
    })
}

fn property() -> impl Strategy<Value = Value> {
    let kind = select(vec!["string", "object", "array", "integer", "nonsense"]);
    let keyword = select(vec!["$ref", "pattern", "anyOf", "items", "enum", "minimum", "format"]);
    let reference =
        select(vec!["#", "#/$defs/a", "#/properties/a", "http://h/", "(", "[a-z]+", "date"]);
    (kind, keyword, prop_oneof![reference.prop_map(Value::from), any_value()])
        .prop_map(|(kind, keyword, value)| json!({"type": kind, keyword: value}))
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "\\PC{0,6}|.{0,3}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 20, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map("[a-c]{0,2}", inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}
