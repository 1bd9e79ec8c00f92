//! What shows that a node lives, and that it serves in another's place.
//!
//! **Invariant:** every check has a deadline of its own.

use crate::dns::name::HostName;
use crate::observation::Handshake;
use serde::Deserialize;
use std::path::PathBuf;

/// What shows that a node lives.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Check {
    /// It takes a connection.
    Tcp(Tcp),
    /// It shows a good certificate for a name.
    Tls(Tls),
    /// It answers a request.
    Https(Https),
}

/// A check by a connection.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tcp {
    /// The port.
    pub port: u16,
    /// How long it may take.
    #[serde(default = "check_timeout")]
    pub timeout_sec: u64,
}

/// A check by a certificate.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// The port.
    #[serde(default = "https_port")]
    pub port: u16,
    /// The name that the certificate must be for.
    pub name: HostName,
    /// Certificates that it must be signed by; none given: the usual ones.
    #[serde(default)]
    pub ca_file: Option<PathBuf>,
    /// How long it may take.
    #[serde(default = "check_timeout")]
    pub timeout_sec: u64,
}

/// A check by a request.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Https {
    /// The port.
    #[serde(default = "https_port")]
    pub port: u16,
    /// The name that is asked for and that the certificate must be for.
    pub name: HostName,
    /// The path with its query.
    #[serde(default = "root")]
    pub path: String,
    /// The only good status codes.
    #[serde(default = "ok")]
    pub expect_status: Vec<u16>,
    /// What the first 64 KiB of the body must hold; none given: anything.
    #[serde(default)]
    pub expect_body: Option<String>,
    /// Certificates that it must be signed by; none given: the usual ones.
    #[serde(default)]
    pub ca_file: Option<PathBuf>,
    /// How long it may take.
    #[serde(default = "check_timeout")]
    pub timeout_sec: u64,
}

fn check_timeout() -> u64 {
    5
}

fn https_port() -> u16 {
    443
}

fn root() -> String {
    "/".to_owned()
}

fn ok() -> Vec<u16> {
    vec![200]
}

impl Check {
    /// What is done to find out.
    #[must_use]
    pub fn handshake(&self) -> Handshake {
        match self {
            Self::Tcp(tcp) => Handshake::Tcp { port: tcp.port },
            Self::Tls(tls) => Handshake::Tls {
                port: tls.port,
                name: tls.name.clone(),
                ca_file: tls.ca_file.clone(),
            },
            Self::Https(https) => Handshake::Https {
                port: https.port,
                name: https.name.clone(),
                path: https.path.clone(),
                expect_status: https.expect_status.clone(),
                expect_body: https.expect_body.clone(),
                ca_file: https.ca_file.clone(),
            },
        }
    }

    /// What another node must do to serve in this one's place: take the connection and, where one is
    /// checked here, show a certificate for the same name.
    #[must_use]
    pub fn in_its_place(&self) -> Handshake {
        match self {
            Self::Tcp(_) | Self::Tls(_) => self.handshake(),
            Self::Https(https) => Handshake::Tls {
                port: https.port,
                name: https.name.clone(),
                ca_file: https.ca_file.clone(),
            },
        }
    }

    /// How long it may take.
    #[must_use]
    pub fn timeout_sec(&self) -> u64 {
        match self {
            Self::Tcp(tcp) => tcp.timeout_sec,
            Self::Tls(tls) => tls.timeout_sec,
            Self::Https(https) => https.timeout_sec,
        }
    }
}
