//! TLS and client certificates.

use std::{collections::BTreeMap, fs, path::Path, time::Duration};

use rockbot_bus::{Bus, ConsumeError, Publication, PublishError, Subscription};
use rockbot_bus_rabbitmq::{RabbitBus, RabbitConfig, TlsFiles};
use rockbot_contracts::{AgentName, QueueSpec, definitions::Fleet, topology::tool_invoke};
use rockbot_testkit::{
    broker::{PrivateBroker, free_port},
    fixture::{TEST_TIMEOUT, text_message, wait_until},
    vhost::{PASSWORD, PASSWORD_HASH},
};
use tempfile::TempDir;

use crate::authority::Authority;

/// A broker that requires a client certificate and authenticates its common name.
struct TlsBroker {
    port: u16,
    folder: TempDir,
    _definitions: TempDir,
    _broker: PrivateBroker,
}

const FAR_FUTURE: i32 = 4000;

/// Writes the definitions of a fleet to a folder. Returns it, and the line of `rabbitmq.conf` that loads
/// them.
fn definitions() -> (TempDir, String) {
    let agents = ["assistant", "mallory"].map(|name| AgentName::new(name).expect("a name"));
    let fleet = Fleet::new("rockbot", "/", agents).expect("a fleet");
    let hashes: BTreeMap<_, _> =
        fleet.users().map(|user| (user, PASSWORD_HASH.to_owned())).collect();
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("definitions.json");
    fs::write(&file, fleet.definitions(&hashes).to_string()).expect("written");
    let line = format!("load_definitions = {}\n", file.display());
    (folder, line)
}

impl TlsBroker {
    async fn start() -> Self {
        let folder = TempDir::new().expect("a folder");
        let trusted = Authority::new(folder.path(), "trusted");
        trusted.server(&["127.0.0.1"]);
        trusted.user("assistant", "rockbot.agent.assistant", FAR_FUTURE);
        trusted.user("expired", "rockbot.agent.assistant", 2001);
        let foreign = Authority::new(folder.path(), "untrusted");
        foreign.user("foreign", "rockbot.agent.assistant", FAR_FUTURE);

        let (loaded, line) = definitions();
        let port = free_port().expect("a port");
        let file = |name: &str| folder.path().join(name).display().to_string();
        let configuration = format!(
            "{line}\
             listeners.ssl.1 = 127.0.0.1:{port}\n\
             ssl_options.cacertfile = {}\n\
             ssl_options.certfile = {}\n\
             ssl_options.keyfile = {}\n\
             ssl_options.verify = verify_peer\n\
             ssl_options.fail_if_no_peer_cert = true\n\
             auth_mechanisms.1 = PLAIN\n\
             auth_mechanisms.2 = EXTERNAL\n\
             ssl_cert_login_from = common_name\n",
            file("trusted.pem"),
            file("server.pem"),
            file("server.key"),
        );
        let start =
            move || PrivateBroker::start_with(&configuration, &["rabbitmq_auth_mechanism_ssl"]);
        let broker = tokio::task::spawn_blocking(start).await.expect("no panic");
        Self { port, folder, _definitions: loaded, _broker: broker.expect("a broker") }
    }

    /// Returns a URL for authentication by certificate.
    fn external(&self, user: &str) -> String {
        format!("amqps://{user}@127.0.0.1:{}/%2f?auth_mechanism=external", self.port)
    }

    fn files(&self, ca: &str, own: Option<&str>) -> TlsFiles {
        files(self.folder.path(), ca, own)
    }

    /// Returns the reason of a refused connection.
    async fn refused_reason(&self, url: String, tls: TlsFiles) -> String {
        let bus =
            RabbitBus::start(&RabbitConfig::new(url, "refused").with_tls(tls)).expect("usable");
        match bus.connected(Duration::from_secs(3)).await {
            Err(ConsumeError::Disconnected { reason }) => reason,
            other => panic!("expected a refusal: {other:?}"),
        }
    }
}

fn files(folder: &Path, ca: &str, own: Option<&str>) -> TlsFiles {
    let file = |name: &str, end: &str| Some(folder.join(format!("{name}.{end}")));
    TlsFiles {
        ca_file: file(ca, "pem"),
        cert_file: own.and_then(|own| file(own, "pem")),
        key_file: own.and_then(|own| file(own, "key")),
    }
}

async fn connected(url: String, tls: TlsFiles) -> RabbitBus {
    let bus = RabbitBus::start(&RabbitConfig::new(url, "tls").with_tls(tls)).expect("usable");
    bus.connected(TEST_TIMEOUT).await.expect("connected");
    bus
}

