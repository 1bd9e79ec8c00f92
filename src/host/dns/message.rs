//! Questions to a name server and its answers, as bytes (RFC 1035).
//!
//! **Invariant:** bytes from the network are read by checked steps only, and every walk through them
//! goes forward.

use crate::dns::name::HostName;
use std::net::Ipv4Addr;

/// Type of an address record.
pub(super) const A: u16 = 1;
/// Type of an alias.
const CNAME: u16 = 5;
/// Type of the record that a zone begins with.
pub(super) const SOA: u16 = 6;
/// The Internet's class.
const IN: u16 = 1;
/// In the second 16 bits: this is an answer.
const IS_ANSWER: u16 = 0x8000;
/// In the second 16 bits: by whom the zone is kept.
const IS_AUTHORITY: u16 = 0x0400;
/// In the second 16 bits: there was more than fits.
const IS_CUT: u16 = 0x0200;
/// There is no such name.
const NXDOMAIN: u16 = 3;

/// An address record as it was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) address: Ipv4Addr,
    pub(super) ttl: u32,
}

/// What an answer says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Said {
    /// Address records of the name.
    pub(super) addresses: Vec<Address>,
    /// The serial number of the zone.
    pub(super) serial: Option<u32>,
}

/// A question for the records of one type of a name, that is answered by who keeps the zone.
pub(super) fn question(id: u16, name: &HostName, kind: u16) -> Vec<u8> {
    let mut bytes = Vec::new();
    for part in [id, 0, 1, 0, 0, 0] {
        bytes.extend(part.to_be_bytes());
    }
    for label in name.labels() {
        // A label has at most 63 bytes, see `HostName`.
        bytes.push(u8::try_from(label.len()).unwrap_or(0));
        bytes.extend(label.as_bytes());
    }
    bytes.push(0);
    bytes.extend(kind.to_be_bytes());
    bytes.extend(IN.to_be_bytes());
    bytes
}

/// What an answer to it says.
pub(super) fn answer(bytes: &[u8], id: u16, name: &HostName, kind: u16) -> Result<Said, String> {
    let mut reader = Reader { bytes, at: 0 };
    read(&mut reader, id, name, kind).unwrap_or_else(|| Err("its answer is cut off".to_owned()))
}

fn read(
    reader: &mut Reader<'_>,
    id: u16,
    name: &HostName,
    kind: u16,
) -> Option<Result<Said, String>> {
    let (its_id, flags) = (reader.u16()?, reader.u16()?);
    let (questions, answers) = (reader.u16()?, reader.u16()?);
    reader.skip(4)?;
    if its_id != id || flags & IS_ANSWER == 0 || questions != 1 {
        return Some(Err("its answer is none to what was asked".to_owned()));
    }
    if !reader.name()?.eq_ignore_ascii_case(name.as_str()) || reader.u16()? != kind {
        return Some(Err("its answer is none to what was asked".to_owned()));
    }
    reader.skip(2)?;
    let code = flags & 0x000f;
    if code == NXDOMAIN && kind == A {
        return Some(Ok(Said::default()));
    }
    if code != 0 {
        return Some(Err(format!("it answers {}", word(code))));
    }
    if flags & IS_AUTHORITY == 0 {
        return Some(Err("it does not keep the zone itself: name its primary server".to_owned()));
    }
    if flags & IS_CUT != 0 {
        return Some(Err("its answer does not fit".to_owned()));
    }
    let mut said = Said::default();
    for _ in 0..answers {
        let owner = reader.name()?;
        let (its_kind, class) = (reader.u16()?, reader.u16()?);
        let ttl = reader.u32()?;
        let length = usize::from(reader.u16()?);
        let end = reader.at.checked_add(length)?;
        let ours = owner.eq_ignore_ascii_case(name.as_str()) && class == IN;
        if ours && its_kind == CNAME {
            return Some(Err(format!("{name} is an alias there (CNAME): make address records")));
        }
        if ours && its_kind == A && kind == A {
            let octets: [u8; 4] = reader.bytes.get(reader.at..end)?.try_into().ok()?;
            said.addresses.push(Address { address: octets.into(), ttl });
        }
        if ours && its_kind == SOA && kind == SOA {
            reader.name()?;
            reader.name()?;
            said.serial = Some(reader.u32()?);
        }
        reader.at = end;
    }
    Some(Ok(said))
}

/// What a code of an answer means.
fn word(code: u16) -> String {
    match code {
        1 => "that it does not understand (FORMERR)".to_owned(),
        2 => "that it failed (SERVFAIL)".to_owned(),
        NXDOMAIN => "that there is no such name (NXDOMAIN)".to_owned(),
        4 => "that it cannot do that (NOTIMP)".to_owned(),
        5 => "that it does not want to (REFUSED)".to_owned(),
        9 => "that it does not keep the zone (NOTAUTH)".to_owned(),
        code => format!("with code {code}"),
    }
}

/// Whether serial number `new` comes after `old` (RFC 1982).
pub(super) fn is_after(new: u32, old: u32) -> bool {
    let ahead = new.wrapping_sub(old);
    ahead != 0 && ahead < 0x8000_0000
}

