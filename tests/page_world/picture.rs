//! Prints the page of the gateway that README has a picture of; `docs/picture` takes the picture.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "it is there to print")]

#[path = "mod.rs"]
mod page_world;

fn main() {
    let panels = page_world::panels();
    println!("{}", egressctl::page::render(&panels, &[], page_world::now()).unwrap());
}
