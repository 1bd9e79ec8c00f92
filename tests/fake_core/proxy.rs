//! A diagnostic proxy that answers every page itself.
//!
//! **Invariant:** it takes `CONNECT` and answers what is asked through it as told, at once.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// How pages answer through it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// With 204.
    Well,
    /// With somebody's portal.
    Portal,
    /// The proxy refuses connections to anything.
    Refuses,
}

/// A running proxy.
#[derive(Debug)]
pub struct FakeProxy {
    way: Arc<Mutex<Way>>,
    port: u16,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl FakeProxy {
    /// On a free port of loopback, answering well.
    pub fn start() -> Self {
        Self::deciding(|way| way)
    }

    /// The same; what it does at each request is decided from what it was told.
    pub fn deciding(decide: impl Fn(Way) -> Way + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        listener.set_nonblocking(true).expect("a socket may not block");
        let (way, stop) = (Arc::new(Mutex::new(Way::Well)), Arc::<AtomicBool>::default());
        let (told, stopped) = (Arc::clone(&way), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                let Ok((stream, _)) = listener.accept() else {
                    std::thread::sleep(Duration::from_millis(2));
                    continue;
                };
                let way = decide(*told.lock().expect("no thread panicked"));
                let _gone = talk(stream, way);
            }
        });
        Self { way, port, stop, thread: Some(thread) }
    }

    /// Its address, as a policy names it.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Pages answer so from now on.
    pub fn answers(&self, way: Way) {
        *self.way.lock().expect("no thread panicked") = way;
    }
}

impl Drop for FakeProxy {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
    }
}

fn talk(mut stream: TcpStream, way: Way) -> std::io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    head(&mut stream)?;
    if way == Way::Refuses {
        return stream.write_all(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n");
    }
    stream.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")?;
    head(&mut stream)?;
    stream.write_all(match way {
        Way::Well => b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n",
        Way::Portal | Way::Refuses => {
            b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\nConnection: close\r\n\r\nsign in"
        }
    })
}

fn head(stream: &mut TcpStream) -> std::io::Result<()> {
    let mut text = Vec::new();
    let mut byte = [0];
    while !text.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte)?;
        text.push(byte[0]);
    }
    Ok(())
}
