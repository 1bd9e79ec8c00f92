//! When a server wishes to be asked again.
//!
//! **Invariant:** a wish is at most a day; what is not understood is no wish.

use crate::host::http::Answer;
use jiff::Timestamp;
use jiff::fmt::rfc2822;

/// A provider that wishes for more is asked daily.
const LONGEST_SEC: u64 = 86_400;

/// How many seconds the server wishes to be left alone. A date is taken relative to the server's
/// own clock, for ours may be wrong.
pub(in crate::host) fn seconds(answer: &Answer) -> Option<u64> {
    seconds_of(answer.retry_after.as_deref()?, answer.date.as_deref(), Timestamp::now())
}

fn seconds_of(wish: &str, date: Option<&str>, now: Timestamp) -> Option<u64> {
    let wish = wish.trim();
    let seconds = if !wish.is_empty() && wish.bytes().all(|b| b.is_ascii_digit()) {
        // So many digits that they are no number are a long time.
        wish.parse().unwrap_or(u64::MAX)
    } else {
        let moment = |text: &str| rfc2822::DateTimeParser::new().parse_timestamp(text.trim()).ok();
        let from = date.and_then(moment).unwrap_or(now);
        u64::try_from(moment(wish)?.as_second().saturating_sub(from.as_second())).unwrap_or(0)
    };
    Some(seconds.min(LONGEST_SEC))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_and_dates_are_understood() {
        let now: Timestamp = "2026-11-30T10:00:00Z".parse().unwrap();
        let of = |wish: &str, date: Option<&str>| seconds_of(wish, date, now);
        assert_eq!(of("120", None), Some(120));
        assert_eq!(of(" 0 ", None), Some(0));
        assert_eq!(of("99999999999999999999999", None), Some(LONGEST_SEC));
        let date = "Mon, 30 Nov 2026 10:05:00 GMT";
        assert_eq!(of(date, None), Some(300));
        // The server's clock is an hour ahead of ours.
        let ahead = "Mon, 30 Nov 2026 11:00:00 GMT";
        assert_eq!(of("Mon, 30 Nov 2026 11:00:30 GMT", Some(ahead)), Some(30));
        assert_eq!(of("Mon, 30 Nov 2026 10:00:00 GMT", Some(ahead)), Some(0), "it is over");
        assert_eq!(of("Mon, 30 Nov 2026 10:00:07 GMT", Some("yesterday")), Some(7));
        for bad in ["", "soon", "-5", "1.5", "Mon, 99 Nov 2026 10:05:00 GMT"] {
            assert_eq!(of(bad, None), None, "{bad}");
        }
    }
}
