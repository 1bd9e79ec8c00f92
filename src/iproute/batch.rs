//! Cuts the output of `ip -N -j -batch -` into one listing a command.
//!
//! **Invariant:** either there is one listing for each command, in order, or there is none.

use serde_json::Value;
use std::fmt;

/// Why a listing was not understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListingError {
    /// What is wrong, and where.
    pub what: String,
}

impl ListingError {
    pub(super) fn new(what: impl Into<String>) -> Self {
        Self { what: what.into() }
    }
}

impl fmt::Display for ListingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for ListingError {}

/// Cuts what a batch of `commands` printed into its arrays. Only for a batch that ended with rc 0: a failed
/// command may print nothing at all, and the arrays after it would be taken for others.
pub fn split_batch(stdout: &str, commands: usize) -> Result<Vec<Value>, ListingError> {
    // `ip addr show` ends with one line break, `rule` and `route` with two when they stand alone.
    let lines: Vec<&str> = stdout.lines().filter(|line| !line.trim().is_empty()).collect();
    if lines.len() != commands {
        let found = lines.len();
        return Err(ListingError::new(format!(
            "the batch printed {found} listings for {commands} commands"
        )));
    }
    let read = |(number, line): (usize, &&str)| match serde_json::from_str(line) {
        Ok(listing @ Value::Array(_)) => Ok(listing),
        Ok(_) => Err(ListingError::new(format!("listing {number} of the batch is no array"))),
        Err(error) => Err(ListingError::new(format!("listing {number} of the batch: {error}"))),
    };
    (1..).zip(&lines).map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BATCH: &str = include_str!("../../tests/fixtures/iproute/batch.txt");

    #[test]
    fn a_captured_batch_is_one_array_a_command() {
        let listings = split_batch(BATCH, 3).unwrap();
        let sizes: Vec<_> = listings.iter().map(|list| list.as_array().unwrap().len()).collect();
        assert_eq!(sizes, [5, 20, 29]);
        assert_eq!(split_batch("", 0), Ok(vec![]));
    }

    #[test]
    fn a_command_that_printed_no_line_makes_the_whole_batch_worthless() {
        let lost = include_str!("../../tests/fixtures/iproute/batch-force-lost-line.txt");
        let error = split_batch(lost, 2).unwrap_err();
        assert_eq!(error.to_string(), "the batch printed 1 listings for 2 commands");
    }

    #[test]
    fn a_table_that_never_was_is_empty_in_a_batch_and_half_an_array_outside() {
        let inside = include_str!("../../tests/fixtures/iproute/batch-no-table.txt");
        let listings = split_batch(inside, 2).unwrap();
        assert_eq!(listings[0], serde_json::json!([]));
        assert_eq!(listings[1].as_array().unwrap().len(), 20);
        let outside = include_str!("../../tests/fixtures/iproute/no-table.txt");
        assert!(split_batch(outside, 1).is_err());
    }

    #[test]
    fn a_batch_cut_off_anywhere_is_an_error() {
        let whole = BATCH.trim_end();
        for end in 0..whole.len() {
            if let Some((head, _)) = whole.split_at_checked(end) {
                assert!(split_batch(head, 3).is_err(), "{end}");
            }
        }
        assert!(split_batch("{}\n", 1).is_err());
    }
}
