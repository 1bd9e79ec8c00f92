//! What a real sing-box measures its members by: a server of a test's own in the place of the page over http,
//! with the certificate that the core is told to trust.

#![allow(unreachable_pub, missing_docs, reason = "test code")]

use std::io::Read;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// What sing-box measures by in place of a page over http.
pub const MEASURED_BY: &str = "www.gstatic.com";

/// The certificate that the core trusts, and the server that holds it: `HEAD` is answered with 204.
const SERVER: &str = r#"
import http.server, ssl, subprocess, sys
folder = sys.argv[1]
subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=test",
    "-addext", "subjectAltName=DNS:www.gstatic.com", "-keyout", folder + "/key.pem", "-out", folder + "/cert.pem"],
    check=True, stderr=subprocess.DEVNULL)
class Page(http.server.BaseHTTPRequestHandler):
    def do_HEAD(self):
        self.send_response(204)
        self.end_headers()
    do_GET = do_HEAD
    def log_message(self, *words): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(folder + "/cert.pem", folder + "/key.pem")
server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_address[1], flush=True)
server.serve_forever()
"#;

/// A program that ends with the test.
pub struct Program(pub Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _status = self.0.wait();
    }
}

pub fn measuring_server(folder: &TempDir) -> (Program, u16) {
    let mut command = Command::new("python3");
    command.args(["-c", SERVER]).arg(folder.path()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("python3 is there: tests/run installs it");
    let mut line = String::new();
    let mut byte = [0];
    let mut out = child.stdout.take().unwrap();
    while !line.ends_with('\n') {
        out.read_exact(&mut byte).expect("the server says its port");
        line.push(char::from(byte[0]));
    }
    (Program(child), line.trim().parse().unwrap())
}

/// The head of a request.
pub fn head(stream: &mut TcpStream) -> std::io::Result<String> {
    let mut text = Vec::new();
    let mut byte = [0];
    while !text.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte)?;
        text.push(byte[0]);
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

pub fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
}
