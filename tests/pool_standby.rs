//! The standby tunnel over real WireGuard: a provider that nobody else reaches, and what never passes through it.

use crate::lab;

use lab::pool::{Pool, differences};
use lab::space::{self, Space};
use lab::{Lab, names, provider};
use serde_json::json;
use std::collections::BTreeSet;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// Where the provider has its list.
const LIST: (Ipv4Addr, u16) = (Ipv4Addr::new(192, 0, 2, 12), 8090);
/// The endpoint that the standby leads to; it is not on the list.
const STANDBY: usize = 3;

/// A list of endpoints 1 and 2 that is given to some addresses; the others' connections end without an answer.
struct Lists {
    served: Arc<Mutex<BTreeSet<IpAddr>>>,
    /// The source and the status of each answer.
    answers: Arc<Mutex<Vec<(IpAddr, u16)>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Lists {
    fn start(web: &Space) -> Self {
        let listener = web.inside(|| TcpListener::bind(LIST).unwrap());
        listener.set_nonblocking(true).unwrap();
        let served: Arc<Mutex<BTreeSet<IpAddr>>> = Arc::default();
        let answers: Arc<Mutex<Vec<(IpAddr, u16)>>> = Arc::default();
        let stop = Arc::<AtomicBool>::default();
        let (who, log, ended) = (Arc::clone(&served), Arc::clone(&answers), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                match listener.accept() {
                    Ok((stream, from)) if who.lock().unwrap().contains(&from.ip()) => {
                        if let Some(status) = answer(stream) {
                            log.lock().unwrap().push((from.ip(), status));
                        }
                    }
                    Ok(_) => {}
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
                        std::thread::sleep(Duration::from_millis(5));
                    }
                }
            }
        });
        Self { served, answers, stop, thread: Some(thread) }
    }

    /// Only who comes by this endpoint is answered.
    fn only_by(&self, endpoint: usize) {
        *self.served.lock().unwrap() = [names::exit(endpoint).into()].into();
    }

    /// What was answered so far, and by which endpoint it was asked.
    fn answers(&self) -> Vec<(usize, u16)> {
        let answers = self.answers.lock().unwrap();
        let by = |ip: &IpAddr| names::endpoint_of(&ip.to_string()).unwrap_or(0);
        answers.iter().map(|(ip, status)| (by(ip), *status)).collect()
    }
}

impl Drop for Lists {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ended = self.thread.take().map(JoinHandle::join);
    }
}

/// Answers one request, and says how.
fn answer(mut stream: TcpStream) -> Option<u16> {
    stream.set_nonblocking(false).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
    let (mut text, mut buffer) = (Vec::new(), [0_u8; 2048]);
    while !text.windows(4).any(|four| four == b"\r\n\r\n") {
        let n = stream.read(&mut buffer).ok().filter(|n| *n > 0)?;
        text.extend_from_slice(&buffer[..n]);
    }
    let request = String::from_utf8_lossy(&text).to_lowercase();
    if request.contains("if-none-match: \"v1\"") {
        stream.write_all(b"HTTP/1.1 304 Not Modified\r\nConnection: close\r\n\r\n").ok()?;
        return Some(304);
    }
    let entry = |k: usize| json!({ "name": format!("p{k}"), "config": provider::config(k) });
    let body = json!([entry(1), entry(2)]).to_string();
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nETag: \"v1\"\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all((head + &body).as_bytes()).ok()?;
    Some(200)
}

/// Two slots, the provider's list over HTTP, and a standby.
fn with_standby<'a>(lab: &'a Lab, keep: &str) -> Pool<'a> {
    let folder = provider::write_configs(&lab.folder().join("standby"), [STANDBY]).remove(0);
    Pool::new(lab, |policy| {
        policy["slots"]["interfaces"] = json!(["vpn1", "vpn2"]);
        policy["provider"] = json!({ "http": {
            "url": format!("http://{}:{}/list.json", LIST.0, LIST.1), "timeout_sec": 3,
        } });
        policy["bootstrap"] = json!({ "wireguard": {
            "interface": "vpnboot", "config": folder, "keep": keep,
        } });
        policy["params"]["direct_grace_sec"] = json!(0);
        policy["params"]["bootstrap_retry_interval_sec"] = json!(0);
        policy["params"]["hmn_refresh_retry_interval_sec"] = json!(1);
        policy["params"]["bootstrap_strategy_order"] = json!(["wireguard", "direct"]);
    })
}

