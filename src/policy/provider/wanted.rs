//! Which candidates of a list are wanted.
//!
//! **Invariant:** the choice is the same for every source, and for the same list always the same.

use serde::Deserialize;

/// Which candidates are wanted; empty lists want all.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Wanted {
    /// Countries, by name or code.
    pub country: Vec<String>,
    /// Cities, by name or code.
    pub city: Vec<String>,
    /// Patterns of names, with `*` and `?`.
    pub name: Vec<String>,
    /// Patterns of names that are not wanted, whatever else holds.
    pub exclude: Vec<String>,
    /// What slots should not have in common.
    pub spread_by: Option<SpreadBy>,
}

/// What slots should not have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SpreadBy {
    /// The country.
    Country,
    /// The city.
    City,
}

/// Where an endpoint is, as its source says it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The country's name.
    pub country: Option<String>,
    /// The country's code.
    pub country_code: Option<String>,
    /// The city's name.
    pub city: Option<String>,
    /// The city's code.
    pub city_code: Option<String>,
}

impl Wanted {
    /// Whether an endpoint of this name and place is wanted.
    #[must_use]
    pub fn takes(&self, name: &str, place: &Place) -> bool {
        let among = |wished: &[String], spellings: [&Option<String>; 2]| {
            let is = |wish: &String| {
                spellings.into_iter().flatten().any(|is| is.to_lowercase() == wish.to_lowercase())
            };
            wished.is_empty() || wished.iter().any(is)
        };
        let fits = |patterns: &[String]| patterns.iter().any(|pattern| matches(pattern, name));
        among(&self.country, [&place.country, &place.country_code])
            && among(&self.city, [&place.city, &place.city_code])
            && (self.name.is_empty() || fits(&self.name))
            && !fits(&self.exclude)
    }
}

/// Whether `pattern`, in which `*` stands for any text and `?` for one character, fits all of
/// `text`, in any case.
fn matches(pattern: &str, text: &str) -> bool {
    let fold = |text: &str| text.chars().flat_map(char::to_lowercase).collect::<Vec<char>>();
    let (pattern, text) = (fold(pattern), fold(text));
    let (mut at, mut seen) = (0, 0);
    // Where to go on when what follows the last star does not fit: the star takes one more.
    let mut star: Option<(usize, usize)> = None;
    while let Some(c) = text.get(seen) {
        match pattern.get(at) {
            Some('*') => {
                at += 1;
                star = Some((at, seen));
            }
            Some(p) if *p == '?' || p == c => {
                at += 1;
                seen += 1;
            }
            Some(_) | None => {
                let Some((after, taken)) = star else { return false };
                star = Some((after, taken + 1));
                (at, seen) = (after, taken + 1);
            }
        }
    }
    pattern.iter().skip(at).all(|p| *p == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_fits_as_in_a_shell() {
        for (pattern, text, fits) in [
            ("", "", true),
            ("*", "", true),
            ("se-*", "SE-got-wg-001", true),
            ("*wg*", "se-got-wg-001", true),
            ("se-?ot-*1", "se-got-wg-001", true),
            ("se", "se-got", false),
            ("*2", "se-got-wg-001", false),
            ("?", "", false),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "axxbyy", false),
            ("ŁÓ*", "łódź", true),
        ] {
            assert_eq!(matches(pattern, text), fits, "{pattern} {text}");
        }
        // No pattern of stars takes longer than the lengths multiplied.
        assert!(!matches(&"*a".repeat(40), &"a".repeat(39)));
    }

    #[test]
    fn a_place_is_known_by_name_and_by_code() {
        let place = Place {
            country: Some("Sweden".to_owned()),
            country_code: Some("se".to_owned()),
            city: Some("Gothenburg".to_owned()),
            city_code: None,
        };
        let wanted = |text: &str| serde_json::from_str::<Wanted>(text).unwrap();
        for (text, takes) in [
            ("{}", true),
            (r#"{"country":["SE"]}"#, true),
            (r#"{"country":["NL","sweden"],"city":["gothenburg"]}"#, true),
            (r#"{"country":["NL"]}"#, false),
            (r#"{"city":["Malmö"]}"#, false),
            (r#"{"name":["se-*"],"exclude":["*-001"]}"#, false),
            (r#"{"name":["se-*"],"exclude":["*-002"]}"#, true),
        ] {
            assert_eq!(wanted(text).takes("se-got-001", &place), takes, "{text}");
        }
        assert!(!wanted(r#"{"country":["SE"]}"#).takes("se-got-001", &Place::default()));
    }
}
