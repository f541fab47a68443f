//! What an IP address is: of the public network, of a private one, or never a server.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Where an address leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Anybody can reach it.
    Public,
    /// It belongs to this machine or its neighbourhood: dialled only where the operator says so.
    Private,
    /// No server of tools is there, whatever the operator says: the metadata services of clouds
    /// hand out credentials, and the rest (multicast, reserved, documentation) is no host.
    Never,
}

/// The metadata services of clouds, those that are not refused by their network already.
const METADATA_V4: [Ipv4Addr; 5] = [
    Ipv4Addr::new(169, 254, 169, 254),
    Ipv4Addr::new(169, 254, 170, 2),
    Ipv4Addr::new(169, 254, 170, 23),
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(168, 63, 129, 16),
];
const METADATA_V6: [Ipv6Addr; 2] = [
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23),
];

/// Says where an address leads; an IPv6 address that carries an IPv4 one leads where that leads.
pub(crate) fn reach(address: IpAddr) -> Reach {
    match canonical(address) {
        IpAddr::V4(address) => reach_v4(address),
        IpAddr::V6(address) => reach_v6(address),
    }
}

/// The IPv4 address inside an IPv6 one, for each of the ways to carry it; any other as it is.
pub(crate) fn canonical(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(v6) => carried_v4(v6).map_or(address, IpAddr::V4),
        IpAddr::V4(_) => address,
    }
}

fn reach_v4(address: Ipv4Addr) -> Reach {
    if METADATA_V4.contains(&address) {
        return Reach::Never;
    }
    match address.octets() {
        [10 | 127, ..]
        | [100, 64..=127, ..]
        | [169, 254, ..]
        | [172, 16..=31, ..]
        | [192, 168, ..]
        | [198, 18 | 19, ..] => Reach::Private,
        [0, ..]
        | [192, 0, 0 | 2, _]
        | [192, 88, 99, _]
        | [198, 51, 100, _]
        | [203, 0, 113, _]
        | [224..=255, ..] => Reach::Never,
        _ => Reach::Public,
    }
}

fn reach_v6(address: Ipv6Addr) -> Reach {
    if METADATA_V6.contains(&address) {
        return Reach::Never;
    }
    match address.segments() {
        // This host, unique local, link-local and the site-local of old.
        [0, 0, 0, 0, 0, 0, 0, 1] | [0xfc00..=0xfdff, ..] | [0xfe80..=0xfeff, ..] => Reach::Private,
        // A NAT64 of one's own leads into one's own network.
        [0x64, 0xff9b, 1, ..] => Reach::Private,
        // Teredo, ORCHID and the other special 2001::/23; documentation.
        [0x2001, 0..=0x1ff, ..] | [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => Reach::Never,
        [0x2000..=0x3fff, ..] => Reach::Public,
        _ => Reach::Never,
    }
}

fn carried_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let (high, low) = match address.segments() {
        // ::1 and :: are addresses of their own.
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
