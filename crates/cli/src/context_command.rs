//! `rockbot context`: named broker connections.

use std::path::Path;

use rockbot_bus_rabbitmq::RabbitConfig;
use rockbot_service::exit;
use secrecy::SecretString;
use serde_json::json;

use crate::{
    arguments::{Common, ContextCommand},
    config_folder,
    contexts::{Context, Contexts},
    failure::{Failure, OrExit, Outcome},
    print::{note, outln},
    render,
};

/// Runs a command. The configuration is not read, so that a context that prevents it can be removed.
pub(crate) fn run(command: ContextCommand, common: &Common) -> Outcome {
    let folder = config_folder::require()?;
    let mut contexts = Contexts::read(&folder).map_err(Failure::usage)?;
    match command {
        ContextCommand::List => return list(&contexts, common.json),
        ContextCommand::Add { name, namespace, production } => {
            let bus = broker_url(common)?;
            let config = RabbitConfig::from_secret(bus.clone(), "rockbot cli");
            if let [problem, ..] = config.validation_errors(production).as_slice() {
                return Err(Failure::usage(problem));
            }
            contexts.add(&name, Context { bus, namespace, production }).map_err(Failure::usage)?;
            // The first one is what the user wants to use.
            if contexts.contexts.len() == 1 {
                contexts.current = Some(name);
            }
        }
        ContextCommand::Use { none: true, .. } => contexts.current = None,
        ContextCommand::Use { name, .. } => {
            let name = name.unwrap_or_default();
            contexts.select(Some(&name)).map_err(Failure::usage)?;
            contexts.current = Some(name);
        }
        ContextCommand::Remove { name } => {
            if contexts.contexts.remove(&name).is_none() {
                return Err(Failure::usage(contexts.unknown(&name)));
            }
            contexts.current = contexts.current.filter(|current| *current != name);
        }
    }
    contexts.write(&folder).or_exit(exit::IO)?;
    report(&contexts, &folder);
    Ok(exit::OK)
}

/// Returns the URL of `--bus`, or that of the environment, where a password is not visible to other users.
fn broker_url(common: &Common) -> Result<SecretString, Failure> {
    let read = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let from_file = || {
        let file = read("ROCKBOT_BUS__URL_FILE")?;
        Some(std::fs::read_to_string(file).ok()?.trim().to_owned())
    };
    let url = common.bus.clone().or_else(|| read("ROCKBOT_BUS__URL")).or_else(from_file);
    let url = url.ok_or_else(|| {
        Failure::usage(
            "the URL of the broker is missing; add --bus amqp://USER:PASSWORD@HOST:5672/%2f, or set \
             ROCKBOT_BUS__URL or ROCKBOT_BUS__URL_FILE",
        )
    })?;
    if !url.starts_with("amqp://") && !url.starts_with("amqps://") {
        return Err(Failure::usage("the URL of the broker must start with amqp:// or amqps://"));
    }
    Ok(SecretString::from(url))
}

fn report(contexts: &Contexts, folder: &Path) {
    match &contexts.current {
        Some(name) => note!("commands use the context {name}"),
        None => {
            note!("commands use no context, and embed a fleet unless another bus is configured");
        }
    }
    note!("{}", render::dim(&Contexts::file(folder).display().to_string()));
}

fn list(contexts: &Contexts, json: bool) -> Outcome {
    let is_current = |name: &String| contexts.current.as_ref() == Some(name);
    if json {
        let entries = contexts.contexts.iter().map(|(name, context)| {
            json!({
                "name": name, "bus": context.shown_url(), "namespace": context.namespace,
                "production": context.production, "current": is_current(name),
            })
        });
        outln!("{}", render::json(&json!(entries.collect::<Vec<_>>())))?;
        return Ok(exit::OK);
    }
    if contexts.contexts.is_empty() {
        note!("there are no contexts; add one with `rockbot context add NAME --bus URL`");
        return Ok(exit::OK);
    }
    let rows = contexts.contexts.iter().map(|(name, context)| {
        let shown = if context.production { render::bad(name) } else { name.clone() };
        let user = RabbitConfig::from_secret(context.bus.clone(), "").user().unwrap_or_default();
        vec![
            if is_current(name) { "*" } else { "" }.to_owned(),
            shown,
            render::clean(&user),
            render::clean(&context.shown_url()),
            context.namespace.clone().unwrap_or_default(),
        ]
    });
    outln!("{}", render::table(&["", "context", "user", "bus", "namespace"], rows))?;
    Ok(exit::OK)
}
