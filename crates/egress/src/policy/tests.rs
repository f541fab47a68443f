//! Tests of the dial policy.

use super::*;

fn policy(allow_plain_http: bool, allow_private: &[&str]) -> DialPolicy {
    let targets = allow_private.iter().map(|text| text.parse().expect("target"));
    DialPolicy { allow_plain_http, allow_private: targets.collect(), ..DialPolicy::default() }
}

#[track_caller]
fn check(policy: &DialPolicy, rows: &[(&str, &str)]) {
    for (url, expected) in rows {
        let parsed = Url::parse(url).expect("a URL");
        let got = match policy.check(&parsed) {
            Ok(()) => "dialed",
            Err(AddressRefused::Scheme(_)) => "scheme",
            Err(AddressRefused::Plain) => "plain",
            Err(AddressRefused::UserInfo) => "user-info",
            Err(AddressRefused::NoHost) => "no host",
            Err(AddressRefused::Port(_)) => "port",
            Err(AddressRefused::Private(_)) => "private",
            Err(AddressRefused::Forbidden(_)) => "forbidden",
        };
        assert_eq!(got, *expected, "{url}");
    }
}

#[test]
fn default_policy_allows_only_tls_to_public_addresses() {
    check(
        &policy(false, &[]),
        &[
            ("https://example.com/mcp", "dialed"),
            ("wss://example.com/mcp", "dialed"),
            ("https://example.com:8443/mcp", "dialed"),
            ("https://93.184.215.14/", "dialed"),
            ("https://[2606:2800:21f:cb07::1]/", "dialed"),
            ("http://example.com/", "plain"),
            ("ws://example.com/", "plain"),
            ("http://127.0.0.1/", "plain"),
            ("http://localhost/", "plain"),
            ("ftp://example.com/", "scheme"),
            ("file:///etc/passwd", "scheme"),
            ("unix:/run/docker.sock", "scheme"),
            ("https://user@example.com/", "user-info"),
            ("https://user:secret@example.com/", "user-info"),
            ("https://:secret@example.com/", "user-info"),
            // Loopback, in every way to write it.
            ("https://127.0.0.1/", "private"),
            ("https://127.8.9.10/", "private"),
            ("https://127.1/", "private"),
            ("https://2130706433/", "private"),
            ("https://0x7f000001/", "private"),
            ("https://0x7f.0.0.1/", "private"),
            ("https://0177.0.0.1/", "private"),
            ("https://017700000001/", "private"),
            ("https://127.0.0.1./", "private"),
            ("https://[::1]/", "private"),
            // Private networks.
            ("https://10.0.0.1/", "private"),
            ("https://10.255.255.255/", "private"),
            ("https://0xa000001/", "private"),
            ("https://172.16.0.1/", "private"),
            ("https://172.31.255.255/", "private"),
            ("https://172.32.0.1/", "dialed"),
            ("https://192.168.1.1/", "private"),
            ("https://0300.0250.1.1/", "private"),
            ("https://100.64.0.1/", "private"),
            ("https://100.127.255.255/", "private"),
            ("https://100.128.0.1/", "dialed"),
            ("https://198.18.0.1/", "private"),
            ("https://169.254.1.1/", "private"),
            ("https://[fe80::1]/", "private"),
            ("https://[fec0::1]/", "private"),
            ("https://[fc00::1]/", "private"),
            ("https://[fd12:3456:789a::1]/", "private"),
            ("https://[64:ff9b:1::a00:1]/", "private"),
            // Metadata services.
            ("https://169.254.169.254/latest/meta-data/", "forbidden"),
            ("https://2852039166/", "forbidden"),
            ("https://0xa9fea9fe/", "forbidden"),
            ("https://0251.0376.0251.0376/", "forbidden"),
            ("https://169.254.170.2/", "forbidden"),
            ("https://100.100.100.200/", "forbidden"),
            ("https://168.63.129.16/", "forbidden"),
            ("https://[fd00:ec2::254]/", "forbidden"),
            ("https://[fd20:ce::254]/", "forbidden"),
            // Not the address of a public host.
            ("https://0.0.0.0/", "forbidden"),
            ("https://0/", "forbidden"),
            ("https://0.1.2.3/", "forbidden"),
            ("https://192.0.0.192/", "forbidden"),
            ("https://192.0.2.1/", "forbidden"),
            ("https://198.51.100.1/", "forbidden"),
            ("https://203.0.113.1/", "forbidden"),
            ("https://192.88.99.1/", "forbidden"),
            ("https://224.0.0.1/", "forbidden"),
            ("https://239.255.255.250/", "forbidden"),
            ("https://240.0.0.1/", "forbidden"),
            ("https://255.255.255.255/", "forbidden"),
            ("https://[::]/", "forbidden"),
            ("https://[ff02::1]/", "forbidden"),
            ("https://[2001:db8::1]/", "forbidden"),
            ("https://[2001::1]/", "forbidden"),
            ("https://[3fff::1]/", "forbidden"),
            ("https://[4000::1]/", "forbidden"),
            // IPv4 embedded in IPv6.
            ("https://[::ffff:127.0.0.1]/", "private"),
            ("https://[::ffff:a00:1]/", "private"),
            ("https://[::ffff:169.254.169.254]/", "forbidden"),
            ("https://[::ffff:93.184.215.14]/", "dialed"),
            ("https://[::127.0.0.1]/", "private"),
            ("https://[::ffff:0:127.0.0.1]/", "private"),
            ("https://[64:ff9b::7f00:1]/", "private"),
            ("https://[64:ff9b::a9fe:a9fe]/", "forbidden"),
            ("https://[64:ff9b::5db8:d70e]/", "dialed"),
            ("https://[2002:7f00:1::]/", "private"),
            ("https://[2002:a9fe:a9fe::1]/", "forbidden"),
            ("https://[2002:5db8:d70e::1]/", "dialed"),
            ("https://[2606:2800::5efe:10.0.0.1]/", "private"),
            ("https://[fe80::200:5efe:7f00:1]/", "private"),
        ],
    );
}

