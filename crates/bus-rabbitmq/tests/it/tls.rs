//! Certificates, ours and the broker's.

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

/// A broker that wants a certificate, and takes the user from its common name.
struct Encrypted {
    port: u16,
    folder: TempDir,
    _definitions: TempDir,
    _broker: PrivateBroker,
}

const FOR_EVER: i32 = 4000;

/// Writes the definitions of a fleet into a folder, and returns the line of `rabbitmq.conf` that loads
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

impl Encrypted {
    async fn start() -> Self {
        let folder = TempDir::new().expect("a folder");
        let ours = Authority::new(folder.path(), "ours");
        ours.server(&["127.0.0.1"]);
        ours.user("assistant", "rockbot.agent.assistant", FOR_EVER);
        ours.user("expired", "rockbot.agent.assistant", 2001);
        let theirs = Authority::new(folder.path(), "theirs");
        theirs.user("foreign", "rockbot.agent.assistant", FOR_EVER);

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
            file("ours.pem"),
            file("server.pem"),
            file("server.key"),
        );
        let start =
            move || PrivateBroker::start_with(&configuration, &["rabbitmq_auth_mechanism_ssl"]);
        let broker = tokio::task::spawn_blocking(start).await.expect("no panic");
        Self { port, folder, _definitions: loaded, _broker: broker.expect("a broker") }
    }

    /// By certificate alone.
    fn external(&self, user: &str) -> String {
        format!("amqps://{user}@127.0.0.1:{}/%2f?auth_mechanism=external", self.port)
    }

    fn files(&self, ca: &str, own: Option<&str>) -> TlsFiles {
        files(self.folder.path(), ca, own)
    }

    /// What is said when there is no connection.
    async fn refusal(&self, url: String, tls: TlsFiles) -> String {
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
    bus.connected(TEST_TIMEOUT).await.expect("let in");
    bus
}

#[tokio::test]
async fn a_certificate_lets_its_user_in_and_nobody_else() {
    let broker = Encrypted::start().await;
    let assistant = "rockbot.agent.assistant";
    let own = || broker.files("ours", Some("assistant"));

    // By certificate alone, and with a password beside it.
    let password = format!("amqps://{assistant}:{PASSWORD}@127.0.0.1:{}/%2f", broker.port);
    for url in [broker.external(assistant), password] {
        let bus = connected(url, own()).await;
        let asked = bus.publish(Publication::mandatory(tool_invoke(), text_message("?"))).await;
        assert!(matches!(asked, Err(PublishError::Unroutable { .. })), "{asked:?}");
        let work = Subscription::new(QueueSpec::work(&tool_invoke()), 1);
        let refused = bus.consume(work).await.expect_err("not an agent's").to_string();
        assert!(refused.contains("ACCESS_REFUSED"), "{refused}");
    }

    // The user of the URL signs the messages, and the broker knows whose certificate it is.
    let bus = connected(broker.external("rockbot.agent.mallory"), own()).await;
    let forged = bus.publish(Publication::mandatory(tool_invoke(), text_message("?"))).await;
    let forged = forged.expect_err("signed by another").to_string();
    assert!(forged.contains("PRECONDITION_FAILED"), "{forged}");

    let url = || broker.external(assistant);
    for (files, words) in [
        (broker.files("theirs", Some("assistant")), "from an untrusted authority"),
        (broker.files("ours", None), "bus.tls.cert_file"),
        (broker.files("ours", Some("expired")), "bus.tls.cert_file"),
        (broker.files("ours", Some("foreign")), "bus.tls.cert_file"),
        (TlsFiles { ca_file: None, ..own() }, "from an untrusted authority"),
    ] {
        let said = broker.refusal(url(), files.clone()).await;
        assert!(said.contains(words), "{files:?}: {said}");
    }
    let elsewhere = url().replace("127.0.0.1", "localhost");
    let said = broker.refusal(elsewhere, own()).await;
    assert!(said.contains("certificate is for another host"), "{said}");

    // A certificate that is renewed is used from the next attempt on.
    let renewed = broker.files("ours", Some("renewed"));
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
    assert!(early.is_err(), "let in with an expired certificate");
    copy("assistant", "renewed");
    wait_until("the renewed certificate", || bus.is_ready()).await;
}

#[test]
fn a_certificate_that_cannot_be_used_is_told_before_anything_starts() {
    let folder = TempDir::new().expect("a folder");
    let authority = Authority::new(folder.path(), "ours");
    authority.user("one", "one", FOR_EVER);
    authority.user("two", "two", FOR_EVER);
    fs::write(folder.path().join("empty.pem"), "nothing").expect("written");
    let path = |name: &str| Some(folder.path().join(name));
    let none = TlsFiles::default;
    let url = "amqps://user@127.0.0.1/%2f";
    for (url, tls, words) in [
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
        ("amqp://127.0.0.1", TlsFiles { ca_file: path("ours.pem"), ..none() }, "amqps://"),
        (
            "amqps://127.0.0.1/%2f?auth_mechanism=external",
            none(),
            "requires the user of the certificate",
        ),
    ] {
        let checked = RabbitConfig::new(url, "check").with_tls(tls.clone()).validate();
        let said = checked.expect_err("refused").to_string();
        assert!(said.contains(words), "{tls:?}: {said}");
    }
    let whole = files(folder.path(), "ours", Some("one"));
    RabbitConfig::new(url, "check").with_tls(whole).validate().expect("usable");
}

#[test]
fn production_takes_neither_guest_nor_a_password_in_clear() {
    for (url, problems) in [
        ("amqp://user:password@broker/%2f", vec!["amqps://"]),
        ("amqp://broker/%2f", vec!["amqps://", "guest"]),
        ("amqps://guest:guest@broker/%2f", vec!["guest"]),
        ("amqp://user:password@127.0.0.1/%2f", vec![]),
        ("amqp://user:password@[::1]/%2f", vec![]),
        ("amqp://user:password@localhost/%2f", vec![]),
        ("amqps://user:password@broker/%2f", vec![]),
        ("amqp://user:password@127.0.0.1.example.org/%2f", vec!["amqps://"]),
    ] {
        let said = RabbitConfig::new(url, "check").unsafe_in_production();
        assert_eq!(said.len(), problems.len(), "{url}: {said:?}");
        for (said, words) in said.iter().zip(problems) {
            assert!(said.contains(words), "{url}: {said}");
            assert!(!said.contains("password@"), "{said}");
        }
    }
}
