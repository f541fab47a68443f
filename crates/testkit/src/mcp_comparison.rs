//! Comparison of MCP servers behind the program `rockbot` with the official Python client.
//!
//! The file needs no async runtime, so that `xtask` can include it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::broker::{ProcessGuard, StopSignal, tail, wait_before_poll};

/// File of the quick servers in the folder of the MCP peers: a JSON list of [`ComparedServer`].
pub const QUICK_SERVERS: &str = "servers.json";

/// The part of arguments and variables that stands for the server's working directory.
const FOLDER: &str = "{folder}";
/// Folders in the working directory, which is a Git repository.
const FOLDERS: [&str; 2] = [".git/objects", ".git/refs/heads"];
/// Files in the working directory of every server.
const FILES: [(&str, &str); 9] = [
    (".git/HEAD", "ref: refs/heads/main\n"),
    (".git/config", "[core]\n\trepositoryformatversion = 0\n"),
    ("eslint.config.cjs", "module.exports = [];\n"),
    (
        "pages.drawio",
        "<mxfile><diagram id=\"a\" name=\"Page\"><mxGraphModel/></diagram></mxfile>\n",
    ),
    ("notes.md", "# Notes\n\nbuy milk\n"),
    ("table.csv", "name,count\na,1\nb,2\n"),
    ("data.json", "{\"name\": \"a\", \"count\": 1}\n"),
    ("sum.js", "export const sum = (a, b) => a + b;\n"),
    (
        "api.json",
        r#"{"openapi": "3.0.3", "info": {"title": "Pets", "version": "1"},
"servers": [{"url": "http://127.0.0.1:9"}],
"paths": {"/pets": {"get": {"operationId": "listPets", "summary": "List pets",
"responses": {"200": {"description": "The pets"}}}}}}"#,
    ),
];

/// An installed server, and a harmless call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ComparedServer {
    /// Name in the table.
    pub name: String,
    /// Package with its version: `npm:name@1.2.3` or `pypi:name@1.2.3`.
    pub package: String,
    /// Program.
    pub command: PathBuf,
    /// Arguments of the program.
    pub args: Vec<String>,
    /// Variables of the program.
    pub env: BTreeMap<String, String>,
    /// Called tool.
    pub tool: String,
    /// Arguments of the call.
    pub arguments: Value,
}

/// The compared programs.
#[derive(Debug, Clone, Copy)]
pub struct Programs<'a> {
    /// `rockbot`.
    pub rockbot: &'a Path,
    /// `xtask/peers/mcp_client.py`.
    pub reference: &'a Path,
}

/// Observation of a server by a client.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Observation {
    /// Names of the tools.
    pub tools: BTreeSet<String>,
    /// Kinds of the content blocks of the result, in their order.
    pub kinds: Vec<String>,
    /// Set if the tool reported an error.
    pub is_error: bool,
    /// Set if the result has structured content.
    pub is_structured: bool,
    /// Time for the start, the list and the call.
    pub seconds: f64,
}

/// A server behind `rockbot` and with the reference client.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Comparison {
    /// Result with `rockbot`.
    pub rockbot: Observation,
    /// Tools that `rockbot` does not offer, with the reason that it reports.
    pub left_out: BTreeMap<String, String>,
    /// Revision of the protocol that `rockbot` negotiated.
    pub revision: String,
    /// Result with the reference client.
    pub reference: Observation,
}

impl Comparison {
    /// Returns what differs, and calls that failed. A tool that `rockbot` leaves out for a reason that it
    /// reports is no difference.
    #[must_use]
    pub fn differences(&self) -> Vec<String> {
        let Self { rockbot, reference, left_out, .. } = self;
        let mut differences = Vec::new();
        let known: BTreeSet<_> = rockbot.tools.iter().chain(left_out.keys()).cloned().collect();
        let mut names = |difference: BTreeSet<&String>, what: &str| {
            if !difference.is_empty() {
                differences.push(format!("{what}: {difference:?}"));
            }
        };
        names(reference.tools.difference(&known).collect(), "tools missing in rockbot");
        names(known.difference(&reference.tools).collect(), "tools in rockbot only");
        if rockbot.tools.is_empty() {
            differences.push("rockbot offers no tool".to_owned());
        }
        if rockbot.kinds != reference.kinds {
            differences.push(format!(
                "content {:?} in rockbot, {:?} in the reference client",
                rockbot.kinds, reference.kinds
            ));
        }
        if rockbot.is_structured != reference.is_structured {
            differences.push(format!(
                "structured content: {} in rockbot, {} in the reference client",
                rockbot.is_structured, reference.is_structured
            ));
        }
        for (client, observation) in [("rockbot", rockbot), ("the reference client", reference)] {
            if observation.is_error {
                differences.push(format!("the call failed in {client}"));
            }
        }
        differences
    }
}