/// Steps until the machine stands there, and says whether the standby was seen up on the way.
fn until(pool: &Pool<'_>, state: &str) -> bool {
    let mut seen = false;
    for _ in 0..12 {
        let step = pool.step();
        seen |= is_up(pool.lab);
        if step.word("to") == state {
            return seen;
        }
    }
    panic!("{state} was not reached: {:#}", pool.status());
}

fn is_up(lab: &Lab) -> bool {
    lab.gw().devices().contains("vpnboot")
}

/// Makes the tunnel carry something, so that its server knows where the gateway is.
fn shake_hands(lab: &Lab) {
    let own = names::inner(STANDBY).to_string();
    let there = space::wait_until(Duration::from_secs(5), || {
        let mut ping = lab.gw().command("ping");
        ping.args(["-c", "1", "-W", "1", "-I", "vpnboot", &own]);
        ping.output().unwrap().status.success()
    });
    assert!(there, "the standby carries nothing");
}

/// Whether the standby's server gets an answer from the gateway by their tunnel.
fn is_let_in(lab: &Lab) -> bool {
    let pid = *lab.spaces().prov.pids().first().unwrap();
    let mut ping = space::enter(pid, "ping");
    let own = names::inner(STANDBY).to_string();
    ping.args(["-c", "2", "-i", "0.2", "-W", "1", "-I", &own, &names::tunnel(STANDBY).to_string()]);
    ping.output().unwrap().status.success()
}

#[test]
fn a_first_run_that_only_the_standby_can_feed_fills_the_pool_and_no_client_goes_by_it() {
    let lab = Lab::builder().clients(2).endpoints(3).masquerade().start();
    let lists = Lists::start(&lab.spaces().web);
    lists.only_by(STANDBY);
    let pool = with_standby(&lab, "standby");
    let bare = pool.kernel();
    let first = pool.step();
    assert_eq!(first.went(), (Some(0), "-", "FULL_POOL_REFRESH"), "{first:#?}");
    assert!(is_up(&lab));
    assert_eq!(lab.client(1).exit(), Some(names::WAN.to_string()), "clients are as they were");
    shake_hands(&lab);
    assert!(!is_let_in(&lab), "the provider has no business inside the gateway");
    let table = lab.gw().nft("list table inet egressctl_home");
    lab.gw().nft("delete table inet egressctl_home");
    assert!(is_let_in(&lab), "only the table keeps it out");
    let file = lab.folder().join("table.nft");
    std::fs::write(&file, table).unwrap();
    lab.gw().nft(&format!("-f {}", file.display()));

    until(&pool, "NORMAL");
    assert_eq!(lists.answers(), [(STANDBY, 200)], "asked once, and by the standby");
    let mark = lab.capture.mark();
    assert_eq!(BTreeSet::from_iter(pool.serves(2)), [1, 2].into());
    assert!(pool.step().is_steady());
    assert!(is_up(&lab) && !is_let_in(&lab));
    let status = pool.status();
    assert_eq!(status["standby"]["health"], "healthy", "{status:#}");
    assert_eq!(status["standby"]["endpoint"], format!("p{STANDBY}"));

    // A stranger's route into it takes no client along.
    let target = names::target(1);
    lab.gw().ip(&format!("route add {target}/32 dev vpnboot"));
    assert!(lab.client(1).endpoint().is_some_and(|endpoint| endpoint != STANDBY));
    lab.gw().ip(&format!("route del {target}/32 dev vpnboot"));
    assert_eq!(lab.capture.leaks_since(mark), []);

    // The same list once more costs a question, and is a full refresh.
    let asked = lab.gw().egressctl(&["refresh", "home"]);
    assert_eq!(asked.code, Some(0), "{}", asked.stderr);
    pool.step();
    until(&pool, "NORMAL");
    assert_eq!(lists.answers(), [(STANDBY, 200), (STANDBY, 304)]);
    assert_eq!(pool.status()["pool"]["generation"], 2);
    assert_eq!(BTreeSet::from_iter(pool.serves(2)), [1, 2].into());

    let down = lab.gw().egressctl(&["down", "home"]);
    assert_eq!(down.code, Some(0), "{}", down.stderr);
    assert_eq!(differences(&bare, &pool.kernel()), [""; 0], "nothing of it stays");
}

