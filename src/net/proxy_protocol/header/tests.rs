use std::net::SocketAddr;

use proptest::prelude::*;

use super::*;

fn proxied(client: &str, server: &str) -> ProxyHeader {
    let of = |text: &str| text.parse::<SocketAddr>().expect("an address").into();
    ProxyHeader::Proxied { client: of(client), server: of(server) }
}

fn binary_of(fixed: [u8; 4], rest: &[u8]) -> Vec<u8> {
    [SIGNATURE, &fixed, rest].concat()
}

/// Headers of both versions, and their meaning.
fn golden() -> Vec<(Vec<u8>, ProxyHeader)> {
    let v6 = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff";
    let longest = format!("PROXY TCP6 {v6} {v6} 65535 65535\r\n");
    let worst = format!("PROXY UNKNOWN {v6} {v6} 65535 65535\r\n");
    assert_eq!((longest.len(), worst.len()), (104, MAX_LINE));
    let [client, server] = ["/run/client", "/run/server"].map(|path| Address::Unix(path.into()));
    let mut paths = [0; 2 * PATH];
    paths[..11].copy_from_slice(b"/run/client");
    paths[PATH..PATH + 11].copy_from_slice(b"/run/server");
    let ipv4 = [192, 168, 0, 1, 192, 168, 0, 11, 0xdc, 0x04, 0x01, 0xbb];
    let ipv6: Vec<u8> = (0..36).collect();
    let tlv = [&ipv4[..], &[0x04, 0, 1, 7]].concat();
    let common = proxied("192.168.0.1:56324", "192.168.0.11:443");
    let broadcast = proxied("255.255.255.255:65535", "255.255.255.255:65535");
    vec![
        // The example of the specification, and its longest and shortest lines.
        (b"PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\r\n".to_vec(), common.clone()),
        (b"PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n".to_vec(), broadcast),
        (longest.into_bytes(), proxied(&format!("[{v6}]:65535"), &format!("[{v6}]:65535"))),
        (b"PROXY TCP6 ::1 ::ABCD 0 1\r\n".to_vec(), proxied("[::1]:0", "[::abcd]:1")),
        (b"PROXY UNKNOWN\r\n".to_vec(), ProxyHeader::Local),
        (worst.into_bytes(), ProxyHeader::Local),
        (binary_of([0x20, 0, 0, 0], &[]), ProxyHeader::Local),
        // The family of a proxy's own connection is ignored, and its addresses are skipped.
        (binary_of([0x20, 0xff, 0, 2], &[1, 2]), ProxyHeader::Local),
        (binary_of([0x21, 0x00, 0, 1], &[9]), ProxyHeader::Local),
        (binary_of([0x21, 0x12, 0, 12], &ipv4), ProxyHeader::Local),
        (binary_of([0x21, 0x11, 0, 12], &ipv4), common.clone()),
        (binary_of([0x21, 0x11, 0, 16], &tlv), common),
        (
            binary_of([0x21, 0x21, 0, 36], &ipv6),
            proxied(
                "[1:203:405:607:809:a0b:c0d:e0f]:8225",
                "[1011:1213:1415:1617:1819:1a1b:1c1d:1e1f]:8739",
            ),
        ),
        (binary_of([0x21, 0x31, 0, 216], &paths), ProxyHeader::Proxied { client, server }),
    ]
}

#[test]
fn headers_of_the_specification_are_read() {
    for (bytes, header) in golden() {
        let stream = [&bytes[..], b"payload\r\n"].concat();
        assert_eq!(ProxyHeader::parse(&stream), Ok(Some((header, bytes.len()))));
        assert!((0..bytes.len()).all(|end| ProxyHeader::parse(&bytes[..end]) == Ok(None)));
        check(&stream);
    }
}

#[test]
fn headers_are_sent_in_the_form_of_the_specification() {
    let golden = golden();
    for index in [0, 1, 2, 4] {
        let (bytes, header) = &golden[index];
        assert_eq!(&header.encode(ProxyVersion::V1), bytes);
    }
    for index in [6, 10, 12, 13] {
        let (bytes, header) = &golden[index];
        assert_eq!(&header.encode(ProxyVersion::V2), bytes);
    }
    // A mapped address is sent as the IPv4 address inside. If the families differ, the IPv4 address
    // is mapped.
    let mapped = proxied("[::ffff:10.0.0.1]:1", "10.0.0.2:2").encode(ProxyVersion::V1);
    assert_eq!(mapped, b"PROXY TCP4 10.0.0.1 10.0.0.2 1 2\r\n");
    let mixed = proxied("[::1]:1", "10.0.0.2:2").encode(ProxyVersion::V1);
    assert_eq!(mixed, b"PROXY TCP6 ::1 ::ffff:10.0.0.2 1 2\r\n");
    let client = "10.0.0.1:1".parse::<SocketAddr>().expect("an address").into();
    let two_kinds = ProxyHeader::Proxied { client, server: Address::Unix("/run/a".into()) };
    assert_eq!(two_kinds.encode(ProxyVersion::V1), b"PROXY UNKNOWN\r\n");
    assert_eq!(two_kinds.encode(ProxyVersion::V2), binary_of([0x21, 0, 0, 0], &[]));
}

