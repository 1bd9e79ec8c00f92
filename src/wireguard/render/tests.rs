use super::*;
use crate::wireguard::config::{Endpoint, Host, Parameter, Peer};
use crate::wireguard::key::{PresharedKey, PublicKey, SecretKey};
use crate::wireguard::parse::parse;
use base64::Engine as _;

/// xorshift64*: enough to vary a few fields, the same on every run.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 16) % end
    }

    fn maybe<T>(&mut self, make: impl FnOnce(&mut Self) -> T) -> Option<T> {
        (self.below(2) == 1).then(|| make(self))
    }

    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        std::array::from_fn(|_| self.next().to_be_bytes()[0])
    }

    fn key(&mut self) -> String {
        base64::engine::general_purpose::STANDARD.encode(self.bytes::<32>())
    }

    fn port(&mut self) -> NonZeroU16 {
        NonZeroU16::new(u16::try_from(self.below(65535)).unwrap() + 1).unwrap()
    }

    /// A prefix of either family; never one that starts with 0, 127 or ff.
    fn prefix(&mut self) -> IpNet {
        let (four, six) = (self.bytes::<3>(), self.bytes::<14>());
        if self.below(2) == 0 {
            let [a, b, c] = four;
            IpNet::new([10, a, b, c].into(), u8::try_from(self.below(33)).unwrap()).unwrap()
        } else {
            let mut bytes = [0xfd; 16];
            bytes[2..].copy_from_slice(&six);
            IpNet::new(bytes.into(), u8::try_from(self.below(129)).unwrap()).unwrap()
        }
    }

    fn prefixes(&mut self, change: fn(IpNet) -> IpNet) -> Vec<IpNet> {
        let mut list = Vec::new();
        for _ in 0..=self.below(4) {
            let prefix = change(self.prefix());
            if !list.contains(&prefix) {
                list.push(prefix);
            }
        }
        list
    }

    fn config(&mut self) -> TunnelConfig {
        let host = match self.below(3) {
            0 => Host::Name(format!("de-{}.Provider.example", self.below(99))),
            1 => Host::Ip([192, 0, 2, self.bytes::<1>()[0]].into()),
            _ => Host::Ip(self.prefix().addr()),
        };
        let dialect = match self.below(3) {
            0 => Dialect::Amnezia(vec![
                Parameter {
                    section: Section::Interface,
                    name: "Jc",
                    value: self.below(9).to_string(),
                },
                Parameter { section: Section::Interface, name: "H1", value: "5-7".to_owned() },
                Parameter {
                    section: Section::Interface,
                    name: "I1",
                    value: "<b 0x1> <r 2>".to_owned(),
                },
                Parameter {
                    section: Section::Peer,
                    name: "AdvancedSecurity",
                    value: "on".to_owned(),
                },
            ]),
            _ => Dialect::Plain,
        };
        TunnelConfig {
            private_key: SecretKey::from_base64(&self.key()).unwrap(),
            listen_port: self.maybe(Self::port),
            fwmark: self.maybe(|dice| u32::try_from(dice.below(1 << 32)).unwrap().max(1)),
            addresses: self.prefixes(|prefix| prefix),
            dns: self.maybe(|_| vec!["10.0.0.1".into(), "lan".into()]).unwrap_or_default(),
            mtu: self.maybe(|dice| u16::try_from(1280 + dice.below(220)).unwrap()),
            peer: Peer {
                public_key: PublicKey::from_base64(&self.key()).unwrap(),
                preshared_key: self.maybe(|dice| PresharedKey::from_base64(&dice.key()).unwrap()),
                allowed_ips: self.prefixes(|prefix| prefix.trunc()),
                endpoint: Endpoint { host, port: self.port() },
                persistent_keepalive: self.maybe(Self::port),
            },
            dialect,
        }
    }
}

#[test]
fn c03_what_is_written_is_read_back_as_the_same_value() {
    let mut dice = Dice(0x5eed);
    for _ in 0..2000 {
        let config = dice.config();
        let text = wg_quick(&config);
        match parse(text.reveal()) {
            Ok(parsed) => assert_eq!(parsed.config, config, "{}", text.reveal()),
            Err(problems) => panic!("{problems:#?}\n{}", text.reveal()),
        }
    }
}

fn outside(endpoint: SocketAddr) -> Outside {
    Outside { endpoint, listen_port: None, fwmark: None }
}

fn sample() -> TunnelConfig {
    let text = "[Interface]\nPrivateKey = MDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMHE=\n\
                Address = 10.9.0.2\nDNS = 1.1.1.1\nMTU = 1380\nListenPort = 9\nFwMark = 7\n[Peer]\n\
                PublicKey = R2VvX2tjOAXl0HzTaXsw8+f8FS23Sz9BJPXCVtPKJHc=\nEndpoint = vpn.example:443\n\
                PresharedKey = MDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDM=\nAllowedIPs = 0.0.0.0/0, ::/0\n";
    parse(text).unwrap().config
}

/// Case C15.
#[test]
fn c04_setconf_gets_every_key_that_wg_knows_and_no_other() {
    let endpoint = "[2001:db8::1]:443".parse().unwrap();
    let text =
        setconf(&sample(), Outside { listen_port: NonZeroU16::new(51821), ..outside(endpoint) });
    assert_eq!(
        text.reveal(),
        "[Interface]\nPrivateKey = MDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMHE=\nListenPort = 51821\n\
         FwMark = off\n\n[Peer]\nPublicKey = R2VvX2tjOAXl0HzTaXsw8+f8FS23Sz9BJPXCVtPKJHc=\n\
         PresharedKey = MDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDM=\nAllowedIPs = 0.0.0.0/0, ::/0\n\
         Endpoint = [2001:db8::1]:443\nPersistentKeepalive = 0\n"
    );
    let without = setconf(&sample(), outside(endpoint));
    assert!(!without.reveal().contains("ListenPort"));
    let marked = Outside { fwmark: Some(Mark(0x4549_0001)), ..outside(endpoint) };
    assert!(setconf(&sample(), marked).reveal().contains("FwMark = 0x45490001\n"));
}

#[test]
fn setconf_of_amnezia_has_its_parameters_in_their_sections() {
    let mut config = sample();
    config.dialect = Dialect::Amnezia(vec![
        Parameter { section: Section::Peer, name: "AdvancedSecurity", value: "on".to_owned() },
        Parameter { section: Section::Interface, name: "Jc", value: "4".to_owned() },
    ]);
    let text = setconf(&config, outside("192.0.2.1:1".parse().unwrap()));
    let (interface, peer) = text.reveal().split_once("[Peer]").unwrap();
    assert!(interface.contains("Jc = 4\n") && !interface.contains("AdvancedSecurity"));
    assert!(peer.contains("AdvancedSecurity = on\n") && !peer.contains("Jc"));
}

#[test]
fn a_rendered_configuration_is_hidden_when_it_is_printed() {
    let text = wg_quick(&sample());
    assert_eq!(format!("{text:?}"), format!("({} bytes, hidden)", text.reveal().len()));
    assert!(!format!("{:?}", sample()).contains("MDAw"));
}
