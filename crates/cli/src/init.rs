//! `rockbot init`: finds a model, tries it, and writes the configuration file.

mod candidate;
mod local_servers;
mod models;
mod section;
mod trial;

use std::io::{IsTerminal, Write};

use rockbot_llm::LlmConfig;
use rockbot_service::exit;

use self::{candidate::Candidate, section::StoredKey};
use crate::{
    arguments::Init,
    config_folder,
    failure::{Failure, OrExit, Outcome},
    print::{note, outln},
    render,
};

/// Longest answer to a question, in bytes.
const MAX_ANSWER_BYTES: u64 = 1024;

/// Runs the command.
pub(crate) async fn run(arguments: Init) -> Outcome {
    let folder = config_folder::require()?;
    let file = folder.join(config_folder::CONFIG_FILE);
    let shown = render::path(&file);
    if file.exists() && !arguments.force {
        return Err(Failure::usage(format!("{shown} exists; edit it, or replace it with --force")));
    }
    let environment = |name: &str| std::env::var(name).ok();
    let mut found = find(arguments.base_url.as_deref(), &environment).await?;
    let asks = !arguments.yes && std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    if !arguments.yes && !asks {
        return Err(Failure::usage(format!(
            "found: {}; no terminal to choose one, so add --yes to take the first, or --base-url",
            found.iter().map(|one| one.label.as_str()).collect::<Vec<_>>().join(", ")
        )));
    }
    let chosen = if asks && found.len() > 1 { choose(&found)? } else { 0 };
    let mut candidate = found.swap_remove(chosen);
    candidate.complete().await;
    let model = match arguments.model {
        Some(model) => Some(model),
        None if asks => choose_model(&candidate)?,
        None => candidate.models.first().cloned(),
    };
    if !arguments.no_trial {
        try_model(&candidate, model.clone(), &environment).await?;
    }
    let key = match &candidate.key {
        Some(key) if arguments.save_key || (asks && saves_key(key.variable)?) => {
            Some(StoredKey { file: folder.join(section::KEY_FILE), key: key.secret.clone() })
        }
        _ => None,
    };
    section::write(&folder, &candidate.base_url, model.as_deref(), key.as_ref())
        .or_exit(exit::IO)?;
    if let Some(key) = candidate.key.as_ref().filter(|_| key.is_none()) {
        note!("the key is not stored: it is read from {} each time", key.variable);
    }
    outln!("{shown} written; `rockbot chat` uses it")?;
    Ok(exit::OK)
}

/// Returns the server at a URL, or all that are found.
async fn find(
    base_url: Option<&str>,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<Vec<Candidate>, Failure> {
    if let Some(base_url) = base_url {
        return Ok(vec![Candidate::at(base_url, environment)?]);
    }
    let mut found = candidate::of_environment(environment);
    found.extend(local_servers::find().await);
    if found.is_empty() {
        return Err(Failure::usage(
            "no model was found: set OPENAI_API_KEY or OPENROUTER_API_KEY, start Ollama or llama.cpp on this \
             machine, or name a server with --base-url URL; then run `rockbot init` again",
        ));
    }
    Ok(found)
}

/// Sends a request to the model, as `rockbot chat` will.
async fn try_model(
    candidate: &Candidate,
    model: Option<String>,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<(), Failure> {
    let base_url = Some(candidate.base_url.clone());
    let config = LlmConfig { base_url, model, ..LlmConfig::default() };
    let resolved = rockbot_llm::resolve(&config, environment).or_exit(exit::USAGE)?;
    note!("trying {} …", render::clean(&resolved.origin));
    let trial = trial::run(resolved.model.as_ref()).await?;
    note!("it answered in {}: {}", render::duration(trial.elapsed), trial.answer);
    Ok(())
}

/// Asks which server to use.
fn choose(found: &[Candidate]) -> Result<usize, Failure> {
    for (number, candidate) in found.iter().enumerate() {
        note!("  {}  {}", number + 1, render::clean(&candidate.label));
    }
    loop {
        let answer = ask("which one? [1]: ")?;
        match answer.parse::<usize>() {
            _ if answer.is_empty() => return Ok(0),
            Ok(number) if (1..=found.len()).contains(&number) => return Ok(number - 1),
            _ => note!("expected a number from 1 to {}", found.len()),
        }
    }
}

/// Asks which model of a server to use.
fn choose_model(candidate: &Candidate) -> Result<Option<String>, Failure> {
    let Some(first) = candidate.models.first() else { return Ok(None) };
    if candidate.models.len() > 1 {
        let names: Vec<_> = candidate.models.iter().map(|name| render::clean(name)).collect();
        note!("  models: {}", names.join(", "));
    }
    let answer = ask(&format!("which model? [{}]: ", render::clean(first)))?;
    Ok(Some(if answer.is_empty() { first.clone() } else { answer }))
}

fn saves_key(variable: &str) -> Result<bool, Failure> {
    let answer = ask(&format!("store the key of {variable} in a private file? [Y/n]: "))?;
    Ok(matches!(answer.to_lowercase().as_str(), "" | "y" | "yes"))
}

/// Asks a question, and returns the trimmed answer. The end of the input ends the command.
fn ask(question: &str) -> Result<String, Failure> {
    use std::io::{BufRead, Read};
    let mut stderr = anstream::stderr().lock();
    write!(stderr, "{question}").and_then(|()| stderr.flush())?;
    let mut answer = String::new();
    let stdin = std::io::stdin().lock();
    let read = stdin.take(MAX_ANSWER_BYTES).read_line(&mut answer).or_exit(exit::IO)?;
    if read == 0 {
        return Err(Failure::usage("no answer; nothing was written"));
    }
    Ok(answer.trim().to_owned())
}
