//! A model server whose answers depend on the request alone, so that any process can continue a turn.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncWriteExt, BufReader},
    net::TcpStream,
    task::JoinSet,
};

use super::plan::TurnPlan;
use crate::{chaos::timeline::Timeline, http};

/// Time between the chunks of an answer, in which faults interrupt it.
const CHUNK_INTERVAL: Duration = Duration::from_millis(40);
/// Largest request in bytes.
const MAX_REQUEST: usize = 4 * 1024 * 1024;

/// The server. Dropping it closes its connections.
pub(super) struct ModelServer {
    port: u16,
    seen: Arc<Mutex<SeenRequests>>,
    _tasks: JoinSet<()>,
}

/// Requests so far.
#[derive(Debug, Clone, Default)]
pub(super) struct SeenRequests {
    pub(super) requests: usize,
    /// Requests whose history was not that of their conversation, by model call.
    pub(super) problems: BTreeMap<String, String>,
}

impl ModelServer {
    pub(super) async fn start(timeline: Arc<Timeline>) -> Self {
        let seen = Arc::<Mutex<SeenRequests>>::default();
        let recorded = seen.clone();
        let reply = move |stream| serve(stream, recorded.clone(), timeline.clone());
        let (port, tasks) = http::serve_connections(reply).await;
        Self { port, seen, _tasks: tasks }
    }

    /// Returns the base URL of the API.
    pub(super) fn base_url(&self) -> String {
        format!("http://127.0.0.1:{}/v1", self.port)
    }

    pub(super) fn seen(&self) -> SeenRequests {
        self.seen.lock().expect("not poisoned").clone()
    }
}

/// Answers one request. The client may disconnect at any time.
async fn serve(stream: TcpStream, seen: Arc<Mutex<SeenRequests>>, timeline: Arc<Timeline>) {
    let mut stream = BufReader::new(stream);
    let Some(body) = http::read_body(&mut stream, MAX_REQUEST).await else { return };
    let request = serde_json::from_slice::<Value>(&body).unwrap_or_default();
    let messages = request["messages"].as_array().map_or(&[][..], Vec::as_slice);
    let answer = {
        let mut seen = seen.lock().expect("not poisoned");
        seen.requests += 1;
        match next_answer(messages) {
            Ok((call, answer, problem)) => {
                if let Some(problem) = problem {
                    seen.problems.entry(call).or_insert(problem);
                }
                answer
            }
            Err(problem) => {
                seen.problems.entry("unreadable".to_owned()).or_insert(problem);
                return;
            }
        }
    };
    // The client may be gone.
    let _ = send(&mut stream, &answer, &timeline).await;
}

/// Returns the name of the model call, the chunks of the answer, and the error in the history.
fn next_answer(messages: &[Value]) -> Result<(String, Vec<Value>, Option<String>), String> {
    let last = messages.iter().rposition(|message| message["role"] == "user");
    let last = last.ok_or("a request has no user message")?;
    let text = messages[last]["content"].as_str().unwrap_or_default();
    let plan = TurnPlan::parse(text).ok_or_else(|| format!("unknown message: {text:?}"))?;
    let step = messages[last..].iter().filter(|message| message["role"] == "assistant").count();
    let call = format!("c{}-m{}-s{}", plan.conversation, plan.message, step + 1);
    let answer = if step < plan.steps.len() {
        calls(&plan, step)
    } else {
        vec![delta(&json!({"content": plan.answer()}), None), delta(&json!({}), Some("stop"))]
    };
    Ok((call, answer, check_history(messages).err()))
}

fn calls(plan: &TurnPlan, step: usize) -> Vec<Value> {
    let calls = plan.calls(step).into_iter().enumerate().map(|(index, call)| {
        let function = json!({"name": call.tool, "arguments": call.arguments.to_string()});
        json!({"index": index, "id": call.id, "type": "function", "function": function})
    });
    let calls = json!({"tool_calls": calls.collect::<Vec<_>>()});
    let text = json!({"content": format!("Step {}.", step + 1)});
    vec![delta(&text, None), delta(&calls, None), delta(&json!({}), Some("tool_calls"))]
}

