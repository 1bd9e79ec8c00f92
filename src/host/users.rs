//! Numbers of local users.
//!
//! **Invariant:** only this machine's own list is read, so a name service that hangs hangs nothing.

use super::files;
use anyhow::Context as _;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Far more than the list of a machine with thousands of users.
const MAX_LIST: usize = 4 * 1024 * 1024;

/// The numbers of `names`; who is not there is left out. A name that is a number is its own number,
/// for users that only a container knows.
///
/// # Errors
/// When `/etc/passwd` is needed and cannot be read.
pub fn numbers(names: &BTreeSet<String>) -> anyhow::Result<BTreeMap<String, u32>> {
    let mut numbers: BTreeMap<String, u32> =
        names.iter().filter_map(|name| Some((name.clone(), name.parse().ok()?))).collect();
    if numbers.len() == names.len() {
        return Ok(numbers);
    }
    let path = Path::new("/etc/passwd");
    let list = files::read_bounded(path, MAX_LIST).context("reading /etc/passwd")?;
    for (name, number) in String::from_utf8_lossy(&list).lines().filter_map(entry) {
        // The first entry of a name is the one that the system takes.
        if names.contains(name) && !numbers.contains_key(name) {
            numbers.insert(name.to_owned(), number);
        }
    }
    Ok(numbers)
}

/// The name and the number of one line, see passwd(5).
fn entry(line: &str) -> Option<(&str, u32)> {
    let mut fields = line.split(':');
    let name = fields.next()?;
    let number = fields.nth(1)?.parse().ok()?;
    Some((name, number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_looked_up_and_a_number_is_itself() {
        let names = ["root", "4711", "nobody-of-that-name"].map(str::to_owned).into();
        let found = numbers(&names).unwrap();
        assert_eq!(found, BTreeMap::from([("root".to_owned(), 0), ("4711".to_owned(), 4711)]));
    }

    #[test]
    fn a_broken_line_is_nobody() {
        assert_eq!(entry("daemon:x:1:1:daemon:/usr/sbin:/bin/sh"), Some(("daemon", 1)));
        for line in ["", "a", "a:x", "a:x:", "a:x:-1:", "+@nis::"] {
            assert_eq!(entry(line), None, "{line}");
        }
    }
}