#[test]
fn allowed_private_targets_are_dialed_and_no_others() {
    check(
        &policy(true, &["127.0.0.0/8", "10.1.0.0/16", "MCP.internal.", "[::1]", "169.254.0.0/16"]),
        &[
            ("http://127.0.0.1:3000/", "dialed"),
            ("ws://127.0.0.1:3000/", "dialed"),
            ("http://[::ffff:127.0.0.1]/", "dialed"),
            ("http://[::1]/", "dialed"),
            ("https://10.1.255.255/", "dialed"),
            ("https://10.2.0.1/", "private"),
            ("https://192.168.0.1/", "private"),
            ("http://169.254.1.1/", "dialed"),
            // An allowed network does not include the metadata service.
            ("http://169.254.169.254/", "forbidden"),
            ("http://user@127.0.0.1/", "user-info"),
        ],
    );
}

#[test]
fn ports_outside_the_allowed_ones_are_refused() {
    let allowed_ports = Some([80, 443].into());
    check(
        &DialPolicy { allowed_ports, ..policy(true, &[]) },
        &[
            ("https://example.com/", "dialed"),
            ("https://example.com:443/", "dialed"),
            ("http://example.com/", "dialed"),
            ("http://example.com:443/", "dialed"),
            ("http://example.com:25/", "port"),
            ("https://example.com:22/", "port"),
            ("https://127.0.0.1:6379/", "port"),
            ("https://127.0.0.1/", "private"),
        ],
    );
}

#[test]
fn allowed_name_may_be_private_but_not_metadata_service() {
    let policy = policy(false, &["mcp.internal"]);
    let private = "10.0.0.7".parse().expect("address");
    let metadata = "169.254.169.254".parse().expect("address");
    assert_eq!(policy.check_address("MCP.internal.", private), Ok(()));
    assert!(policy.check_address("other.internal", private).is_err());
    assert!(policy.check_address("mcp.internal.evil.com", private).is_err());
    assert!(policy.check_address("mcp.internal", metadata).is_err());
}

#[tokio::test]
async fn name_with_only_private_addresses_is_refused() {
    let refused = policy(false, &[]).resolve("localhost", 443).await;
    assert!(matches!(refused, Err(EgressError::Refused(AddressRefused::Private(_)))));
    let allowed = policy(false, &["localhost"]).resolve("localhost", 443).await;
    assert!(!allowed.expect("allowed").is_empty());
}

#[tokio::test]
async fn unresolvable_name_is_resolve_error() {
    let failed = policy(false, &[]).resolve("no-such-host.invalid", 443).await;
    assert!(matches!(failed, Err(EgressError::Resolve(_))), "{failed:?}");
}