/// Starts a server with each client, lists its tools and calls one. Each client has its own copy of the
/// working directory. `limit` is the time limit of each of the three programs that run.
///
/// # Errors
/// When the server cannot be started, listed or called by one of the clients.
pub fn compare(
    programs: Programs<'_>,
    server: &ComparedServer,
    limit: Duration,
) -> Result<Comparison> {
    let reference = observe_reference(programs.reference, server, limit)
        .context("with the reference client")?;
    let (rockbot, details) =
        observe_rockbot(programs.rockbot, server, limit).context("with rockbot")?;
    let rejected = details["rejectedTools"].as_array().into_iter().flatten();
    let left_out = rejected.map(|tool| (text(&tool["name"]), text(&tool["reason"]))).collect();
    let revision = text(&details["protocolVersion"]);
    Ok(Comparison { rockbot, left_out, revision, reference })
}

fn observe_reference(
    client: &Path,
    server: &ComparedServer,
    limit: Duration,
) -> Result<Observation> {
    let sandbox = Sandbox::new()?;
    let started_at = Instant::now();
    let target = sandbox.server(server);
    let arguments = sandbox.fill_value(&server.arguments);
    let steps = json!([{"list": "tools"}, {"call": server.tool, "arguments": arguments}]);
    let mut command = sandbox.command(client);
    command.args(["mcp", "auto", &target.to_string(), &steps.to_string()]);
    let printed = run(command, &sandbox, limit)?.succeeded()?;
    let results: Value = serde_json::from_str(&printed).context("the client printed no JSON")?;
    let seconds = started_at.elapsed().as_secs_f64();
    let Some(tools) = results[0].as_array() else { bail!("list of tools: {}", results[0]) };
    let result = &results[1]["result"];
    let Some(content) = result["content"].as_array() else { bail!("call: {}", results[1]) };
    let is_structured = result.get("structuredContent").is_some_and(|value| !value.is_null());
    let mut kinds: Vec<_> = content.iter().map(kind).collect();
    if kinds.is_empty() && is_structured {
        // RockBot quotes such content for the model.
        kinds.push("text".to_owned());
    }
    Ok(Observation {
        tools: tools.iter().map(|tool| text(&tool["name"])).collect(),
        kinds,
        is_error: result["isError"] == true,
        is_structured,
        seconds,
    })
}

/// Returns the kind of a content block in RockBot's terms: a link or an embedded resource is a resource,
/// and an embedded image is an image.
fn kind(block: &Value) -> String {
    let embedded = &block["resource"];
    let mime_type = embedded["mimeType"].as_str().unwrap_or_default();
    match block["type"].as_str().unwrap_or_default() {
        "resource_link" => "resource",
        "resource" if embedded["blob"].is_string() && mime_type.starts_with("image/") => "image",
        "resource" if embedded["blob"].is_string() && mime_type.starts_with("audio/") => "audio",
        other => other,
    }
    .to_owned()
}

/// Returns what `rockbot` gets, and its description of the server.
fn observe_rockbot(
    rockbot: &Path,
    server: &ComparedServer,
    limit: Duration,
) -> Result<(Observation, Value)> {
    let sandbox = Sandbox::new()?;
    let started_at = Instant::now();
    let entry = sandbox.server(server);
    let file = sandbox.home.join("mcp.json");
    fs::write(&file, json!({"mcpServers": {&server.name: entry}}).to_string())?;
    let mcp = |words: &[&str]| {
        let mut command = sandbox.command(rockbot);
        command.args(["--bus", "memory", "--json", "--mcp"]).arg(&file).arg("mcp").args(words);
        command
    };
    let described = run(mcp(&["describe", &server.name]), &sandbox, limit)?.succeeded()?;
    let details: Value = serde_json::from_str(&described).context("rockbot printed no JSON")?;
    let arguments = sandbox.fill_value(&server.arguments).to_string();
    let called = run(mcp(&["call", &server.name, &server.tool, &arguments]), &sandbox, limit)?;
    let Ok(result) = serde_json::from_str::<Value>(&called.out) else {
        bail!("call: {}", called.failure())
    };
    let Some(blocks) = result["blocks"].as_array() else { bail!("call: {result}") };
    let tools = details["tools"].as_array().into_iter().flatten();
    let observation = Observation {
        tools: tools.map(|tool| text(&tool["name"])).collect(),
        kinds: blocks.iter().map(|block| text(&block["type"])).collect(),
        is_error: result["ok"] != true,
        is_structured: !result["details"].is_null(),
        seconds: started_at.elapsed().as_secs_f64(),
    };
    Ok((observation, details))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The folders of a client and the server that it starts.
struct Sandbox {
    folder: tempfile::TempDir,
    home: PathBuf,
    work: PathBuf,
}

impl Sandbox {
    fn new() -> Result<Self> {
        let folder = tempfile::tempdir().context("cannot create a folder for a server")?;
        // Some servers compare paths without symbolic links.
        let root = folder.path().canonicalize()?;
        let (home, work) = (root.join("home"), root.join("work"));
        fs::create_dir(&home)?;
        for name in FOLDERS {
            fs::create_dir_all(work.join(name))?;
        }
        for (name, text) in FILES {
            fs::write(work.join(name), text)?;
        }
        Ok(Self { folder, home, work })
    }

    fn fill(&self, text: &str) -> String {
        text.replace(FOLDER, &self.work.to_string_lossy())
    }

    /// Returns the command of a server that works in these folders. Both clients take it in this form.
    fn server(&self, server: &ComparedServer) -> Value {
        json!({
            "command": server.command, "args": self.fill_value(&json!(server.args)),
            "env": self.fill_value(&json!(server.env)), "cwd": self.work,
        })
    }

    fn fill_value(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => json!(self.fill(text)),
            Value::Array(items) => items.iter().map(|item| self.fill_value(item)).collect(),
            Value::Object(fields) => {
                let filled =
                    fields.iter().map(|(key, value)| (key.clone(), self.fill_value(value)));
                Value::Object(filled.collect())
            }
            other => other.clone(),
        }
    }

    /// Returns a program whose environment has only `PATH`, `HOME` and `TMPDIR`.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.work).env_clear().env("HOME", &self.home);
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("TMPDIR", self.folder.path());
        command
    }
}

