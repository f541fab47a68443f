//! A model server whose responses are chosen by a function of the request. It counts requests, and holds those
//! at a gate.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
};

use rockbot_testkit::fixture::wait_until;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    sync::watch,
    task::JoinSet,
};

use crate::{
    conversations::model_server::{finish, write_chunk},
    http,
};

const MAX_REQUEST: usize = 4 * 1024 * 1024;

/// A request as the planned responses see it.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    /// The last message of a user.
    pub(super) user: String,
    /// The results of tools since then.
    pub(super) results: Vec<String>,
    /// Names of the offered tools.
    pub(super) tools: Vec<String>,
    /// The model must answer without tools.
    pub(super) must_answer: bool,
}

impl Asked {
    fn new(request: &Value) -> Self {
        let messages = request["messages"].as_array().map_or(&[][..], Vec::as_slice);
        let is = |role: &'static str| move |message: &&Value| message["role"] == role;
        let last = messages.iter().rposition(|message| message["role"] == "user").unwrap_or(0);
        let text = |message: &Value| message["content"].as_str().unwrap_or_default().to_owned();
        let tools = request["tools"].as_array().map_or(&[][..], Vec::as_slice);
        let name = |tool: &Value| tool["function"]["name"].as_str().unwrap_or_default().to_owned();
        Self {
            user: messages.get(last).map(text).unwrap_or_default(),
            results: messages.iter().skip(last).filter(is("tool")).map(text).collect(),
            tools: tools.iter().map(name).collect(),
            must_answer: request["tool_choice"] == "none",
        }
    }

    /// Returns `true` for a request of a sub-agent.
    pub(super) fn is_sub_agent(&self) -> bool {
        self.user.contains("You work as a sub-agent")
    }

    /// Returns `true` for a request of the turn that reads results.
    pub(super) fn reads_results(&self) -> bool {
        self.user.contains("[Subagent task")
    }
}

/// A response: a text, or calls. It waits at the gate of this name until the gate is open.
#[derive(Debug, Clone, Default)]
pub(super) struct Planned {
    pub(super) text: String,
    pub(super) calls: Vec<(String, Value)>,
    pub(super) gate: Option<&'static str>,
}

impl Planned {
    pub(super) fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    pub(super) fn calls(calls: impl IntoIterator<Item = (&'static str, Value)>) -> Self {
        let calls = calls.into_iter().map(|(name, arguments)| (name.to_owned(), arguments));
        Self { calls: calls.collect(), ..Self::default() }
    }

    /// Returns calls that start a sub-agent for each description.
    pub(super) fn spawns(descriptions: impl IntoIterator<Item = String>) -> Self {
        let spawn = |description| ("spawn_subagent", json!({"description": description}));
        Self::calls(descriptions.into_iter().map(spawn))
    }

    pub(super) fn at(self, gate: &'static str) -> Self {
        Self { gate: Some(gate), ..self }
    }
}

/// Chooses the response to a request.
pub(super) type Plan = fn(&Asked) -> Planned;

/// The server. Dropping it closes its connections.
pub(super) struct PlannedModel {
    port: u16,
    state: Arc<State>,
    _tasks: JoinSet<()>,
}

struct State {
    plan: Plan,
    asked: Mutex<Vec<Asked>>,
    open: watch::Sender<HashSet<&'static str>>,
    /// Gates at which requests wait or have waited.
    reached: Mutex<Vec<&'static str>>,
}

impl PlannedModel {
    pub(super) async fn start(plan: Plan) -> Self {
        let (open, reached) = (watch::Sender::default(), Mutex::default());
        let state = Arc::new(State { plan, asked: Mutex::default(), open, reached });
        let served = state.clone();
        let serve = move |stream| {
            let state = served.clone();
            // The client may disconnect at any time.
            async move { drop(state.serve(stream).await) }
        };
        let (port, tasks) = http::serve_connections(serve).await;
        Self { port, state, _tasks: tasks }
    }

    /// Returns the base URL of the API.
    pub(super) fn base_url(&self) -> String {
        format!("http://127.0.0.1:{}/v1", self.port)
    }

    /// Opens a gate for all requests.
    pub(super) fn open(&self, gate: &'static str) {
        self.state.open.send_modify(|open| {
            open.insert(gate);
        });
    }

    /// Waits until this number of requests came to a gate.
    pub(super) async fn reached(&self, gate: &'static str, count: usize) {
        let at =
            || self.state.reached.lock().expect("a list").iter().filter(|at| **at == gate).count();
        wait_until(gate, || at() >= count).await;
    }

    /// Returns the requests so far.
    pub(super) fn asked(&self) -> Vec<Asked> {
        self.state.asked.lock().expect("a list").clone()
    }
}

impl State {
    async fn serve(&self, stream: TcpStream) -> std::io::Result<()> {
        let mut stream = BufReader::new(stream);
        let Some(body) = http::read_body(&mut stream, MAX_REQUEST).await else { return Ok(()) };
        let asked = Asked::new(&serde_json::from_slice(&body).unwrap_or_default());
        self.asked.lock().expect("a list").push(asked.clone());
        let Planned { text, calls, gate } = (self.plan)(&asked);
        if let Some(gate) = gate {
            self.reached.lock().expect("a list").push(gate);
            let mut open = self.open.subscribe();
            tokio::select! {
                _ = stream.read_u8() => return Ok(()),
                _ = open.wait_for(|open| open.contains(gate)) => {}
            }
        }
        let head =
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";
        stream.write_all(head.as_bytes()).await?;
        if calls.is_empty() || asked.must_answer {
            write_chunk(&mut stream, &json!({"content": text}), None).await?;
            return finish(&mut stream, "stop").await;
        }
        let call = |(index, (name, arguments)): (usize, (String, Value))| {
            let function = json!({"name": name, "arguments": arguments.to_string()});
            json!({"index": index, "id": format!("call-{index}"), "type": "function",
                "function": function})
        };
        let calls: Vec<_> = calls.into_iter().enumerate().map(call).collect();
        write_chunk(&mut stream, &json!({"tool_calls": calls}), None).await?;
        finish(&mut stream, "tool_calls").await
    }
}
