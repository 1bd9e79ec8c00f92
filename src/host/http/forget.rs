//! Takes out of an answer what it repeats of the right that it was asked by.
//!
//! A server that refuses a request may quote it, and what servers say is shown: in state, on pages, to people.
//!
//! **Invariant:** no form of a right that was sent is left in an answer, and an answer without any is as it came.

use super::Answer;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::fmt::Write as _;

/// What stands in its place.
const BLANK: &[u8] = b"BLANKED";

/// In an answer that refuses, even a short one is taken out: a word more or less is no loss there.
const SHORTEST: usize = 4;

/// In one that does not, what is shorter stands by chance: a list is worth nothing with a part of it taken out.
const SHORTEST_IN_A_LIST: usize = 16;

/// Takes out of the answer all forms of what was shown in `headers` as a right.
pub(super) fn forget(answer: &mut Answer, headers: &[(&str, &str)]) {
    let shortest = if (200..300).contains(&answer.status) { SHORTEST_IN_A_LIST } else { SHORTEST };
    let rights = headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("authorization"));
    let mut forms: Vec<String> = rights.flat_map(|(_, value)| forms(value)).collect();
    forms.retain(|form| form.len() >= shortest);
    // One may be a part of another.
    forms.sort_by_key(|form| std::cmp::Reverse(form.len()));
    for form in &forms {
        without(&mut answer.body, form.as_bytes());
        let texts = [&mut answer.location, &mut answer.etag, &mut answer.last_modified];
        for text in texts.into_iter().flatten() {
            *text = text.replace(form, "BLANKED");
        }
    }
}

/// A header's value, as it is and as a server could write it.
fn forms(value: &str) -> Vec<String> {
    let word = value.split_once(' ').map_or(value, |(_, word)| word);
    let mut plain = vec![word.to_owned()];
    if let Ok(Ok(pair)) = STANDARD.decode(word).map(String::from_utf8) {
        plain.extend(pair.split_once(':').map(|(_, password)| password.to_owned()));
        plain.push(pair);
    }
    let encoded = |text: &str| {
        text.bytes().fold(String::new(), |mut whole, byte| {
            if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                whole.push(char::from(byte));
            } else {
                // Writing into a String does not fail.
                let _infallible = write!(whole, "%{byte:02X}");
            }
            whole
        })
    };
    let written = |text: &String| [encoded(text), text.replace('/', "\\/"), STANDARD.encode(text)];
    let more: Vec<String> = plain.iter().flat_map(written).collect();
    plain.extend(more);
    plain
}

fn without(body: &mut Vec<u8>, form: &[u8]) {
    let mut kept = Vec::new();
    let mut rest = body.as_slice();
    while let Some(at) = rest.windows(form.len()).position(|window| window == form) {
        let (before, after) = rest.split_at(at);
        kept.extend_from_slice(before);
        kept.extend_from_slice(BLANK);
        rest = after.get(form.len()..).unwrap_or_default();
    }
    if !kept.is_empty() {
        kept.extend_from_slice(rest);
        *body = kept;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn after(status: u16, authorization: &str, body: &str) -> String {
        let mut answer = Answer {
            status,
            body: body.as_bytes().to_vec(),
            is_whole: true,
            location: Some(body.to_owned()),
            retry_after: None,
            date: None,
            etag: None,
            last_modified: None,
            elapsed: Duration::ZERO,
        };
        forget(&mut answer, &[("Accept", "a"), ("authorization", authorization)]);
        let body = String::from_utf8(answer.body).unwrap();
        assert_eq!(answer.location.as_deref(), Some(body.as_str()));
        body
    }

    #[test]
    fn what_an_answer_repeats_of_a_right_is_taken_out_in_every_form() {
        let token = "Bearer tk/0123456789abcdef";
        for (said, left) in [
            ("bad tk/0123456789abcdef!", "bad BLANKED!"),
            (r#"{"m":"tk\/0123456789abcdef"}"#, r#"{"m":"BLANKED"}"#),
            ("k=tk%2F0123456789abcdef", "k=BLANKED"),
            ("dGsvMDEyMzQ1Njc4OWFiY2RlZg==", "BLANKED"),
            ("tk/0123456789abcdeftk/0123456789abcdef", "BLANKEDBLANKED"),
            ("nothing of it: tk/0123", "nothing of it: tk/0123"),
        ] {
            assert_eq!(after(401, token, said), left);
            assert_eq!(after(200, token, said), left);
        }
        let pair = format!("Basic {}", STANDARD.encode("user:word"));
        assert_eq!(after(403, &pair, "user:word, word, dXNlcjp3b3Jk"), "BLANKED, BLANKED, BLANKED");
        assert_eq!(after(200, &pair, "a word of a list"), "a word of a list");
    }
}