#[test]
fn what_is_no_header_is_refused_with_field_value_and_limit() {
    let long = [&b"PROXY UNKNOWN "[..], &[b'x'; 93]].concat();
    let address = |fixed| binary_of(fixed, &[0; 12]);
    for (bytes, error) in [
        (b"GET /".to_vec(), "byte 0 of the stream is 0x47, which begins no header"),
        (b"PROXYX".to_vec(), "byte 5 of the stream is 0x58, which begins no header"),
        (b"\r\n\r\n\0\r\nQUIX".to_vec(), "byte 10 of the stream is 0x58, which begins no header"),
        (long, "length 108 exceeds 107"),
        (b"PROXY \r\n".to_vec(), "protocol \"\" is invalid"),
        (b"PROXY UNKNOWNS\r\n".to_vec(), "protocol \"UNKNOWNS\" is invalid"),
        (b"PROXY TCP4 ::1 ::1 1 2\r\n".to_vec(), "source address \"::1\" is invalid"),
        (
            b"PROXY TCP4 1.2.3.4 01.2.3.4 1 2\r\n".to_vec(),
            "destination address \"01.2.3.4\" is invalid",
        ),
        (b"PROXY TCP4 1.2.3.4 1.2.3.4 +80 2\r\n".to_vec(), "source port \"+80\" is invalid"),
        (b"PROXY TCP4 1.2.3.4 1.2.3.4 080 2\r\n".to_vec(), "source port \"080\" is invalid"),
        (
            b"PROXY TCP4 1.2.3.4 1.2.3.4 1 65536\r\n".to_vec(),
            "destination port \"65536\" is invalid",
        ),
        (b"PROXY TCP4 1.2.3.4 1.2.3.4 1\r\n".to_vec(), "destination port \"\" is invalid"),
        (
            b"PROXY TCP4 1.2.3.4 1.2.3.4 1 2 3\r\n".to_vec(),
            "field behind the ports \"3\" is invalid",
        ),
        (b"PROXY TCP6 \xff ::1 1 2\r\n".to_vec(), "source address \"\u{fffd}\" is invalid"),
        (address([0x11, 0x11, 0, 12]), "version \"1\" is invalid"),
        (address([0x22, 0x11, 0, 12]), "command \"2\" is invalid"),
        (address([0x21, 0x41, 0, 12]), "address family \"4\" is invalid"),
        (address([0x21, 0x13, 0, 12]), "transport \"3\" is invalid"),
        (address([0x21, 0x11, 0, 11]), "length 11 is below the 12 of its addresses"),
        (address([0x21, 0x11, 0x10, 0]), "length 4112 exceeds 4096"),
    ] {
        let found = ProxyHeader::parse(&bytes).expect_err("no header").to_string();
        assert_eq!(found, format!("PROXY header: {error}"));
        check(&bytes);
    }
}

