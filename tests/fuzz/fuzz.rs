//! One target of the fuzzer: the one that the program is named after.
#![no_main]

#[path = "mutate.rs"]
mod mutate;
#[path = "targets.rs"]
mod targets;

use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};

fuzz_target!(|data: &[u8]| {
    let name = env!("CARGO_BIN_NAME");
    for (_, parse) in targets::ALL.iter().filter(|(known, _)| *known == name) {
        parse(data);
    }
});

// Half of the inputs are spoilt value by value, which gets past the parser of JSON.
fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    if seed % 2 == 0 {
        return fuzzer_mutate(data, size, max_size);
    }
    let mut dice = mutate::Dice::new(u64::from(seed));
    let input = data[..size].to_vec();
    let new = mutate::spoilt(&input, &input, &mut dice);
    let length = new.len().min(max_size);
    data[..length].copy_from_slice(&new[..length]);
    length
});
