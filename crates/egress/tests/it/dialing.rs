//! Addresses that must not be dialed, in the URL, in the name resolution and in redirects.

use std::sync::Arc;

use reqwest::{Method, Url};
use rockbot_egress::{
    AddressRefused, ClientOptions, DialPolicy, EgressError, Fetch, GuardedClient, RedirectRefused,
};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

use crate::server::{
    FakeNames, HOST, Trap, ok, path, policy, redirect, serve, serve_text, serve_tls, url,
};

/// Names on this machine that the policy does not allow.
const TRAP_NAMES: [&str; 5] =
    ["localhost", "127.0.0.1.nip.io", "7f000001.nip.io", "mapped.test", "nat64.test"];

fn names() -> Arc<FakeNames> {
    FakeNames::new([
        (HOST, &[&["127.0.0.1"]]),
        ("localhost", &[&["127.0.0.1", "::1"]]),
        ("127.0.0.1.nip.io", &[&["127.0.0.1"]]),
        ("7f000001.nip.io", &[&["127.0.0.1"]]),
        ("mapped.test", &[&["::ffff:127.0.0.1"]]),
        ("nat64.test", &[&["64:ff9b::7f00:1"]]),
        ("metadata.test", &[&["169.254.169.254"]]),
        ("rebind.test", &[&["93.184.215.14"], &["127.0.0.1"]]),
    ])
}

fn client(policy: DialPolicy) -> GuardedClient {
    GuardedClient::new(Arc::new(policy), ClientOptions::default()).unwrap()
}

async fn fetch(client: &GuardedClient, url: Url) -> Result<String, EgressError> {
    Ok(Fetch::new(client, Method::GET, url).finish().await?.response.text().await?)
}

/// URLs of a port on this machine, in every way to write its address.
fn literal_urls(port: u16) -> Vec<String> {
    let hosts = [
        "127.0.0.1",
        "127.1",
        "127.0.0.1.",
        "2130706433",
        "0x7f000001",
        "0x7f.0.0.1",
        "0177.0.0.1",
        "017700000001",
        "%31%32%37.0.0.1",
        "127\u{3002}0\u{3002}0\u{3002}1",
        "\u{ff11}\u{ff12}\u{ff17}.0.0.1",
        "0.0.0.0",
        "0",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::127.0.0.1]",
        "[::ffff:0:127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "[64:ff9b:1::7f00:1]",
        "[2002:7f00:1::]",
    ];
    hosts.iter().map(|host| format!("http://{host}:{port}/")).collect()
}

#[tokio::test]
async fn refused_urls_do_not_reach_a_listener() {
    let trap = Trap::bind().await;
    let closed_port = Trap::bind().await;
    let allowed_ports = Some([80, 443, trap.port()].into());
    let client = client(DialPolicy { names: names(), allowed_ports, ..policy() });
    let port = trap.port();
    let mut urls = literal_urls(port);
    urls.extend(TRAP_NAMES.map(|name| format!("http://{name}:{port}/")));
    urls.extend([
        format!("http://user@{HOST}:{port}/"),
        format!("http://user:secret@{HOST}:{port}/"),
        format!("http://{HOST}@127.0.0.1:{port}/"),
        format!("http://{HOST}:{}/", closed_port.port()),
        format!("http://{HOST}:25/"),
        format!("ftp://{HOST}:{port}/"),
        format!("gopher://{HOST}:{port}/"),
        "file:///etc/passwd".to_owned(),
        format!("http://metadata.test:{port}/"),
        "http://169.254.169.254/latest/meta-data/".to_owned(),
        "http://[fd00:ec2::254]/latest/meta-data/".to_owned(),
    ]);
    assert!(urls.len() >= 36, "{}", urls.len());
    for text in &urls {
        let error = fetch(&client, url(text)).await.expect_err(text);
        assert!(matches!(error, EgressError::Refused(_)), "{text}: {error:?}");
        assert!(!error.was_sent(), "{text}");
    }
    let strict = DialPolicy { allow_plain_http: false, ..client.policy().as_ref().clone() };
    let plain = fetch(&self::client(strict), url(&format!("http://{HOST}:{port}/"))).await;
    assert!(matches!(plain, Err(EgressError::Refused(AddressRefused::Plain))), "{plain:?}");
    trap.assert_not_reached().await;
    closed_port.assert_not_reached().await;
}

/// Without this, the test above could pass with a listener that cannot be reached at all.
#[tokio::test]
async fn same_urls_reach_the_listener_when_allowed() {
    let port = serve_text(|_| ok("reached")).await;
    let allow_private = vec!["127.0.0.0/8".parse().unwrap()];
    let client = client(DialPolicy { names: names(), allow_private, ..policy() });
    let literals = literal_urls(port);
    let names = TRAP_NAMES[..3].iter().map(|name| format!("http://{name}:{port}/"));
    for text in literals.into_iter().take(11).chain(names) {
        assert_eq!(fetch(&client, url(&text)).await.unwrap(), "reached", "{text}");
    }
}

#[tokio::test]
async fn name_that_turns_private_after_the_check_is_refused() {
    let trap = Trap::bind().await;
    let client = client(DialPolicy { names: names(), ..policy() });
    let target = url(&format!("http://rebind.test:{}/", trap.port()));
    // The first lookup is public, as it was when a caller checked the name.
    assert_eq!(client.policy().check(&target), Ok(()));
    let first = client.policy().resolve("rebind.test", trap.port()).await.unwrap();
    assert_eq!(first[0].ip().to_string(), "93.184.215.14");
    let error = fetch(&client, target).await.expect_err("a private address");
    assert!(
        matches!(error, EgressError::Refused(AddressRefused::Private(_))) && !error.was_sent(),
        "{error:?}"
    );
    trap.assert_not_reached().await;
}

