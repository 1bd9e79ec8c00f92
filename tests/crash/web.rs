//! What answers behind the gateway's devices: pages and the provider.
//!
//! **Invariant:** an answer rests on what is loaded in the device that the request came by.

use crate::gateway::DEVICES;
use crate::space::Space;
use crate::world::{Shared, known};
use serde_json::json;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::Duration;

/// Where pages are, where the uplink is asked, and where the provider is.
pub const PLACES: [&str; 3] = ["192.0.2.10", "192.0.2.11", "192.0.2.12"];

/// Serves until this program ends.
pub fn serve(web: &Space, world: &Shared) {
    listen(web, "0.0.0.0:80", world, answer);
}

/// Answers at a place in a namespace.
fn listen(
    web: &Space,
    at: &'static str,
    world: &Shared,
    answer: fn(TcpStream, &Shared) -> std::io::Result<()>,
) {
    let (web, world, (ready, is_ready)) = (web.clone(), world.clone(), mpsc::channel());
    std::thread::spawn(move || {
        web.inside(|| {
            let listener = TcpListener::bind(at).expect("the port is free");
            ready.send(()).expect("somebody waits");
            for stream in listener.incoming().flatten() {
                let world = world.clone();
                std::thread::spawn(move || drop(answer(stream, &world)));
            }
        });
    });
    is_ready.recv().expect("the web serves");
}

fn answer(mut stream: TcpStream, world: &Shared) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    let IpAddr::V4(from) = stream.peer_addr()?.ip() else { return Ok(()) };
    let device = DEVICES.get(usize::from(from.octets()[2])).copied().unwrap_or("");
    let head = head(&mut stream)?;
    let world = world.world().clone();
    let path = head.split_whitespace().nth(1).unwrap_or_default();
    let by_wan = device == "eth0";
    let carries = if by_wan { world.wan } else { world.carries(device, path == "/large") };
    if !carries {
        // A dead tunnel is silent; a broken answer costs the test no second.
        return Ok(());
    }
    let (status, body) = match path {
        "/list.json" if by_wan && world.list_by_tunnel_only => return Ok(()),
        "/list.json" => match &world.list {
            Some(list) => {
                let entry =
                    |k: &usize| json!({ "name": format!("p{k}"), "config": known(*k).config });
                (200, json!(list.iter().map(entry).collect::<Vec<_>>()).to_string())
            }
            None => return Ok(()),
        },
        "/large" => (200, "x".repeat(1_400)),
        _ => (204, String::new()),
    };
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 {status} Said\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}

/// What stands before the body.
pub fn head(stream: &mut TcpStream) -> std::io::Result<String> {
    let mut text = Vec::new();
    let mut byte = [0];
    while !text.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte)?;
        text.push(byte[0]);
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}
