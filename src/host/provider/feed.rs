//! A list in the common shape, or a zip of wg-quick files, over HTTP.
//!
//! **Invariant:** the token goes to the host that the policy names and to no other.

use super::entry::{Offer, OwnEnd};
use super::fetch::Fetch;
use super::{NoList, Offers, archive, shape};
use crate::host::secret::secret;
use crate::observation::ListQuestion;
use crate::policy::provider::Http;

/// What the list offers.
pub(super) fn offers(http: &Http, question: &ListQuestion) -> Result<Offers, NoList> {
    let own = http.identity.as_ref().map(|identity| OwnEnd::read(identity, &[])).transpose()?;
    let token = http.token_file.as_ref().map(|path| secret(path)).transpose()?;
    let token = token.map(|token| format!("Bearer {token}"));
    let mut headers = vec![("Accept", "application/json, application/zip")];
    headers.extend(token.as_deref().map(|token| ("Authorization", token)));
    Fetch::new(question, own.as_ref())?.list(&headers, |_, body| read(body, own.as_ref()))
}

/// A body of either form.
pub(super) fn read(body: &[u8], own: Option<&OwnEnd>) -> Result<Vec<Offer>, String> {
    if archive::is_zip(body) { archive::offers(body) } else { shape::candidates(body, own) }
}
