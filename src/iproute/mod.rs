//! The output of `ip -json` as typed values.
