//! Candidates tried against a real server in another namespace.

use crate::host_hands_space;

use egressctl::host::apply::Hands;
use egressctl::host::observe::{Eyes, observe};
use egressctl::kernel::diff::Means;
use egressctl::names::Interface;
use egressctl::observation::{
    AnyOrAll, Asker, Expect, Page, Pages, Question, Reading, Trial, TrialResult, Way,
};
use egressctl::plan::Backend;
use egressctl::url::Target;
use host_hands_space::{Space, conf, interface, key, may, name, pooled, public, shell};
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// The provider: one WireGuard server that knows the clients 1 to 4, with a page behind it.
fn provider(space: &Space, wire: &str) {
    let server = name("s");
    let peers = (1..=4)
        .map(|n| format!("[Peer]\nPublicKey = {}\nAllowedIPs = 10.9.{n}.2/32\n", public(n)))
        .collect::<Vec<_>>()
        .concat();
    let config =
        format!("[Interface]\nPrivateKey = {}\nListenPort = 51820\n{peers}", key(50).reveal());
    space.run(|| {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), config).unwrap();
        shell(&format!(
            "ip addr add 192.0.2.1/24 dev {wire} && ip link set {wire} up && \
             wireguard-go {server} >/dev/null 2>&1 && wg setconf {server} {} && \
             ip addr add 10.99.0.1/32 dev {server} && ip link set {server} up && \
             ip route add 10.9.0.0/16 dev {server}",
            file.path().display()
        ));
        let listener = TcpListener::bind("10.99.0.1:80").unwrap();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                thread::spawn(move || {
                    let mut head = [0; 1024];
                    let length = stream.read(&mut head).unwrap_or(0);
                    let head = String::from_utf8_lossy(head.get(..length).unwrap_or_default());
                    let text = if head.starts_with("GET /204 ") {
                        "HTTP/1.1 204 No Content\r\n\r\n".to_owned()
                    } else if head.starts_with("GET /large ") {
                        format!(
                            "HTTP/1.1 200 OK\r\nContent-Length: 3000\r\n\r\n{}",
                            "x".repeat(3000)
                        )
                    } else if head.starts_with("GET /slow ") {
                        thread::sleep(Duration::from_millis(1_500));
                        "HTTP/1.1 204 No Content\r\n\r\n".to_owned()
                    } else {
                        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nlogin".to_owned()
                    };
                    drop(stream.write_all(text.as_bytes()));
                });
            }
        });
    });
}

fn pages(path: &str, device: &Interface, timeout_ms: u64) -> Pages {
    let url = Target::try_from(format!("http://probe.example{path}")).unwrap();
    Pages {
        asker: Asker::Slot(device.clone()),
        turn: 0,
        way: Way::Device { device: device.clone(), mark: None },
        pages: vec![Page { url, addresses: vec!["10.99.0.1".parse().unwrap()] }],
        require: AnyOrAll::Any,
        expect: Expect::Status(vec![204]),
        timeout_ms,
        patience: None,
    }
}

fn trial(folder: &Path, own: u32, peer: u32, path: &str) -> Trial {
    let interface = interface(&name("t"));
    let endpoint = "192.0.2.1:51820";
    let text = conf(own, peer, &format!("10.9.{own}.2/24"), endpoint);
    let pages = pages(path, &interface, 3_000);
    Trial {
        name: format!("c{own}"),
        config: pooled(folder, &format!("{interface}.conf"), &text),
        means: Means {
            backend: Backend::Userspace("wireguard-go".to_owned()),
            tool: "wg".to_owned(),
        },
        endpoint: endpoint.parse().unwrap(),
        fwmark: None,
        addresses: vec![format!("10.9.{own}.2/32").parse().unwrap()],
        mtu: 1_400,
        large: Some(Pages {
            expect: Expect::Bytes(2_500),
            ..self::pages("/large", &interface, 3_000)
        }),
        pages,
        interface,
        handshake_ms: 1_000,
        retries: 1,
        warm: false,
    }
}