/// Reads a header in the slowest and plainest way. `Err` stands for all errors.
fn naive(stream: &[u8]) -> Result<Option<(ProxyHeader, usize)>, ()> {
    if b"PROXY ".starts_with(stream) || SIGNATURE.starts_with(stream) {
        return Ok(None);
    }
    if stream.starts_with(b"PROXY ") {
        let text: String = stream.iter().take(MAX_LINE).map(|&byte| char::from(byte)).collect();
        let Some((line, _)) = text.split_once("\r\n") else {
            return if stream.len() < MAX_LINE { Ok(None) } else { Err(()) };
        };
        let words: Vec<_> = line.split(' ').collect();
        let header = match words[..] {
            ["PROXY", "UNKNOWN", ..] => ProxyHeader::Local,
            ["PROXY", family @ ("TCP4" | "TCP6"), client, server, from, to] => {
                let end = |ip: &str, port: &str| -> Result<Address, ()> {
                    let ip: IpAddr = ip.parse().map_err(drop)?;
                    let number: u16 = port.parse().map_err(drop)?;
                    let is_exact = number.to_string() == port && ip.is_ipv4() == (family == "TCP4");
                    is_exact.then(|| SocketAddr::new(ip, number).into()).ok_or(())
                };
                ProxyHeader::Proxied { client: end(client, from)?, server: end(server, to)? }
            }
            _ => return Err(()),
        };
        return Ok(Some((header, line.len() + 2)));
    }
    if !stream.starts_with(SIGNATURE) {
        return Err(());
    }
    // Zeros stand for those of the first 16 bytes that have not arrived.
    let mut fixed = stream.to_vec();
    fixed.resize(stream.len().max(FIXED), 0);
    let needed = match fixed[12..14] {
        _ if stream.len() < 14 => return Ok(None),
        [0x20, _] => 0,
        [0x21, 0x00..=0x02] => 0,
        [0x21, 0x10..=0x12] => 12,
        [0x21, 0x20..=0x22] => 36,
        [0x21, 0x30..=0x32] => 216,
        _ => return Err(()),
    };
    let length = usize::from(fixed[14]) * 256 + usize::from(fixed[15]);
    match stream.len() {
        ..16 => return Ok(None),
        _ if length < needed || length > MAX_BINARY - 16 => return Err(()),
        have if have < 16 + length => return Ok(None),
        _ => {}
    }
    let mut body = stream[16..].iter().copied();
    let mut take = |count| body.by_ref().take(count).collect::<Vec<_>>();
    let pair = |ips: [IpAddr; 2], ports: [Vec<u8>; 2]| {
        let ports = ports.map(|port| u16::from(port[0]) * 256 + u16::from(port[1]));
        ProxyHeader::Proxied {
            client: SocketAddr::new(ips[0], ports[0]).into(),
            server: SocketAddr::new(ips[1], ports[1]).into(),
        }
    };
    let header = match (stream[12], stream[13]) {
        (0x21, 0x11) => {
            let ips = [take(4), take(4)].map(|ip| <[u8; 4]>::try_from(ip).expect("4 bytes").into());
            pair(ips, [take(2), take(2)])
        }
        (0x21, 0x21) => {
            let ips = [take(16), take(16)];
            let ips = ips.map(|ip| <[u8; 16]>::try_from(ip).expect("16 bytes").into());
            pair(ips, [take(2), take(2)])
        }
        (0x21, 0x31) => {
            let path = |bytes: Vec<u8>| {
                let text = String::from_utf8_lossy(&bytes).into_owned();
                let path = match text.strip_prefix('\0') {
                    Some(name) if !name.trim_end_matches('\0').is_empty() => {
                        format!("\0{}", name.trim_end_matches('\0'))
                    }
                    Some(_) => String::new(),
                    None => text.split('\0').next().unwrap_or_default().to_owned(),
                };
                Address::Unix(path.into())
            };
            ProxyHeader::Proxied { client: path(take(108)), server: path(take(108)) }
        }
        _ => ProxyHeader::Local,
    };
    Ok(Some((header, 16 + length)))
}

/// Streams that begin like headers, as well as others.
fn streams() -> impl Strategy<Value = Vec<u8>> {
    let word = prop::sample::select(vec![
        "TCP4",
        "TCP6",
        "UNKNOWN",
        "1.2.3.4",
        "01.2.3.4",
        "::1",
        "::ffff:1.2.3.4",
        "0",
        "1",
        "+1",
        "65535",
        "65536",
        "",
        "x",
        "\r",
        "\n",
    ]);
    let line = (prop::collection::vec(word, 0..9), 0_usize..100).prop_map(|(words, more)| {
        format!("PROXY {}{}\r\npayload", words.join(" "), " ".repeat(more / 10)).into_bytes()
    });
    let family = prop::sample::select(vec![0x00, 0x11, 0x12, 0x21, 0x31, 0x32, 0x13, 0x41]);
    let command = prop::sample::select(vec![0x20, 0x21, 0x21, 0x21, 0x22, 0x11]);
    let length = prop::sample::select(vec![0, 11, 12, 36, 40, 215, 216, 230, 4080, 4081, 65535]);
    // Bytes of texts, so that paths are texts too.
    let body = prop::collection::vec(0_u8..0x80, 0..300);
    let binary = (command, family, length, body).prop_map(|(command, family, length, body)| {
        let [high, low] = u16::to_be_bytes(length);
        binary_of([command, family, high, low], &body)
    });
    let cut = (prop_oneof![line, binary], any::<prop::sample::Index>());
    let cut = cut.prop_map(|(mut stream, end)| {
        stream.truncate(end.index(stream.len() * 4).max(1));
        stream
    });
    prop_oneof![4 => cut, 1 => prop::collection::vec(any::<u8>(), 0..40)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_stream_is_read_as_by_the_naive_twin_under_every_cut(stream in streams()) {
        check(&stream);
        prop_assert_eq!(ProxyHeader::parse(&stream).map_err(drop), naive(&stream));
    }

    #[test]
    fn paths_and_addresses_come_back(
        client in "[a-z/]{0,108}", server in "[a-z]{0,107}",
        ips in any::<([u8; 16], [u8; 16])>(), ports in any::<(u16, u16)>(),
    ) {
        let unix = ProxyHeader::Proxied {
            client: Address::Unix(client.into()),
            server: Address::Unix(if server.is_empty() { server } else { format!("\0{server}") }.into()),
        };
        let tcp = ProxyHeader::Proxied {
            client: SocketAddr::new(IpAddr::from(ips.0).to_canonical(), ports.0).into(),
            server: SocketAddr::new(IpAddr::from(ips.1).to_canonical(), ports.1).into(),
        };
        for header in [unix, tcp] {
            let bytes = header.encode(ProxyVersion::V2);
            prop_assert_eq!(ProxyHeader::parse(&bytes), Ok(Some((header, bytes.len()))));
        }
    }
}