#[tokio::test]
async fn only_allowed_addresses_of_a_name_are_dialed() {
    let names = FakeNames::new([("mixed.test", &[&["10.0.0.1", "93.184.215.14", "127.0.0.1"]])]);
    let policy = DialPolicy { names, ..policy() };
    let found = policy.resolve("mixed.test", 443).await.unwrap();
    assert_eq!(found, ["93.184.215.14:443".parse().unwrap()]);
}

#[tokio::test]
async fn redirect_to_metadata_service_is_refused_at_every_hop() {
    let client = client(DialPolicy { names: names(), ..policy() });
    let port = serve_text(|head| match path(head).trim_start_matches('/').parse() {
        Ok(0) => redirect(302, "http://169.254.169.254/latest/meta-data/"),
        Ok(hops) => redirect(302, &format!("/{}", hops - 1_u8)),
        Err(_) => ok("not a hop"),
    })
    .await;
    for hops in 0..5 {
        let start = url(&format!("http://{HOST}:{port}/{hops}"));
        let error = fetch(&client, start).await.expect_err("a refused redirect");
        let EgressError::Redirect(RedirectRefused::Address(AddressRefused::Forbidden(host))) =
            &error
        else {
            panic!("{hops}: {error:?}")
        };
        assert_eq!(host, "169.254.169.254");
        assert!(error.was_sent(), "the first hop was sent");
    }
}

#[tokio::test]
async fn redirects_to_refused_urls_do_not_reach_a_listener() {
    let trap = Trap::bind().await;
    let client = client(DialPolicy { names: names(), ..policy() });
    let port = trap.port();
    let mut targets = literal_urls(port);
    // Raw header values are ASCII here.
    targets.retain(|target| target.is_ascii());
    targets.extend(TRAP_NAMES.map(|name| format!("http://{name}:{port}/")));
    targets.extend([
        format!("//127.0.0.1:{port}/"),
        format!("http://user:secret@{HOST}:{port}/"),
        format!("ftp://{HOST}:{port}/"),
        "file:///etc/passwd".to_owned(),
    ]);
    for target in targets {
        let location = target.clone();
        let start = serve_text(move |_| redirect(302, &location)).await;
        let start = url(&format!("http://{HOST}:{start}/"));
        let error = fetch(&client, start).await.expect_err(&target);
        let is_refused = match &error {
            EgressError::Redirect(RedirectRefused::Address(_)) => true,
            EgressError::AfterRedirect(error) => matches!(**error, EgressError::Refused(_)),
            _ => false,
        };
        assert!(is_refused && error.was_sent(), "{target}: {error:?}");
    }
    trap.assert_not_reached().await;
}

#[tokio::test]
async fn redirect_from_https_to_http_is_refused() {
    let trap = Trap::bind().await;
    let location = format!("http://{HOST}:{}/", trap.port());
    let (port, certificate) = serve_tls(move |_, mut connection| {
        let response = redirect(302, &location);
        async move {
            let _ = connection.write_all(response.as_bytes()).await;
            let _ = connection.shutdown().await;
        }
    })
    .await;
    let client = client(DialPolicy { names: names(), authorities: vec![certificate], ..policy() });
    let error = fetch(&client, url(&format!("https://{HOST}:{port}/"))).await.expect_err("http");
    assert!(matches!(error, EgressError::Redirect(RedirectRefused::Downgrade)), "{error:?}");
    trap.assert_not_reached().await;
}

#[tokio::test]
async fn errors_report_whether_something_was_sent() {
    let client = client(DialPolicy { names: names(), ..policy() });
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let closed = fetch(&client, url(&format!("http://{HOST}:{free}/"))).await.unwrap_err();
    assert!(matches!(closed, EgressError::Connect(_)) && !closed.was_sent(), "{closed:?}");

    let unknown = fetch(&client, url("http://unknown.test/")).await.unwrap_err();
    assert!(matches!(unknown, EgressError::Resolve(_)) && !unknown.was_sent(), "{unknown:?}");

    let (port, _) = serve_tls(|_, _| async {}).await;
    let untrusted = fetch(&client, url(&format!("https://{HOST}:{port}/"))).await.unwrap_err();
    assert!(matches!(untrusted, EgressError::Tls(_)) && !untrusted.was_sent(), "{untrusted:?}");

    // The connection closes after the request arrived.
    let port = serve(|_, connection| async move { drop(connection) }).await;
    let broken = fetch(&client, url(&format!("http://{HOST}:{port}/"))).await.unwrap_err();
    assert!(matches!(broken, EgressError::Connection(_)) && broken.was_sent(), "{broken:?}");

    let port = serve_text(|_| "SSH-2.0-OpenSSH_9.2\r\n\r\n".to_owned()).await;
    let other = fetch(&client, url(&format!("http://{HOST}:{port}/"))).await.unwrap_err();
    assert!(matches!(other, EgressError::NotHttp) && other.was_sent(), "{other:?}");
}

#[tokio::test]
async fn error_texts_hide_path_and_query() {
    let client = client(DialPolicy { names: names(), ..policy() });
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    for host in [HOST, "unknown.test", "127.0.0.1"] {
        let target = url(&format!("http://{host}:{free}/path-7?key=secret-7"));
        let error = fetch(&client, target).await.unwrap_err();
        let text = format!(
            "{error:?} {}",
            rockbot_egress::causes(&error)
                .fold(String::new(), |text, cause| text + &cause.to_string(),)
        );
        assert!(!text.contains("secret-7") && !text.contains("path-7"), "{text}");
    }
}
