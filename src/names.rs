//! Names and numbers that cannot hold a bad value.
//!
//! **Invariant:** a value of these types has been checked when it was made; nothing downstream checks again.

use arrayvec::ArrayString;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The name of a network interface: 1 to 15 bytes of `[A-Za-z0-9_=+.-]`, the form that `wg-quick`
/// and the kernel both accept (`IFNAMSIZ` is 16 with the closing zero), and neither `.` nor `..`.
/// Large pools copy and compare names by the ten thousand, so one is kept in place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Interface(ArrayString<15>);

impl Interface {
    /// The name as the kernel knows it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Interface {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        let allowed = |b: u8| b.is_ascii_alphanumeric() || b"_=+.-".contains(&b);
        if (1..=15).contains(&name.len())
            && name.bytes().all(allowed)
            && name != "."
            && name != ".."
            && !name.starts_with('-')
            && let Ok(inline) = ArrayString::from(&name)
        {
            Ok(Self(inline))
        } else {
            Err(format!(
                "{name:?} is not an interface name: it has 1 to 15 letters, digits or _=+.-, and does not begin with -"
            ))
        }
    }
}

impl From<Interface> for String {
    fn from(name: Interface) -> Self {
        name.0.as_str().to_owned()
    }
}

impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The name of a policy, which is the stem of its file and the name of its state folder, so it is
/// held to what is safe there and inside an nft table name: 1 to 48 of `[A-Za-z0-9_-]`, a letter or
/// digit first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PolicyName(String);

impl PolicyName {
    /// The name as written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name of the policy's nft table in family `inet`. nft has no `-` in names, so it becomes `_`;
    /// two policies whose names differ only there overlap and are refused together.
    #[must_use]
    pub fn nft_table(&self) -> String {
        format!("egressctl_{}", self.0.replace('-', "_"))
    }
}

impl TryFrom<String> for PolicyName {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        let allowed = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
        if (1..=48).contains(&name.len())
            && name.bytes().all(allowed)
            && name.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric())
        {
            Ok(Self(name))
        } else {
            Err(format!(
                "{name:?} cannot name a policy: 1 to 48 letters, digits, _ or -, a letter or digit first"
            ))
        }
    }
}

impl From<PolicyName> for String {
    fn from(name: PolicyName) -> Self {
        name.0
    }
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A firewall mark, written `0x45470000` in JSON and in commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Mark(pub u32);

impl TryFrom<String> for Mark {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
        let value = match digits {
            Some(hex) => u32::from_str_radix(hex, 16).ok(),
            None => text.parse().ok(),
        };
        value
            .map(Self)
            .ok_or_else(|| format!("{text:?} is not a mark: write it like \"0x45470000\""))
    }
}

impl From<Mark> for String {
    fn from(mark: Mark) -> Self {
        mark.to_string()
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:08x}", self.0)
    }
}

/// A routing table's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Table(pub u32);

impl Table {
    /// The kernel's table `main` (`RT_TABLE_MAIN`, linux/rtnetlink.h).
    pub const MAIN: Self = Self(254);
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::MAIN { f.write_str("main") } else { write!(f, "{}", self.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_name_that_the_kernel_or_a_shell_would_misread_is_refused() {
        for bad in ["", "a/b", "sixteen-bytes-xx", "with space", "-x", ".", "..", "vpn\n1"] {
            assert!(Interface::try_from(bad.to_owned()).is_err(), "{bad:?}");
        }
        for good in ["vpn1", "eth0.5", "wg_home", "br-lan"] {
            assert!(Interface::try_from(good.to_owned()).is_ok(), "{good:?}");
        }
    }

    #[test]
    fn a_mark_is_read_in_both_notations_and_written_in_one() {
        assert_eq!(Mark::try_from("0x45470000".to_owned()), Ok(Mark(0x4547_0000)));
        assert_eq!(Mark::try_from("256".to_owned()), Ok(Mark(256)));
        assert_eq!(Mark(256).to_string(), "0x00000100");
        assert!(Mark::try_from("0x1_0000_0000".to_owned()).is_err());
    }

    #[test]
    fn a_policy_name_never_leaves_its_folder() {
        for bad in ["", "..", "a/b", ".hidden", "-x", "a b", "a.b"] {
            assert!(PolicyName::try_from(bad.to_owned()).is_err(), "{bad:?}");
        }
    }
}
