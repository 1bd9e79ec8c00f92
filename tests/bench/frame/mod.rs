//! The frame of a benchmark: what it was asked for, its tables and plots, and which of its aims it met.
//!
//! **Invariant:** nothing here measures anything.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::as_conversions,
    clippy::cast_precision_loss,
    reason = "each benchmark uses its part of it, and its numbers are small"
)]

use std::fmt::Write as _;

/// Whether only that it works is to be shown.
pub fn is_short() -> bool {
    std::env::args().any(|arg| arg == "--short")
}

/// The file that stands behind a word of the command line.
pub fn named(word: &str) -> Option<String> {
    std::env::args().skip_while(|arg| arg != word).nth(1)
}

/// Which build of egressctl is measured.
pub fn build() -> &'static str {
    if cfg!(debug_assertions) { "UNOPTIMISED build" } else { "release build" }
}

/// A table as README.md shows them: words on the left, then numbers.
pub struct Table {
    widths: Vec<usize>,
}

impl Table {
    /// Prints the head. The first column is so wide, the others as their names, and at least eight.
    pub fn begin(first: &str, width: usize, others: &[&str]) -> Self {
        let widths = std::iter::once(width)
            .chain(others.iter().map(|name| name.chars().count().max(8)))
            .collect();
        let table = Self { widths };
        table.row(first, others);
        let rule = |width: &usize| format!("{:->1$}|", ":", width + 2);
        let rule = table.widths[1..].iter().map(rule).collect::<Vec<_>>().concat();
        println!("|{:-<1$}|{rule}", "", width + 2);
        table
    }

    /// Prints a row.
    pub fn row<T: AsRef<str>>(&self, first: &str, others: &[T]) {
        assert_eq!(others.len() + 1, self.widths.len(), "a cell a column");
        let cells: Vec<String> = others
            .iter()
            .zip(&self.widths[1..])
            .map(|(cell, width)| format!(" {:>width$} |", cell.as_ref()))
            .collect();
        let cells = cells.concat();
        println!("| {first:<0$} |{cells}", self.widths[0]);
    }
}

/// Prints whether an aim was met.
pub fn aim(what: &str, met: bool) {
    println!("  aim: {what}: {}", if met { "met" } else { "MISSED" });
}

/// The value in the middle.
pub fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// The value below which a share of all lie.
pub fn quantile(values: &[f64], share: f64) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let place = (values.len() - 1) as f64 * share;
    // The places of a hundred values fit any integer.
    values[format!("{place:.0}").parse::<usize>().expect("a number")]
}

/// Points of one kind: how many of something there are, and the milliseconds that it takes.
pub type Points = Vec<(usize, f64)>;

/// A name and its points.
pub type Line<'a> = (&'a str, Points);

const WIDTH: f64 = 360.0;
const HEIGHT: f64 = 260.0;
const MARGIN: f64 = 56.0;
const COLOURS: [&str; 5] = ["#1b6ac9", "#c9541b", "#2a8f4a", "#8a3fb0", "#b08a1f"];

/// Plots beside and below each other as an SVG, both scales logarithmic: what grows in proportion rises by one
/// field a field, whatever it begins with.
pub fn plot(title: &str, panels: &[(&str, Vec<Line<'_>>)]) -> String {
    let columns = 2;
    let rows = panels.len().div_ceil(columns);
    let (width, height) = (WIDTH * columns as f64, HEIGHT * rows as f64 + 32.0);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" \
         font-size=\"11\">\n<title>{title}</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
         <text x=\"12\" y=\"20\" font-size=\"14\">{title}</text>\n"
    );
    for (number, (name, lines)) in panels.iter().enumerate() {
        let (x, y) = ((number % columns) as f64 * WIDTH, (number / columns) as f64 * HEIGHT + 32.0);
        writeln!(svg, "<g transform=\"translate({x} {y})\">").unwrap();
        svg.push_str(&panel(name, lines));
        svg.push_str("</g>\n");
    }
    svg + "</svg>\n"
}

/// The tens that values lie between.
fn tens(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let logs: Vec<f64> = values.filter(|value| *value > 0.0).map(f64::log10).collect();
    let low = logs.iter().copied().fold(f64::INFINITY, f64::min).floor();
    let high = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max).ceil();
    if low.is_finite() { (low, high.max(low + 1.0)) } else { (0.0, 1.0) }
}

fn panel(name: &str, lines: &[Line<'_>]) -> String {
    let all = || lines.iter().flat_map(|(_, points)| points);
    let (left, right) = tens(all().map(|(n, _)| *n as f64));
    let (low, high) = tens(all().map(|(_, ms)| *ms));
    let x = |n: f64| MARGIN + (n.log10() - left) / (right - left) * (WIDTH - 1.4 * MARGIN);
    let y = |ms: f64| HEIGHT - 34.0 - (ms.log10() - low) / (high - low) * (HEIGHT - 74.0);
    let mut svg = format!("<text x=\"{MARGIN}\" y=\"16\" font-weight=\"bold\">{name}</text>\n");
    let mut ten = left;
    while ten <= right {
        let at = x(10_f64.powf(ten));
        writeln!(
            svg,
            "<path d=\"M{at:.1} {:.1}V{:.1}\" stroke=\"#dddddd\"/><text x=\"{at:.1}\" y=\"{:.1}\" \
             text-anchor=\"middle\">{}</text>",
            y(10_f64.powf(low)),
            y(10_f64.powf(high)),
            HEIGHT - 18.0,
            10_f64.powf(ten)
        )
        .unwrap();
        ten += 1.0;
    }
    let mut ten = low;
    while ten <= high {
        let at = y(10_f64.powf(ten));
        writeln!(
            svg,
            "<path d=\"M{:.1} {at:.1}H{:.1}\" stroke=\"#dddddd\"/><text x=\"{:.1}\" y=\"{:.1}\" \
             text-anchor=\"end\">{} ms</text>",
            x(10_f64.powf(left)),
            x(10_f64.powf(right)),
            MARGIN - 5.0,
            at + 4.0,
            10_f64.powf(ten)
        )
        .unwrap();
        ten += 1.0;
    }
    for (number, (what, points)) in lines.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let path: Vec<String> = points
            .iter()
            .filter(|(_, ms)| *ms > 0.0)
            .map(|(n, ms)| format!("{:.1},{:.1}", x(*n as f64), y(*ms)))
            .collect();
        writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>\
             <text x=\"{:.1}\" y=\"30\" fill=\"{colour}\">{what}</text>",
            path.join(" "),
            MARGIN + number as f64 * 96.0
        )
        .unwrap();
    }
    svg
}
