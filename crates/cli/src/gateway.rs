//! `rockbot gateway`: the bearer tokens of a gateway.

use std::path::PathBuf;

use rockbot_gateway::{FaceName, NamePatterns, Right, Token, TokenError, TokenFile};
use rockbot_service::exit;
use serde_json::json;

use crate::{
    arguments::{Gateway, NewToken, TokenCommand, TokensFile},
    failure::{Failure, Outcome},
    print::{note, outln},
    render,
    settings::Settings,
};

pub(crate) fn run(settings: &Settings, command: Gateway, json: bool) -> Outcome {
    let Gateway::Token(command) = command;
    match command {
        TokenCommand::New(arguments) => create(settings, arguments, json),
        TokenCommand::List { file } => list(&path(settings, &file)?, json),
        TokenCommand::Revoke { name, file } => {
            let path = path(settings, &file)?;
            let mut file = TokenFile::read(&path).map_err(failure)?;
            if !file.revoke(&name) {
                let shown = render::path(&path);
                let cause = anyhow::anyhow!("{shown} has no token {name:?}; list them first");
                return Err(Failure { code: exit::ANSWERED_WITH_ERROR, cause });
            }
            file.write(&path).map_err(failure)?;
            outln!("revoked {name}")?;
            Ok(exit::OK)
        }
    }
}

fn create(settings: &Settings, arguments: NewToken, json: bool) -> Outcome {
    let path = path(settings, &arguments.file)?;
    let NewToken { name, faces, rights, agents, tools, requests_per_minute, .. } = arguments;
    let faces = faces.into_iter().map(FaceName::from).collect();
    let (token, secret) = Token::generate(&name, faces).map_err(failure)?;
    let token = Token {
        rights: rights.into_iter().map(Right::from).collect(),
        agents: NamePatterns::new(agents),
        tools: NamePatterns::new(tools),
        requests_per_minute,
        ..token
    };
    let mut file = TokenFile::read_if_present(&path).map_err(failure)?;
    file.add(token).map_err(failure)?;
    file.write(&path).map_err(failure)?;
    if json {
        outln!("{}", render::json(&json!({"name": name, "token": secret, "file": path})))?;
    } else {
        note!("wrote {}; the token cannot be shown again:", render::path(&path));
        outln!("{secret}")?;
    }
    Ok(exit::OK)
}

fn list(path: &std::path::Path, json: bool) -> Outcome {
    let TokenFile { tokens } = TokenFile::read(path).map_err(failure)?;
    if json {
        let entries: Vec<_> = tokens.iter().map(entry).collect();
        outln!("{}", render::json(&json!(entries)))?;
        return Ok(exit::OK);
    }
    let rows = tokens.iter().map(|token| {
        let joined = |names: Vec<&str>| names.join(" ");
        vec![
            token.name.clone(),
            joined(token.faces.iter().map(|face| face.as_str()).collect()),
            joined(token.rights.iter().map(|right| right.as_str()).collect()),
            render::clean(&joined(token.agents.iter().collect())),
            render::clean(&joined(token.tools.iter().collect())),
            token.requests_per_minute.map(|limit| limit.to_string()).unwrap_or_default(),
            render::clean(&token.created),
        ]
    });
    let headings = ["token", "faces", "rights", "agents", "tools", "per minute", "created"];
    outln!("{}", render::table(&headings, rows))?;
    Ok(exit::OK)
}

fn entry(token: &Token) -> serde_json::Value {
    json!({
        "name": token.name,
        "faces": token.faces,
        "rights": token.rights,
        "agents": token.agents,
        "tools": token.tools,
        "requestsPerMinute": token.requests_per_minute,
        "created": token.created,
    })
}

/// Returns the path of the file: that of the option, or of the configuration.
fn path(settings: &Settings, file: &TokensFile) -> Result<PathBuf, Failure> {
    let path = file.path.as_ref().or(settings.gateway.tokens.as_ref());
    path.cloned().ok_or_else(|| {
        Failure::usage("no file of tokens; pass --file, or set gateway.tokens in the configuration")
    })
}

fn failure(error: TokenError) -> Failure {
    let code = match &error {
        TokenError::Read { .. } | TokenError::Invalid { .. } | TokenError::Refused(_) => {
            exit::USAGE
        }
        TokenError::Write { .. } => exit::IO,
        TokenError::Random(_) => exit::SOFTWARE,
    };
    Failure { code, cause: error.into() }
}