/// Bytes of a name (RFC 1035, 2.3.4).
const LONGEST_NAME: usize = 255;

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn skip(&mut self, n: usize) -> Option<()> {
        let at = self.at.checked_add(n)?;
        self.bytes.get(self.at..at)?;
        self.at = at;
        Some(())
    }

    fn u8(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.skip(1)?;
        Some(byte)
    }

    fn u16(&mut self) -> Option<u16> {
        Some(u16::from_be_bytes([self.u8()?, self.u8()?]))
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_be_bytes([self.u8()?, self.u8()?, self.u8()?, self.u8()?]))
    }

    /// A name, without its last dot. A pointer leads before all that was read of the name: one that led
    /// before itself alone could lead into labels that end at it again, for ever.
    fn name(&mut self) -> Option<String> {
        let mut name = String::new();
        let (mut at, mut after) = (self.at, None);
        let mut earliest = at;
        loop {
            let length = *self.bytes.get(at)?;
            match length >> 6 {
                0 if length == 0 => {
                    self.at = after.unwrap_or(at + 1);
                    return Some(name);
                }
                0 => {
                    let label = self.bytes.get(at + 1..at + 1 + usize::from(length))?;
                    if !name.is_empty() {
                        name.push('.');
                    }
                    name.extend(label.iter().map(|byte| char::from(*byte)));
                    at += 1 + usize::from(length);
                    if name.len() > LONGEST_NAME {
                        return None;
                    }
                }
                3 => {
                    let low = *self.bytes.get(at + 1)?;
                    let to = usize::from(u16::from_be_bytes([length & 0x3f, low]));
                    after.get_or_insert(at + 2);
                    if to >= earliest {
                        return None;
                    }
                    (at, earliest) = (to, to);
                }
                _ => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(text: &str) -> HostName {
        HostName::try_from(text.to_owned()).unwrap()
    }

    /// An answer as BIND and Knot write it: the question, then records whose names point at it.
    fn answered(flags: u16, records: &[(u16, u32, &[u8])]) -> Vec<u8> {
        let mut bytes = question(7, &host("fi.example.org"), A);
        bytes[2..4].copy_from_slice(&(0x8400 | flags).to_be_bytes());
        bytes[6..8].copy_from_slice(&u16::try_from(records.len()).unwrap().to_be_bytes());
        for (kind, ttl, data) in records {
            bytes.extend([0xc0, 12]);
            bytes.extend(kind.to_be_bytes());
            bytes.extend(IN.to_be_bytes());
            bytes.extend(ttl.to_be_bytes());
            bytes.extend(u16::try_from(data.len()).unwrap().to_be_bytes());
            bytes.extend(*data);
        }
        bytes
    }

    fn read(bytes: &[u8]) -> Result<Said, String> {
        answer(bytes, 7, &host("fi.example.org"), A)
    }

    #[test]
    fn addresses_are_read_and_no_address_is_an_answer() {
        let said = read(&answered(0, &[(A, 120, &[192, 0, 2, 1]), (A, 120, &[192, 0, 2, 2])]));
        let of = |last| Address { address: Ipv4Addr::new(192, 0, 2, last), ttl: 120 };
        assert_eq!(said.unwrap().addresses, [of(1), of(2)]);
        assert_eq!(read(&answered(0, &[])), Ok(Said::default()));
        assert_eq!(read(&answered(NXDOMAIN, &[])), Ok(Said::default()));
    }

    #[test]
    fn what_is_no_answer_is_told() {
        for (bytes, said) in [
            (answered(5, &[]), "REFUSED"),
            (answered(0, &[(CNAME, 60, &[0])]), "alias"),
            (answered(IS_CUT, &[]), "does not fit"),
            (question(7, &host("fi.example.org"), A), "none to what was asked"),
            (answered(0, &[(A, 60, &[192, 0])]), "cut off"),
        ] {
            let why = read(&bytes).unwrap_err();
            assert!(why.contains(said), "{why}");
        }
        let mut other = answered(0, &[]);
        other[0] = 9;
        assert!(read(&other).is_err());
        let mut lame = answered(0, &[]);
        lame[2] &= !0x04;
        assert!(read(&lame).unwrap_err().contains("does not keep"));
    }

    #[test]
    fn every_beginning_of_an_answer_and_a_pointer_to_itself_end() {
        let whole = answered(0, &[(A, 120, &[192, 0, 2, 1])]);
        for n in 0..whole.len() {
            assert!(read(&whole[..n]).is_err(), "{n}");
        }
        let mut circle = whole;
        let at = u8::try_from(question(7, &host("fi.example.org"), A).len()).unwrap();
        circle[usize::from(at) + 1] = at;
        assert!(read(&circle).is_err());
        // A label that ends in a pointer to itself.
        circle.splice(usize::from(at)..usize::from(at) + 2, [1, b'a', 0xc0, at]);
        assert!(read(&circle).is_err());
    }

    #[test]
    fn spoilt_answers_are_answers_or_told_in_a_line() {
        let whole = answered(0, &[(A, 120, &[192, 0, 2, 1]), (CNAME, 60, &[0xc0, 12])]);
        let mut dice = 0x9e37_79b9_u32;
        let mut below = |n: usize| {
            // A source of numbers that are as good as any (xorshift).
            dice ^= dice << 13;
            dice ^= dice >> 17;
            dice ^= dice << 5;
            usize::try_from(dice).unwrap() % n
        };
        for _ in 0..50_000 {
            let mut bytes = whole.clone();
            for _ in 0..=below(6) {
                let (at, byte) = (below(bytes.len()), [0, 1, 12, 63, 64, 0xc0, 0xff][below(7)]);
                match below(4) {
                    0 => bytes.truncate(at + 1),
                    1 => bytes.insert(at, byte),
                    _ => bytes[at] = byte,
                }
            }
            for kind in [A, SOA] {
                if let Err(why) = answer(&bytes, 7, &host("fi.example.org"), kind) {
                    assert!(!why.contains(char::is_control), "{why:?}");
                }
            }
        }
    }

    #[test]
    fn serial_numbers_go_round() {
        assert!(is_after(1, 0) && is_after(0, u32::MAX) && is_after(2_026_113_001, 2_026_113_000));
        assert!(!is_after(5, 5) && !is_after(4, 5) && !is_after(u32::MAX, 0));
    }
}
