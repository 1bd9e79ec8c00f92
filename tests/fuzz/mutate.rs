//! Spoils an input: bytes anywhere, or one value of a JSON text, which keeps the text readable to the parser.
//!
//! **Invariant:** the same input, pool and seed give the same output.

#![allow(unreachable_pub, reason = "the fuzzer and a test share it")]

use serde_json::Value;

/// A source of numbers that are as good as any (splitmix64).
pub struct Dice(u64);

impl Dice {
    /// One that begins at a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `n`; 0 where there is none.
    pub fn below(&mut self, n: usize) -> usize {
        let n = u64::try_from(n).unwrap_or(u64::MAX).max(1);
        usize::try_from(self.next() % n).unwrap_or(0)
    }
}

/// Pieces that parsers of all kinds stumble over.
const PIECES: [&str; 40] = [
    "\0",
    "\n",
    "\r\n",
    "\t",
    "\u{1b}[31m",
    "\u{202e}",
    "\u{feff}",
    "é",
    "\u{1f30d}",
    "%00",
    "%n",
    "..",
    "../",
    "/",
    "\\",
    "\"",
    "'",
    "`",
    "<script>",
    "&amp;",
    "-1",
    "0",
    "00",
    "1e999",
    "18446744073709551616",
    "4294967296",
    "65536",
    "256",
    "0x",
    "0.0.0.0/0",
    "::/0",
    "[::]:0",
    "127.0.0.1:99999",
    "null",
    "true",
    "[]",
    "{}",
    "[[[[",
    "{\"a\":",
    "=",
];

/// The input, spoilt in one to four ways; `other` is a second input, of which pieces may be taken.
#[must_use]
pub fn spoilt(input: &[u8], other: &[u8], dice: &mut Dice) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..=dice.below(4) {
        let as_json = if dice.below(2) == 0 { None } else { json(&bytes, other, dice) };
        bytes = as_json.unwrap_or_else(|| plain(bytes, other, dice));
    }
    bytes
}

fn plain(mut bytes: Vec<u8>, other: &[u8], dice: &mut Dice) -> Vec<u8> {
    let at = dice.below(bytes.len() + 1);
    let end = (at + 1 + dice.below(40)).min(bytes.len());
    match dice.below(8) {
        0 => bytes.truncate(at),
        1 => drop(bytes.drain(at.min(end)..end)),
        2 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1_u8 << dice.below(8);
            }
        }
        3 => {
            let twice = bytes.get(at..end).unwrap_or_default().to_vec();
            drop(bytes.splice(at..at, twice));
        }
        4 => {
            let from = dice.below(other.len() + 1);
            let to = (from + dice.below(200)).min(other.len());
            let piece = other.get(from..to).unwrap_or_default().to_vec();
            drop(bytes.splice(at..at, piece));
        }
        5 => {
            let piece = PIECES.get(dice.below(PIECES.len())).copied().unwrap_or_default();
            drop(bytes.splice(at.min(end)..end, piece.bytes()));
        }
        6 => {
            let piece = PIECES.get(dice.below(PIECES.len())).copied().unwrap_or_default();
            drop(bytes.splice(at..at, piece.bytes()));
        }
        _ => {
            let often = bytes.get(at..end).unwrap_or_default().repeat(dice.below(300));
            drop(bytes.splice(at..at, often));
        }
    }
    bytes
}

/// One value of the text exchanged, removed, doubled or renamed; nothing where it is no JSON.
fn json(bytes: &[u8], other: &[u8], dice: &mut Dice) -> Option<Vec<u8>> {
    let mut value: Value = serde_json::from_slice(bytes).ok()?;
    let donor: Value = serde_json::from_slice(other).unwrap_or(Value::Null);
    let mut wanted = dice.below(count(&donor));
    let foreign = nth(&donor, &mut wanted).cloned().unwrap_or(Value::Null);
    let own = dice.below(count(&value));
    let own = nth(&value, &mut own.clone()).cloned().unwrap_or(Value::Null);
    let mut place = dice.below(count(&value));
    let place = nth_mut(&mut value, &mut place)?;
    let was = std::mem::take(place);
    *place = match dice.below(12) {
        0 => Value::Null,
        1 => Value::from(0),
        2 => Value::from(-1),
        3 => Value::from(u64::MAX),
        4 => Value::from(i64::MIN),
        5 => Value::from(1e300),
        6 => Value::from(PIECES.get(dice.below(PIECES.len())).copied().unwrap_or_default()),
        7 => foreign,
        8 => own,
        9 => Value::Array(vec![was; 2]),
        10 => match &was {
            Value::Number(number) => Value::from(
                number.as_u64().unwrap_or(0).wrapping_shl(u32::try_from(dice.below(64)).ok()?),
            ),
            Value::Bool(truth) => Value::Bool(!truth),
            Value::Null | Value::String(_) | Value::Array(_) | Value::Object(_) => was,
        },
        _ => smaller_or_larger(was, dice),
    };
    serde_json::to_vec(&value).ok()
}

/// A list or an object with an entry less, or one of them again under another name.
fn smaller_or_larger(mut value: Value, dice: &mut Dice) -> Value {
    match &mut value {
        Value::Array(items) if !items.is_empty() => {
            let at = dice.below(items.len());
            if dice.below(2) == 0 {
                drop(items.remove(at));
            } else if let Some(item) = items.get(at).cloned() {
                items.push(item);
            }
        }
        Value::Object(entries) if !entries.is_empty() => {
            let at = dice.below(entries.len());
            let Some(key) = entries.keys().nth(at).cloned() else { return value };
            let taken = entries.remove(&key);
            if dice.below(2) == 0 {
                let piece = PIECES.get(dice.below(PIECES.len())).copied().unwrap_or_default();
                entries.insert(format!("{key}{piece}"), taken.unwrap_or_default());
            }
        }
        Value::String(text) => {
            text.push_str(PIECES.get(dice.below(PIECES.len())).copied().unwrap_or_default());
        }
        Value::Array(_) | Value::Object(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
    value
}

fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(entries) => entries.values().map(count).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

fn nth<'a>(value: &'a Value, left: &mut usize) -> Option<&'a Value> {
    if *left == 0 {
        return Some(value);
    }
    *left -= 1;
    match value {
        Value::Array(items) => items.iter().find_map(|item| nth(item, left)),
        Value::Object(entries) => entries.values().find_map(|entry| nth(entry, left)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

fn nth_mut<'a>(value: &'a mut Value, left: &mut usize) -> Option<&'a mut Value> {
    if *left == 0 {
        return Some(value);
    }
    *left -= 1;
    match value {
        Value::Array(items) => items.iter_mut().find_map(|item| nth_mut(item, left)),
        Value::Object(entries) => entries.values_mut().find_map(|entry| nth_mut(entry, left)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}
