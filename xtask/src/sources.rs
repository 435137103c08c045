//! Checks of the source files: their length, and where `unsafe` stands.

use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};

/// Longest file without a warning, lines.
const LONG: usize = 600;

/// Crates and files that may be unsafe: all mapping and copying is in `shm`, `sockets` and `malloc` are called by C; the rest
/// are single system calls that have no safe form.
const UNSAFE: &[&str] = &[
    "crates/shm/",
    "crates/sockets/",
    "crates/malloc/",
    "crates/client/src/shared.rs",
    "crates/lab/src/namespace.rs",
    "crates/node/src/netns.rs",
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
        let found = unsafe_lines(&read(&file)?);
        if UNSAFE.iter().any(|allowed| name.starts_with(allowed)) {
            right += found.len();
        } else {
            wrong.extend(found.iter().map(|line| format!("{name}:{line}")));
        }
    }
    if !wrong.is_empty() {
        bail!("unsafe code outside of {}:\n  {}", UNSAFE.join(", "), wrong.join("\n  "));
    }
    if right == 0 {
        bail!("no unsafe code was found at all: this check looks at the wrong place");
    }
    println!("unsafe: {right} places, all where they may be");
    Ok(())
}

pub(crate) fn read(file: &Path) -> Result<String> {
    fs::read_to_string(file).with_context(|| format!("read {}", file.display()))
}

pub(crate) fn shown(root: &Path, file: &Path) -> String {
    file.strip_prefix(root).unwrap_or(file).display().to_string()
}

pub(crate) fn rust_files(root: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![root.join("crates"), root.join("xtask")];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).with_context(|| format!("read {}", folder.display()))?;
        for entry in entries {
            let path = entry?.path();
            if path.is_dir() && !path.ends_with("target") {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    if found.is_empty() {
        bail!("no source file was found below {}", root.display());
    }
    Ok(found)
}

/// Numbers of the lines of `source` that have the keyword, not in comments and texts.
fn unsafe_lines(source: &str) -> Vec<usize> {
    let code = bare(source);
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    (1..)
        .zip(code.lines())
        .filter(|(_, line)| line.split(|c| !is_word(c)).any(|w| w == "unsafe"))
        .map(|(n, _)| n)
        .collect()
}

/// `source` without comments and the inside of texts; line ends stay.
pub(crate) fn bare(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(c) = rest.chars().next() {
        let skipped = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            block_comment(rest)
        } else if c == '"' {
            text(rest)
        } else if let Some(len) = raw_text(rest, out.chars().last()) {
            len
        } else if c == '\'' {
            character(rest)
        } else {
            0
        };
        if skipped == 0 {
            out.push(c);
            rest = &rest[c.len_utf8()..];
        } else {
            let (gone, after) = rest.split_at(skipped);
            out.push(' ');
            out.extend(gone.chars().filter(|&c| c == '\n'));
            rest = after;
        }
    }
    out
}

fn block_comment(rest: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        let tail = &rest[at..];
        if tail.starts_with("/*") {
            depth += 1;
            at += 2;
        } else if tail.starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += tail.chars().next().map_or(1, char::len_utf8);
        }
    }
    rest.len()
}

fn text(rest: &str) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

fn raw_text(rest: &str, before: Option<char>) -> Option<usize> {
    if before.is_some_and(|c| (c.is_alphanumeric() && c != 'b' && c != 'c') || c == '_') {
        return None;
    }
    let tail = rest.strip_prefix('r')?;
    let marks = tail.chars().take_while(|&c| c == '#').count();
    let inside = tail[marks..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(marks));
    let len = inside.find(&end).map_or(inside.len(), |at| at + end.len());
    Some(1 + marks + 1 + len)
}

/// Length of a character literal, 0 for a lifetime.
fn character(rest: &str) -> usize {
    let mut inside = rest[1..].chars();
    match (inside.next(), inside.next()) {
        (Some('\\'), Some(_)) => rest[3..].find('\'').map_or(0, |at| at + 4),
        (Some(c), Some('\'')) => 2 + c.len_utf8(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keyword_is_found_and_the_word_is_not() {
        let source = "// unsafe {\nfn a() { unsafe { b() } }\n/* unsafe\n /* unsafe */ unsafe */\n\
                      let s = \"unsafe \\\" unsafe\"; let r = r#\"unsafe \" \"#;\n#![forbid(unsafe_code)]\n\
                      let c = '\"'; unsafe impl X for Y<'_> {}\n";
        assert_eq!(unsafe_lines(source), [2, 7]);
    }

    #[test]
    fn escapes_and_lifetimes_do_not_confuse() {
        assert_eq!(unsafe_lines("fn a<'a>(x: &'a str) -> char { '\\'' }\nunsafe fn b() {}"), [2]);
        assert_eq!(unsafe_lines("let x = '\\u{1F600}';\nlet y = 'é'; unsafe {}"), [2]);
    }

    #[test]
    fn this_repository_is_seen() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("above");
        assert!(rust_files(root).expect("files").len() > 10);
    }
}
