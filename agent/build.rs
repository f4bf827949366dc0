//! Functions of one machine code are linked once: 3 % of the program, and of what it takes of a member's memory.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let of = |name: &str| std::env::var(name).unwrap_or_default();
    // Where rustc brings its linker, which is told so; that of the system may not know the word.
    if of("TARGET") == "x86_64-unknown-linux-gnu" && of("PROFILE") == "release" {
        println!("cargo::rustc-link-arg-bins=-Wl,--icf=all");
    }
}
