//! Checks of the source files: their length, and where `unsafe` stands.

use anyhow::{Context, Result, anyhow, ensure};
use proc_macro2::{TokenStream, TokenTree};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Longest file without a warning, lines.
const LONG: usize = 600;

/// Crates, folders and files that may be unsafe: all mapping and copying is in `shm`; `sockets`, at its edges, and `malloc` are called by
/// C; the rest are single system calls that have no safe form.
const UNSAFE: &[&str] = &[
    "crates/shm/",
    "crates/sockets/src/calls/io/write_zcopy.rs",
    "crates/sockets/src/descriptors/",
    "crates/sockets/src/hook/",
    "crates/sockets/src/kernel/",
    "crates/sockets/src/lib.rs",
    "crates/sockets/src/waiting/epoll/events.rs",
    "crates/sockets/src/waiting/epoll/order.rs",
    "crates/sockets/tests/",
    "crates/malloc/",
    "crates/client/src/shared.rs",
    "crates/e2e/src/steps/trace.rs",
    "crates/lab/src/namespace.rs",
    "crates/node/src/netns.rs",
    "crates/ntb/src/device.rs",
    "crates/node/src/host/room.rs",
    "crates/node/src/shelves/table.rs",
    "crates/node/src/sight.rs",
    "crates/node/src/tun.rs",
];

/// Warns about long files.
pub(crate) fn lines(root: &Path) -> Result<()> {
    let files = rust_files(root)?;
    for file in &files {
        let count = read(file)?.lines().count();
        if count > LONG {
            println!("lines: {}: {count} lines; more than {LONG} should be split", shown(root, file));
        }
    }
    println!("lines: {} files", files.len());
    Ok(())
}

/// Fails on `unsafe` outside of [`UNSAFE`].
pub(crate) fn unsafe_code(root: &Path) -> Result<()> {
    let (mut wrong, mut right) = (Vec::new(), 0);
    for file in rust_files(root)? {
        let name = shown(root, &file);
        let code = read(&file)?.parse().map_err(|error| anyhow!("{name}: {error}"))?;
        match unsafe_words(code) {
            found if UNSAFE.iter().any(|allowed| name.starts_with(allowed)) => right += found,
            0 => {}
            found => wrong.push(format!("{name}: {found}")),
        }
    }
    let (allowed, found) = (UNSAFE.join(", "), wrong.join("\n  "));
    ensure!(wrong.is_empty(), "unsafe code outside of {allowed}:\n  {found}");
    ensure!(right > 0, "no unsafe code was found at all: this check looks at the wrong place");
    println!("unsafe: {right} places, all where they may be");
    Ok(())
}

pub(crate) fn read(file: &Path) -> Result<String> {
    fs::read_to_string(file).with_context(|| format!("read {}", file.display()))
}

pub(crate) fn shown(root: &Path, file: &Path) -> String {
    file.strip_prefix(root).unwrap_or(file).display().to_string()
}

/// What is in a folder, in order.
pub(crate) fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))?;
    let mut found = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    found.sort();
    Ok(found)
}

/// The cargo that runs this, or the one in the search path.
pub(crate) fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

pub(crate) fn rust_files(root: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![root.join("crates"), root.join("xtask")];
    while let Some(folder) = folders.pop() {
        for path in entries(&folder)? {
            if path.is_dir() && !path.ends_with("target") {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    ensure!(!found.is_empty(), "no source file was found below {}", root.display());
    Ok(found)
}

/// How often the keyword occurs in `code`, which has neither comments nor string contents.
fn unsafe_words(code: TokenStream) -> usize {
    let words = code.into_iter().map(|token| match token {
        TokenTree::Group(group) => unsafe_words(group.stream()),
        TokenTree::Ident(word) => usize::from(word == "unsafe"),
        _ => 0,
    });
    words.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsafe_keyword_is_found_and_the_word_is_not() {
        let source = "// unsafe {\nfn a() { unsafe { b() } }\n/* unsafe\n /* unsafe */ unsafe */\n\
                      let s = \"unsafe \\\" unsafe\"; let r = r#\"unsafe \" \"#;\n#![forbid(unsafe_code)]\n\
                      let c = '\"'; m! { unsafe impl X for Y<'_> {} }\n";
        assert_eq!(unsafe_words(source.parse().expect("code")), 2);
    }

    #[test]
    fn sources_include_this_repository() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("above");
        assert!(rust_files(root).expect("files").len() > 10);
    }
}
