//! Stands for `ip`, `wg`, `nft` and `conntrack`: it asks the test what the program would have said, and says it.
//!
//! The test compiles it without dependencies and without a loader's work, because one cut starts it
//! some dozens of times. It makes none of the calls at which runs are cut, so that a tracer that
//! counts these may follow it: it asks by a socket of TCP, and writes at a place of a file.
//!
//! **Invariant:** what it was asked for is done by the test whole, or not at all.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt as _;
use std::time::Duration;

fn main() {
    let mut stdin = Vec::new();
    std::io::stdin().read_to_end(&mut stdin).expect("standard input can be read");
    let mut asked = Vec::new();
    let words: Vec<String> = std::env::args().collect();
    asked.extend(format!("{}\n", words.len()).into_bytes());
    for word in words {
        asked.extend(format!("{}\n{word}", word.len()).into_bytes());
    }
    asked.extend(stdin);
    let place = std::env::var("CRASH_WORLD").expect("the test says where it is");
    let mut test = TcpStream::connect(place).expect("the test listens");
    // Whoever is killed while it asks has asked for nothing.
    let whole = [format!("{}\n", asked.len()).into_bytes(), asked].concat();
    test.write_all(&whole).expect("the test listens");
    test.shutdown(Shutdown::Write).expect("the test listens");
    let mut said = Vec::new();
    test.read_to_end(&mut said).expect("the test answers");
    let head = said.iter().position(|byte| *byte == b'\n').expect("an answer has a head");
    let numbers = std::str::from_utf8(&said[..head]).expect("a head is text");
    let numbers: Vec<usize> = numbers.split(' ').map(|n| n.parse().expect("a number")).collect();
    let [code, out] = numbers[..] else { panic!("two numbers are in a head") };
    if code == HANGS {
        std::thread::sleep(Duration::from_secs(3_600));
    }
    let body = &said[head + 1..];
    say(std::io::stdout(), &body[..out]);
    say(std::io::stderr(), &body[out..]);
    std::process::exit(i32::try_from(code).expect("a code is small"));
}

/// The code of a program that never ends.
const HANGS: usize = 1_000;

/// Whoever asked may be dead already.
fn say(to: impl AsFd, text: &[u8]) {
    if !text.is_empty() {
        let file = File::from(to.as_fd().try_clone_to_owned().expect("it can be doubled"));
        let _gone = file.write_all_at(text, 0);
    }
}
