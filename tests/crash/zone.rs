//! A zone of host names in the world, at a server that takes updates, and nodes that live and die.
//!
//! **Invariant:** an update changes the zone only where it is as the update says, and then raises its number.

use crate::space::Space;
use crate::world::Shared;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Mutex, mpsc};

/// Host names with their addresses, and how often they were changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Zone {
    pub hosts: BTreeMap<String, BTreeSet<Ipv4Addr>>,
    pub serial: u32,
}

impl Zone {
    /// What the tool makes of a script; `false`: the zone was not as it said.
    pub fn update(&mut self, script: &str) -> bool {
        let (mut expected, mut wanted) = (BTreeMap::new(), BTreeMap::new());
        for line in script.lines() {
            let into = |all: &mut BTreeMap<String, BTreeSet<Ipv4Addr>>, name: &str, at: &str| {
                let name = name.trim_end_matches('.').to_owned();
                all.entry(name).or_default().insert(at.parse().expect("an address"));
            };
            match line.split_whitespace().collect::<Vec<_>>()[..] {
                ["prereq", "yxrrset", name, "A", at] => into(&mut expected, name, at),
                ["update", "add", name, _, "A", at] => into(&mut wanted, name, at),
                ["update", "delete", _, "A"] | ["server" | "zone" | "send", ..] => {}
                _ => panic!("what is {line}?"),
            }
        }
        let is_as_said =
            expected.iter().all(|(name, at)| self.hosts.get(name).is_some_and(|now| now == at));
        if is_as_said {
            self.hosts.extend(wanted);
            self.serial += 1;
        }
        is_as_said
    }

    /// The answer to a question, as bytes (RFC 1035).
    fn answer(&self, question: &[u8]) -> Vec<u8> {
        let (mut at, mut labels) = (12, Vec::new());
        while question[at] != 0 {
            let end = at + 1 + usize::from(question[at]);
            labels.push(String::from_utf8_lossy(&question[at + 1..end]).into_owned());
            at = end;
        }
        let is_of_zone = question[at + 2] == 6;
        let found = self.hosts.get(&labels.join(".")).filter(|_| !is_of_zone);
        let mut records: Vec<Vec<u8>> =
            found.into_iter().flatten().map(|at| at.octets().to_vec()).collect();
        if is_of_zone {
            records.push([&[0, 0][..], &self.serial.to_be_bytes(), &[0; 16]].concat());
        }
        // An answer of who keeps the zone, to one question.
        let mut bytes = [&question[..2], &[0x84, 0, 0, 1, 0]].concat();
        bytes.push(u8::try_from(records.len()).expect("there are few"));
        bytes.extend([0; 4]);
        bytes.extend(&question[12..at + 5]);
        for record in records {
            // The name is the question's; a minute to live.
            bytes.extend([0xc0, 12, 0, question[at + 2], 0, 1, 0, 0, 0, 60, 0]);
            bytes.push(u8::try_from(record.len()).expect("it is short"));
            bytes.extend(record);
        }
        bytes
    }
}

/// Answers questions about the world's zone until this process ends; gives where.
pub fn serve(space: &Space, world: &Shared) -> SocketAddr {
    let (space, world, (ready, is_ready)) = (space.clone(), world.clone(), mpsc::channel());
    std::thread::spawn(move || {
        space.inside(|| {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
            ready.send(listener.local_addr().expect("it is bound")).expect("somebody waits");
            for stream in listener.incoming().flatten() {
                // Whoever asked may be dead already.
                let _gone = talk(stream, &world);
            }
        });
    });
    is_ready.recv().expect("it listens")
}

fn talk(mut stream: TcpStream, world: &Shared) -> std::io::Result<()> {
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let mut question = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut question)?;
    let answer = world.world().zone.answer(&question);
    let length = u16::try_from(answer.len()).expect("it is short").to_be_bytes();
    stream.write_all(&[&length[..], &answer].concat())
}

/// The nodes that a policy may name, each with its address.
pub const NODES: [(&str, Ipv4Addr); 3] = [
    ("fi", Ipv4Addr::new(127, 0, 0, 41)),
    ("de", Ipv4Addr::new(127, 0, 0, 42)),
    ("us", Ipv4Addr::new(127, 0, 0, 43)),
];

/// Where nodes take connections.
const PORT: u16 = 8_443;

/// Nodes that take connections as long as they live. Nobody answers in them.
#[derive(Default)]
pub struct Nodes(Mutex<BTreeMap<&'static str, TcpListener>>);

impl Nodes {
    /// Lets those live that do not fail, and no other.
    pub fn live(&self, space: &Space, failing: &BTreeSet<String>) {
        let mut alive = self.0.lock().expect("no thread panicked");
        for (name, address) in NODES {
            // Those who came and went are forgotten, or the next ones would have to wait.
            while alive.get(name).is_some_and(|listener| listener.accept().is_ok()) {}
            if failing.contains(name) {
                alive.remove(name);
            } else if !alive.contains_key(name) {
                let listener = space.inside(|| TcpListener::bind((address, PORT)));
                let listener = listener.expect("the port is free");
                listener.set_nonblocking(true).expect("a socket may not block");
                alive.insert(name, listener);
            }
        }
    }
}
