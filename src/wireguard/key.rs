//! The three kinds of WireGuard key.
//!
//! **Invariant:** no key is all zeros, and neither `Debug`, `Display` nor serde shows a secret one.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::fmt::{self, Write as _};

/// Why a text is not a key. It never holds the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyFault {
    /// Base64 of 32 bytes has 44 characters; this has another number.
    Length(usize),
    /// It has 44 characters, but they are not base64 of exactly 32 bytes.
    Alphabet,
    /// 32 zero bytes, which `wg` silently takes to mean that there is no key.
    Zero,
}

impl fmt::Display for KeyFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(found) => write!(f, "a key has 44 characters, this has {found}"),
            Self::Alphabet => f.write_str("it is not base64 of exactly 32 bytes"),
            Self::Zero => f.write_str("it is all zeros, which wg takes to mean no key"),
        }
    }
}

fn decode(text: &str) -> Result<[u8; 32], KeyFault> {
    if text.len() != 44 {
        return Err(KeyFault::Length(text.chars().count()));
    }
    let bytes = STANDARD.decode(text).map_err(|_| KeyFault::Alphabet)?;
    let key = <[u8; 32]>::try_from(bytes).map_err(|_| KeyFault::Alphabet)?;
    if key == [0; 32] { Err(KeyFault::Zero) } else { Ok(key) }
}

/// The public key of a peer: what identifies it, whatever endpoint it roams to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PublicKey([u8; 32]);

impl PublicKey {
    /// Reads the 44 characters of base64.
    pub fn from_base64(text: &str) -> Result<Self, KeyFault> {
        decode(text).map(Self)
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&STANDARD.encode(self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({self})")
    }
}

impl TryFrom<String> for PublicKey {
    type Error = KeyFault;

    fn try_from(text: String) -> Result<Self, KeyFault> {
        Self::from_base64(&text)
    }
}

impl From<PublicKey> for String {
    fn from(key: PublicKey) -> Self {
        key.to_string()
    }
}

/// A private key, held as the kernel holds it.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretKey([u8; 32]);

impl SecretKey {
    /// Reads the 44 characters of base64 and clamps the bits that X25519 ignores, as the kernel does:
    /// `wg show` prints the clamped key, and comparing it with an unclamped file would see drift for ever.
    pub fn from_base64(text: &str) -> Result<Self, KeyFault> {
        let mut key = decode(text)?;
        let [first, .., last] = &mut key;
        *first &= 0b1111_1000;
        *last = (*last & 0b0111_1111) | 0b0100_0000;
        Ok(Self(key))
    }

    /// The public key that belongs to it.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        let secret = x25519_dalek::StaticSecret::from(self.0);
        PublicKey(x25519_dalek::PublicKey::from(&secret).to_bytes())
    }

    /// The base64 text, for writing a configuration and nothing else.
    #[must_use]
    pub fn reveal(&self) -> String {
        STANDARD.encode(self.0)
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

impl fmt::Display for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

/// A preshared key.
#[derive(Clone, PartialEq, Eq)]
pub struct PresharedKey([u8; 32]);

impl PresharedKey {
    /// Reads the 44 characters of base64.
    pub fn from_base64(text: &str) -> Result<Self, KeyFault> {
        decode(text).map(Self)
    }

    /// The first 8 bytes of its SHA-256, in hex: enough to see that a key changed, in places where
    /// the key itself must not stand.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        let digest = Sha256::digest(self.0);
        digest.iter().take(8).fold(String::new(), |mut hex, byte| {
            // Writing into a String cannot fail.
            let _infallible = write!(hex, "{byte:02x}");
            hex
        })
    }

    /// The base64 text, for writing a configuration and nothing else.
    #[must_use]
    pub fn reveal(&self) -> String {
        STANDARD.encode(self.0)
    }
}

impl fmt::Debug for PresharedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

impl fmt::Display for PresharedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `wg genkey`, and what `wg pubkey` made of it.
    const SECRET: &str = "MDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMHE=";
    const PUBLIC: &str = "uvIAvhV7Z9tzLzoO03t2Qd1stcQS5QO2JrV0yt7tKCY=";

    #[test]
    fn the_public_key_is_the_one_that_wg_pubkey_prints() {
        let secret = SecretKey::from_base64(SECRET).unwrap();
        assert_eq!(secret.public().to_string(), PUBLIC);
        assert_eq!(secret.reveal(), SECRET);
    }

    #[test]
    fn an_unclamped_private_key_equals_the_clamped_one_that_wg_shows() {
        let unclamped = STANDARD.encode([b'0'; 31].into_iter().chain([b'1']).collect::<Vec<_>>());
        assert_ne!(unclamped, SECRET);
        assert_eq!(SecretKey::from_base64(&unclamped), SecretKey::from_base64(SECRET));
    }

    #[test]
    fn only_base64_of_exactly_32_bytes_that_are_not_all_zero_is_a_key() {
        let without_padding = PUBLIC.strip_suffix('=').unwrap();
        assert_eq!(PublicKey::from_base64(without_padding), Err(KeyFault::Length(43)));
        assert_eq!(PublicKey::from_base64(&PUBLIC.replace('=', "A")), Err(KeyFault::Alphabet));
        assert_eq!(PublicKey::from_base64(&PUBLIC.replace("CY=", "CZ=")), Err(KeyFault::Alphabet));
        assert_eq!(PublicKey::from_base64(&PUBLIC.replace('A', "-")), Err(KeyFault::Alphabet));
        assert_eq!(PublicKey::from_base64(&STANDARD.encode([0; 32])), Err(KeyFault::Zero));
        assert_eq!(PublicKey::from_base64(&"é".repeat(22)), Err(KeyFault::Alphabet));
    }

    #[test]
    fn secrets_are_hidden_however_they_are_printed() {
        let (secret, shared) =
            (SecretKey::from_base64(SECRET).unwrap(), PresharedKey::from_base64(SECRET).unwrap());
        for shown in [
            format!("{secret}"),
            format!("{secret:?}"),
            format!("{shared}"),
            format!("{shared:#?}"),
        ] {
            assert_eq!(shown, "(hidden)");
        }
    }

    #[test]
    fn a_fingerprint_tells_preshared_keys_apart_and_is_the_start_of_their_sha256() {
        let one = PresharedKey::from_base64(SECRET).unwrap();
        let other = PresharedKey::from_base64(PUBLIC).unwrap();
        assert_ne!(one.fingerprint(), other.fingerprint());
        assert_eq!(one.fingerprint(), "e924908d411c6bc7");
    }

    #[test]
    fn a_public_key_is_a_base64_string_in_json() {
        let key = PublicKey::from_base64(PUBLIC).unwrap();
        let json = serde_json::to_string(&key).unwrap();
        assert_eq!(json, format!("\"{PUBLIC}\""));
        assert_eq!(serde_json::from_str::<PublicKey>(&json).unwrap(), key);
        assert!(serde_json::from_str::<PublicKey>("\"short\"").is_err());
    }
}