#[test]
fn candidates_are_tried_side_by_side_and_leave_nothing() {
    if !may() {
        return;
    }
    let (server, client) = (Space::new(), Space::new());
    let (near, far) = (name("v"), name("w"));
    shell(&format!(
        "ip -n {} link add {near} type veth peer name {far} netns {} && \
         ip -n {0} addr add 192.0.2.2/24 dev {near} && ip -n {0} link set {near} up",
        client.0, server.0
    ));
    provider(&server, &far);
    // Loose reverse paths want some route to whoever answers, as every gateway's main has one.
    shell(&format!("ip -n {} route add default via 192.0.2.1", client.0));
    client.run(|| {
        let folder = tempfile::tempdir().unwrap();
        let mut hands = Hands::new(folder.path().to_path_buf());
        hands.systemd = false;
        let mut trials = vec![
            trial(folder.path(), 1, 50, "/204"),
            // Nobody has the key of this peer.
            trial(folder.path(), 2, 51, "/204"),
            trial(folder.path(), 3, 50, "/login"),
            // Slower than a handshake may be, and still good.
            trial(folder.path(), 4, 50, "/slow"),
            trial(folder.path(), 5, 50, "/204"),
        ];
        trials[4].config.sha256 = "0".repeat(64);
        // A killed run has left this one behind.
        shell(&format!("wireguard-go {} >/dev/null 2>&1", trials[0].interface));
        let mut eyes = Eyes { folder: folder.path(), hands: &hands, may_change: true };
        let ask = |eyes: &Eyes<'_>, trials: &[Trial]| -> Vec<TrialResult> {
            let questions =
                trials.iter().map(|trial| Question::Trial(Box::new(trial.clone()))).collect();
            observe(questions, eyes)
                .unwrap()
                .into_iter()
                .map(|(_, reading)| {
                    let Reading::Trial(reading) = reading else { panic!("{reading:?}") };
                    reading.result
                })
                .collect()
        };
        let begun = Instant::now();
        let results = ask(&eyes, &trials);
        let took = begun.elapsed();
        assert!(matches!(results[0], TrialResult::Passed { latency_ms: 0..500 }), "{results:?}");
        let why = |index: usize| match &results[index] {
            TrialResult::Failed { why } | TrialResult::NotTried { why } => why.clone(),
            other @ (TrialResult::Passed { .. } | TrialResult::Assumed) => panic!("{other:?}"),
        };
        assert_eq!(why(1), "no handshake within 1000 ms");
        assert_eq!(why(2), "http://probe.example/login answered 200 with 5 bytes");
        assert!(
            matches!(results[3], TrialResult::Passed { latency_ms: 1_400..2_500 }),
            "{results:?}"
        );
        assert!(matches!(results[4], TrialResult::NotTried { .. }) && why(4).contains("listed"));
        assert!(took < Duration::from_secs(4), "{took:?}");
        // A daemon whose device went before it had begun may leave its socket, which wg sweeps away.
        let deadline = Instant::now() + Duration::from_secs(3);
        loop {
            let left =
                shell("wg show interfaces >/dev/null; ip -o link show; ls /var/run/wireguard");
            if !trials.iter().any(|trial| left.contains(trial.interface.as_str())) {
                break;
            }
            assert!(Instant::now() < deadline, "{left}");
            thread::yield_now();
        }

        // A path that eats large packets.
        let mut narrow = trial(folder.path(), 1, 50, "/204");
        if let Some(large) = &mut narrow.large {
            large.expect = Expect::Bytes(5_000);
        }
        let results = ask(&eyes, &[narrow]);
        let TrialResult::Failed { why } = &results[0] else { panic!("{results:?}") };
        assert_eq!(why, "http://probe.example/large answered 200 with 3000 bytes");

        let mut local = trial(folder.path(), 1, 50, "/204");
        local.pages.pages[0].addresses.clear();
        let results = ask(&eyes, &[local]);
        assert!(matches!(results[0], TrialResult::NotTried { .. }), "{results:?}");

        eyes.may_change = false;
        assert_eq!(ask(&eyes, &trials[..1]), [TrialResult::Assumed]);
    });
}
