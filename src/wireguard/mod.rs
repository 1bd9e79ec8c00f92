//! WireGuard as text: wg-quick files, what `wg setconf` reads, what `wg show all dump` prints.
