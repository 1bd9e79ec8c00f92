//! Asks the system's resolver for addresses.
//!
//! **Invariant:** an answer or its failure is there at the deadline, whatever the resolver does; a
//! literal address is never asked for.

use std::collections::BTreeMap;
use std::net::{IpAddr, ToSocketAddrs as _};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How many names are asked for at a time: all names of a usual policy at once, and few enough
/// threads for a provider's list of hundreds.
const AT_A_TIME: usize = 32;

/// Enough for `getaddrinfo`, which on musl keeps its packets on the stack.
const STACK_BYTES: usize = 256 * 1024;

/// The addresses of each of `names`, in the resolver's order and without repeats, or why there are
/// none. All are asked for side by side. A thread that hangs past `deadline` is left behind; it
/// ends with this process.
#[must_use]
pub fn resolve(
    names: &[String],
    deadline: Duration,
) -> BTreeMap<String, Result<Vec<IpAddr>, String>> {
    let end = Instant::now().checked_add(deadline);
    let mut answers = BTreeMap::new();
    let mut asked = Vec::new();
    for name in names {
        if answers.contains_key(name) {
            continue;
        }
        let answer = if let Some(address) = literal(name) {
            Ok(vec![address])
        } else {
            asked.push(name.clone());
            Err(format!("no answer within {} ms", deadline.as_millis()))
        };
        answers.insert(name.clone(), answer);
    }
    let threads = asked.len().min(AT_A_TIME);
    let queue = Arc::new(Mutex::new(asked.into_iter()));
    let (sender, receiver) = channel();
    for _ in 0..threads {
        let (queue, sender) = (Arc::clone(&queue), sender.clone());
        let work = move || {
            while let Some(name) = queue.lock().ok().and_then(|mut names| names.next()) {
                let answer = look_up(&name);
                if sender.send((name, answer)).is_err() {
                    break;
                }
            }
        };
        let builder = std::thread::Builder::new().name("resolve".to_owned());
        // A thread that the kernel refuses leaves its share to the others, or to the deadline.
        drop(builder.stack_size(STACK_BYTES).spawn(work));
    }
    drop(sender);
    loop {
        let left = end.map_or(deadline, |end| end.saturating_duration_since(Instant::now()));
        if left.is_zero() {
            return answers;
        }
        // The channel closes when every name is answered.
        let Ok((name, answer)) = receiver.recv_timeout(left) else { return answers };
        answers.insert(name, answer);
    }
}

/// The address that `name` already is, with or without the brackets of a URL.
fn literal(name: &str) -> Option<IpAddr> {
    let bare = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(name);
    bare.parse().ok()
}

/// Asks for one name, which may take as long as the resolver likes.
fn look_up(name: &str) -> Result<Vec<IpAddr>, String> {
    let found = (name, 0_u16).to_socket_addrs().map_err(|why| {
        let text: String = why.to_string();
        text.strip_prefix("failed to lookup address information: ").unwrap_or(&text).to_owned()
    })?;
    let mut addresses: Vec<IpAddr> = Vec::new();
    for address in found.map(|socket| socket.ip()) {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    if addresses.is_empty() { Err("the name has no address".to_owned()) } else { Ok(addresses) }
}