#[tokio::test]
async fn certificate_authenticates_only_its_user() {
    let broker = TlsBroker::start().await;
    let assistant = "rockbot.agent.assistant";
    let own = || broker.files("trusted", Some("assistant"));

    // By certificate alone, and by password with a certificate.
    let password = format!("amqps://{assistant}:{PASSWORD}@127.0.0.1:{}/%2f", broker.port);
    for url in [broker.external(assistant), password] {
        let bus = connected(url, own()).await;
        let published = bus.publish(Publication::mandatory(tool_invoke(), text_message("?"))).await;
        assert!(matches!(published, Err(PublishError::Unroutable { .. })), "{published:?}");
        let work = Subscription::new(QueueSpec::work(&tool_invoke()), 1);
        let refused = bus.consume(work).await.expect_err("not an agent's").to_string();
        assert!(refused.contains("ACCESS_REFUSED"), "{refused}");
    }

    // Messages carry the user of the URL, and the broker compares it with the certificate.
    let bus = connected(broker.external("rockbot.agent.mallory"), own()).await;
    let forged = bus.publish(Publication::mandatory(tool_invoke(), text_message("?"))).await;
    let forged = forged.expect_err("another user").to_string();
    assert!(forged.contains("PRECONDITION_FAILED"), "{forged}");

    let url = || broker.external(assistant);
    for (files, expected) in [
        (broker.files("untrusted", Some("assistant")), "from an untrusted authority"),
        (broker.files("trusted", None), "bus.tls.cert_file"),
        (broker.files("trusted", Some("expired")), "bus.tls.cert_file"),
        (broker.files("trusted", Some("foreign")), "bus.tls.cert_file"),
        (TlsFiles { ca_file: None, ..own() }, "from an untrusted authority"),
    ] {
        let reason = broker.refused_reason(url(), files.clone()).await;
        assert!(reason.contains(expected), "{files:?}: {reason}");
    }
    let elsewhere = url().replace("127.0.0.1", "localhost");
    let reason = broker.refused_reason(elsewhere, own()).await;
    assert!(reason.contains("certificate is for another host"), "{reason}");

    // A renewed certificate is used from the next attempt on.
    let renewed = broker.files("trusted", Some("renewed"));
    let copy = |from: &str, to: &str| {
        for end in ["key", "pem"] {
            let file = |name: &str| broker.folder.path().join(format!("{name}.{end}"));
            fs::copy(file(from), file(to)).expect("copied");
        }
    };
    copy("expired", "renewed");
    let config = RabbitConfig::new(url(), "renewed").with_tls(renewed);
    let bus = RabbitBus::start(&config).expect("usable");
    let early = bus.connected(Duration::from_secs(1)).await;
    assert!(early.is_err(), "connected with an expired certificate");
    copy("assistant", "renewed");
    wait_until("the renewed certificate", || bus.is_ready()).await;
}

#[test]
fn invalid_tls_configuration_fails_validation() {
    let folder = TempDir::new().expect("a folder");
    let authority = Authority::new(folder.path(), "trusted");
    authority.user("one", "one", FAR_FUTURE);
    authority.user("two", "two", FAR_FUTURE);
    fs::write(folder.path().join("empty.pem"), "nothing").expect("written");
    let path = |name: &str| Some(folder.path().join(name));
    let none = TlsFiles::default;
    let url = "amqps://user@127.0.0.1/%2f";
    for (url, tls, expected) in [
        (url, TlsFiles { ca_file: path("missing.pem"), ..none() }, "tls.ca_file"),
        (url, TlsFiles { ca_file: path("empty.pem"), ..none() }, "contains no certificate"),
        (url, TlsFiles { cert_file: path("one.pem"), ..none() }, "require each other"),
        (url, TlsFiles { key_file: path("one.key"), ..none() }, "require each other"),
        (
            url,
            TlsFiles { cert_file: path("one.pem"), key_file: path("one.pem"), ..none() },
            "contains no private key",
        ),
        (
            url,
            TlsFiles { cert_file: path("one.pem"), key_file: path("two.key"), ..none() },
            "the key belongs to the certificate",
        ),
        ("amqp://127.0.0.1", TlsFiles { ca_file: path("trusted.pem"), ..none() }, "amqps://"),
        (
            "amqps://127.0.0.1/%2f?auth_mechanism=external",
            none(),
            "requires the user of the certificate",
        ),
    ] {
        let validated = RabbitConfig::new(url, "check").with_tls(tls.clone()).validate();
        let error = validated.expect_err("invalid").to_string();
        assert!(error.contains(expected), "{tls:?}: {error}");
    }
    let whole = files(folder.path(), "trusted", Some("one"));
    RabbitConfig::new(url, "check").with_tls(whole).validate().expect("usable");
}

#[test]
fn guest_and_cleartext_passwords_are_unsafe_in_production() {
    for (url, expected) in [
        ("amqp://user:password@broker/%2f", vec!["amqps://"]),
        ("amqp://broker/%2f", vec!["amqps://", "guest"]),
        ("amqps://guest:guest@broker/%2f", vec!["guest"]),
        ("amqp://user:password@127.0.0.1/%2f", vec![]),
        ("amqp://user:password@[::1]/%2f", vec![]),
        ("amqp://user:password@localhost/%2f", vec![]),
        ("amqps://user:password@broker/%2f", vec![]),
        ("amqp://user:password@127.0.0.1.example.org/%2f", vec!["amqps://"]),
    ] {
        let problems = RabbitConfig::new(url, "check").unsafe_in_production();
        assert_eq!(problems.len(), expected.len(), "{url}: {problems:?}");
        for (problem, expected) in problems.iter().zip(expected) {
            assert!(problem.contains(expected), "{url}: {problem}");
            assert!(!problem.contains("password@"), "{problem}");
        }
    }
}
