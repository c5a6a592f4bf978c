//! Gives the shared library its name. It changes with `FROND_ABI_VERSION`'s promise: programs find the library by it at run
//! time, so one that cannot serve them must have another.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libfronddb.so.0");
    }
}
