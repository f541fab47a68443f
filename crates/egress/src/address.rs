//! Classification of IP addresses: public, private, or never dialed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The class of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AddressClass {
    /// Publicly reachable.
    Public,
    /// This machine or a private network: dialed only where the operator allows it.
    Private,
    /// Never dialed, regardless of the configuration: cloud metadata services, which issue credentials,
    /// and multicast, reserved and documentation addresses.
    Forbidden,
}

/// Cloud metadata services that are not in a forbidden network.
const METADATA_V4: [Ipv4Addr; 5] = [
    Ipv4Addr::new(169, 254, 169, 254),
    Ipv4Addr::new(169, 254, 170, 2),
    Ipv4Addr::new(169, 254, 170, 23),
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(168, 63, 129, 16),
];
const METADATA_V6: [Ipv6Addr; 3] = [
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23),
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
];

/// Classifies an address; an IPv6 address that embeds an IPv4 address is classified by that.
pub(crate) fn classify(address: IpAddr) -> AddressClass {
    match canonical(address) {
        IpAddr::V4(address) => classify_v4(address),
        IpAddr::V6(address) => classify_v6(address),
    }
}

/// Returns the IPv4 address embedded in an IPv6 address, for each way to embed it, or the address.
pub(crate) fn canonical(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(v6) => embedded_v4(v6).map_or(address, IpAddr::V4),
        IpAddr::V4(_) => address,
    }
}

fn classify_v4(address: Ipv4Addr) -> AddressClass {
    if METADATA_V4.contains(&address) {
        return AddressClass::Forbidden;
    }
    match address.octets() {
        [10 | 127, ..]
        | [100, 64..=127, ..]
        | [169, 254, ..]
        | [172, 16..=31, ..]
        | [192, 168, ..]
        | [198, 18 | 19, ..] => AddressClass::Private,
        [0, ..]
        | [192, 0, 0 | 2, _]
        | [192, 88, 99, _]
        | [198, 51, 100, _]
        | [203, 0, 113, _]
        | [224..=255, ..] => AddressClass::Forbidden,
        _ => AddressClass::Public,
    }
}

fn classify_v6(address: Ipv6Addr) -> AddressClass {
    if METADATA_V6.contains(&address) {
        return AddressClass::Forbidden;
    }
    match address.segments() {
        // Loopback, unique local, link-local and the deprecated site-local.
        [0, 0, 0, 0, 0, 0, 0, 1] | [0xfc00..=0xfdff, ..] | [0xfe80..=0xfeff, ..] => {
            AddressClass::Private
        }
        // A local-use NAT64 prefix leads into the local network.
        [0x64, 0xff9b, 1, ..] => AddressClass::Private,
        // Teredo, ORCHID and the other special 2001::/23; documentation.
        [0x2001, 0..=0x1ff, ..] | [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => {
            AddressClass::Forbidden
        }
        [0x2000..=0x3fff, ..] => AddressClass::Public,
        _ => AddressClass::Forbidden,
    }
}

fn embedded_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let (high, low) = match address.segments() {
        // ::1 and :: embed no address.
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => return None,
        // Mapped, compatible, translated (SIIT), and NAT64.
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low]
        | [0, 0, 0, 0, 0xffff, 0, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        // ISATAP, under any prefix.
        | [_, _, _, _, 0 | 0x200, 0x5efe, high, low]
        // 6to4.
        | [0x2002, high, low, ..] => (high, low),
        _ => return None,
    };
    Some(Ipv4Addr::from((u32::from(high) << 16) | u32::from(low)))
}