fn delta(delta: &Value, finish: Option<&str>) -> Value {
    json!({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
}

async fn send(
    stream: &mut BufReader<TcpStream>,
    chunks: &[Value],
    timeline: &Timeline,
) -> std::io::Result<()> {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";
    stream.write_all(head.as_bytes()).await?;
    for chunk in chunks {
        stream.write_all(format!("data: {chunk}\n\n").as_bytes()).await?;
        stream.flush().await?;
        timeline.pass(CHUNK_INTERVAL).await;
    }
    let usage = json!({"choices": [], "usage": {"prompt_tokens": 100, "completion_tokens": 20}});
    stream.write_all(format!("data: {usage}\n\ndata: [DONE]\n\n").as_bytes()).await?;
    stream.shutdown().await
}

/// Checks that a history has all messages of its conversation in order, the calls of each step in order,
/// and exactly one result for each call.
fn check_history(messages: &[Value]) -> Result<(), String> {
    let mut plan = None::<TurnPlan>;
    let mut step = 0;
    let mut open = Vec::<String>::new();
    for message in messages {
        let role = message["role"].as_str().unwrap_or_default();
        if role != "tool" && !open.is_empty() {
            return Err(format!("calls without a result: {open:?}"));
        }
        match role {
            "user" => {
                let text = message["content"].as_str().unwrap_or_default();
                let next = TurnPlan::parse(text).ok_or_else(|| format!("message {text:?}"))?;
                let expected = plan.as_ref().map_or(1, |plan| plan.message + 1);
                if next.message != expected {
                    return Err(format!("message {} follows {}", next.message, expected - 1));
                }
                (plan, step) = (Some(next), 0);
            }
            "assistant" => {
                let ids = message["tool_calls"].as_array().into_iter().flatten();
                open = ids.filter_map(|call| call["id"].as_str().map(str::to_owned)).collect();
                let planned = plan.as_ref().filter(|plan| step < plan.steps.len());
                let planned = planned.map_or(Vec::new(), |plan| plan.calls(step));
                if !open.is_empty() && !open.iter().eq(planned.iter().map(|call| &call.id)) {
                    return Err(format!("step {} has the calls {open:?}", step + 1));
                }
                step += 1;
            }
            "tool" => {
                let id = message["tool_call_id"].as_str().unwrap_or_default();
                let position = open.iter().position(|call| call == id);
                open.remove(position.ok_or_else(|| format!("unexpected result of {id}"))?);
            }
            _ => {}
        }
    }
    if open.is_empty() { Ok(()) } else { Err(format!("calls without a result: {open:?}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(text: &str) -> Value {
        json!({"role": "user", "content": text})
    }

    fn called(id: &str) -> Value {
        json!({"role": "assistant", "tool_calls": [{"id": id}]})
    }

    fn result(id: &str) -> Value {
        json!({"role": "tool", "tool_call_id": id, "content": "ok"})
    }

    #[test]
    fn answer_depends_on_history() {
        let first = [user("Task c1 m1: append read.")];
        let (call, answer, problem) = next_answer(&first).expect("an answer");
        assert_eq!((call.as_str(), problem), ("c1-m1-s1", None));
        assert!(answer[1].to_string().contains("c1-m1-s1-1"), "{answer:?}");
        let history = [
            user("Task c1 m1: append read."),
            called("c1-m1-s1-1"),
            result("c1-m1-s1-1"),
            called("c1-m1-s2-1"),
            result("c1-m1-s2-1"),
        ];
        let (call, answer, problem) = next_answer(&history).expect("an answer");
        assert_eq!((call.as_str(), problem), ("c1-m1-s3", None));
        assert!(answer[0].to_string().contains("Finished c1 m1."), "{answer:?}");
    }

    #[test]
    fn incomplete_history_is_a_problem() {
        let (one, two) = (user("Task c1 m1: append."), user("Task c1 m2: append."));
        let call = || called("c1-m1-s1-1");
        for history in [
            vec![two.clone()],
            vec![one.clone(), call()],
            vec![one.clone(), call(), two],
            vec![one.clone(), result("c1-m1-s1-1")],
            vec![one.clone(), call(), result("c1-m1-s1-1"), result("c1-m1-s1-1")],
            vec![one, called("c1-m1-s2-1"), result("c1-m1-s2-1")],
        ] {
            assert!(check_history(&history).is_err(), "{history:?}");
        }
    }
}