#[test]
fn one_that_is_down_is_up_while_it_is_needed_and_leads_out_of_direct() {
    let lab = Lab::builder().clients(2).endpoints(3).masquerade().start();
    let lists = Lists::start(&lab.spaces().web);
    lists.only_by(STANDBY);
    let pool = with_standby(&lab, "down");
    assert!(until(&pool, "NORMAL"), "it was up for the list");
    assert!(!is_up(&lab), "and is down again");
    assert_eq!(pool.status()["standby"]["health"], "down");
    assert_eq!(lists.answers(), [(STANDBY, 200)]);
    pool.serves(2);
    lab.drop(1);
    lab.drop(2);
    until(&pool, "BOOTSTRAP_RECOVERY");
    assert_eq!(lab.client(1).exit(), Some(names::WAN.to_string()), "on Direct, and not by it");
    lab.heal(1);
    lab.heal(2);
    assert!(until(&pool, "NORMAL"), "it was up again");
    assert!(!is_up(&lab));
    pool.serves(2);
}

#[test]
fn one_that_dies_is_healed_and_one_without_a_file_is_told_and_moves_nobody() {
    let lab = Lab::builder().clients(2).endpoints(3).start();
    let lists = Lists::start(&lab.spaces().web);
    lists.only_by(STANDBY);
    let pool = with_standby(&lab, "standby");
    until(&pool, "NORMAL");
    pool.step();
    let before = pool.tunnels();
    lab.gw().ip("link delete dev vpnboot");
    let healed = pool.step();
    assert_eq!(healed.went(), (Some(0), "NORMAL", "NORMAL"), "{healed:#?}");
    assert!(is_up(&lab));
    assert!(healed.report["reasons"].to_string().contains("put back"), "{healed:#?}");
    pool.others_go_on(&before, &["vpnboot"]);
    pool.step();
    assert_eq!(pool.status()["standby"]["health"], "healthy");

    // Another endpoint's file takes its place, and a spoilt one takes nothing away.
    let file = lab.folder().join("standby").join(format!("p{STANDBY}.conf"));
    let good = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, "[Interface]\nPrivateKey = no key\n").unwrap();
    let told = pool.step();
    assert_eq!(told.went(), (Some(0), "NORMAL", "NORMAL"));
    let why = pool.status()["standby"]["why"].to_string();
    assert!(why.contains("PrivateKey") && !why.contains("no key"), "{why}");
    assert!(is_up(&lab), "the tunnel that was made from it stays");
    std::fs::write(&file, good.replace("PersistentKeepalive = 25", "PersistentKeepalive = 20"))
        .unwrap();
    pool.step();
    assert!(lab.gw().wg("show vpnboot persistent-keepalive", "").contains("20"));
    pool.step();
    assert_eq!(pool.status()["standby"]["health"], "healthy");
    let copies = std::fs::read_dir(lab.gw().state_dir().join("home/pool/0")).unwrap().count();
    assert_eq!(copies, 1, "no copy that nobody needs stays");
    pool.others_go_on(&before, &["vpnboot"]);
    pool.serves(2);
    pool.nothing_leaked();
}
