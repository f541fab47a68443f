//! Writes what a broker must know of a fleet: its users, and what each may do. Run it with
//! `cargo xtask broker-users`.

mod passwords;

use std::{
    collections::BTreeMap,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail, ensure};
use rockbot_contracts::{AgentName, definitions::Fleet, topology::DEFAULT_NAMESPACE};

const HELP: &str = "\
Writes deploy/rabbitmq/definitions.json and users.md: the users of a fleet on RabbitMQ, and what
each may do.

Usage: cargo xtask broker-users [--agent NAME]... [--namespace NAME] [--vhost NAME]
                                [--passwords FILE] [--out DIR] [--check]

  --agent NAME      an agent of the fleet; once for each (default: the one in agents/assistant.md)
  --namespace NAME  the fleet's namespace (default: rockbot)
  --vhost NAME      the virtual host it lives in (default: /)
  --passwords FILE  lines of `USER PASSWORD`; users that are not in it get a password that is made
                    up and added. The file and the definitions, which then hold the hashes, are for
                    their owner's eyes only. Needs --out.
  --out DIR         where to write, instead of deploy/rabbitmq
  --check           write nothing, and fail when the files are not what would be written
";

#[derive(Default)]
struct Arguments {
    agents: Vec<AgentName>,
    namespace: Option<String>,
    vhost: Option<String>,
    passwords: Option<PathBuf>,
    out: Option<PathBuf>,
    check: bool,
    help: bool,
}

fn main() -> Result<()> {
    let arguments = parse(lexopt::Parser::from_env())?;
    if arguments.help {
        return Ok(std::io::stdout().write_all(HELP.as_bytes())?);
    }
    ensure!(
        arguments.passwords.is_none() || arguments.out.is_some(),
        "--passwords needs --out: hashes of passwords do not belong into the repository"
    );
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).context("no repository")?;
    let agents = match arguments.agents {
        none if none.is_empty() => vec![built_in_agent(root)?],
        named => named,
    };
    let namespace = arguments.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE);
    let fleet = Fleet::new(namespace, arguments.vhost.as_deref().unwrap_or("/"), agents)?;
    let hashes = match &arguments.passwords {
        Some(file) => passwords::hashes(file, fleet.users())?,
        None => BTreeMap::new(),
    };
    let definitions = format!("{:#}\n", fleet.definitions(&hashes));
    let users = format!(
        "# Who may do what\n\n\
         Written by `cargo xtask broker-users`, which also writes the permissions that RabbitMQ \
         keeps.\n`*` stands for one word. Everything that is not here is refused. Until RabbitMQ 4.2.5 \
         everybody looks at\nevery queue.\n\n{}",
        fleet.table()
    );
    let folder = arguments.out.unwrap_or_else(|| root.join("deploy").join("rabbitmq"));
    for (name, text) in [("definitions.json", &definitions), ("users.md", &users)] {
        let file = folder.join(name);
        if arguments.check {
            let there = fs::read_to_string(&file).unwrap_or_default();
            ensure!(there == *text, "{} is stale: run `cargo xtask broker-users`", file.display());
        } else if hashes.is_empty() {
            fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        } else {
            passwords::write_privately(&file, text)?;
        }
    }
    Ok(())
}

fn parse(mut parser: lexopt::Parser) -> Result<Arguments> {
    use lexopt::{
        ValueExt,
        prelude::{Long, Short},
    };
    let mut arguments = Arguments::default();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("agent") => arguments.agents.push(AgentName::new(parser.value()?.string()?)?),
            Long("namespace") => arguments.namespace = Some(parser.value()?.string()?),
            Long("vhost") => arguments.vhost = Some(parser.value()?.string()?),
            Long("passwords") => arguments.passwords = Some(parser.value()?.into()),
            Long("out") => arguments.out = Some(parser.value()?.into()),
            Long("check") => arguments.check = true,
            Long("help") | Short('h') => arguments.help = true,
            other => bail!("{}; try --help", other.unexpected()),
        }
    }
    Ok(arguments)
}

/// The name in the head of the definition that is built in.
fn built_in_agent(root: &Path) -> Result<AgentName> {
    let definition = fs::read_to_string(root.join("agents").join("assistant.md"))?;
    let names = definition.lines().filter_map(|line| line.strip_prefix("name = "));
    let name = names.map(|name| name.trim_matches('"')).next();
    Ok(AgentName::new(name.context("agents/assistant.md has no name")?)?)
}