/// The output of a program that ended.
struct Output {
    is_success: bool,
    out: String,
    /// The end of the standard error.
    error_tail: String,
}

impl Output {
    fn succeeded(self) -> Result<String> {
        if self.is_success { Ok(self.out) } else { bail!("{}", self.failure()) }
    }

    fn failure(&self) -> String {
        format!("the program failed:\n{}\n{}", self.out.trim_end(), self.error_tail)
    }
}

/// Runs a program, and stops it with everything that it started at the time limit.
fn run(mut command: Command, sandbox: &Sandbox, limit: Duration) -> Result<Output> {
    let (out, err) = (sandbox.home.join("out"), sandbox.home.join("err"));
    command.stdin(Stdio::null()).stdout(File::create(&out)?).stderr(File::create(&err)?);
    let mut guard = ProcessGuard::start(StopSignal::Kill, None)?;
    let program = command.get_program().to_owned();
    let mut child = command
        .process_group(0)
        .spawn()
        .with_context(|| format!("cannot start {}", program.display()))?;
    guard.watch(&child)?;
    let deadline = Instant::now() + limit;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            guard.dismiss();
            break Some(status);
        }
        if Instant::now() >= deadline {
            guard.release();
            child.wait()?;
            break None;
        }
        wait_before_poll();
    };
    let Some(status) = status else {
        bail!("{} took more than {limit:?}:\n{}", program.display(), tail(&err))
    };
    let text = String::from_utf8_lossy(&fs::read(&out)?).into_owned();
    Ok(Output { is_success: status.success(), out: text, error_tail: tail(&err) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observation(tools: &[&str], kinds: &[&str]) -> Observation {
        let owned = |texts: &[&str]| texts.iter().map(ToString::to_string).collect::<Vec<_>>();
        Observation {
            tools: owned(tools).into_iter().collect(),
            kinds: owned(kinds),
            is_error: false,
            is_structured: false,
            seconds: 0.0,
        }
    }

    fn comparison(rockbot: Observation, reference: Observation) -> Comparison {
        let left_out = [("bad".to_owned(), "its schema is not usable".to_owned())].into();
        Comparison { rockbot, left_out, revision: String::new(), reference }
    }

    #[test]
    fn tool_left_out_for_a_reason_is_no_difference() {
        let reference = observation(&["a", "bad"], &["text"]);
        let equal = comparison(observation(&["a"], &["text"]), reference.clone());
        assert_eq!(equal.differences(), Vec::<String>::new());
        let missing = observation(&["a", "bad", "b"], &["text"]);
        let differences = comparison(observation(&["a"], &["text"]), missing).differences();
        assert_eq!(differences, [r#"tools missing in rockbot: {"b"}"#]);
        let more = comparison(observation(&["a", "c"], &["text"]), reference).differences();
        assert_eq!(more, [r#"tools in rockbot only: {"c"}"#]);
    }

    #[test]
    fn other_content_and_failed_calls_are_differences() {
        let mut rockbot = observation(&["bad"], &["text"]);
        rockbot.is_error = true;
        rockbot.is_structured = true;
        let differences =
            comparison(rockbot, observation(&["bad"], &["text", "image"])).differences();
        assert_eq!(differences.len(), 3, "{differences:?}");
        assert!(differences[2].contains("failed in rockbot"), "{differences:?}");
    }

    #[test]
    fn kinds_are_those_of_rockbot() {
        let image = json!({"type": "resource", "resource": {"blob": "", "mimeType": "image/png"}});
        let text = json!({"type": "resource", "resource": {"text": "", "mimeType": "image/png"}});
        let link = json!({"type": "resource_link", "uri": "a:b"});
        assert_eq!([image, text, link].each_ref().map(kind), ["image", "resource", "resource"]);
    }

    #[test]
    fn folder_is_filled_in_everywhere() {
        let sandbox = Sandbox::new().unwrap();
        let filled = sandbox.fill_value(&json!({"a": ["{folder}/x", 1], "b": {"c": "{folder}"}}));
        let work = sandbox.work.to_str().unwrap();
        assert_eq!(filled, json!({"a": [format!("{work}/x"), 1], "b": {"c": work}}));
    }
}
