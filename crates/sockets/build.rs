//! How the library is linked.

fn main() {
    // Where one of our functions calls another by its C name, ours is meant: a program may define one of that name itself and
    // call the other from it, as Erlang does with `sigaction` and `__sigaction`, and the two would call each other without end.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
    println!("cargo:rerun-if-changed=build.rs");
}
