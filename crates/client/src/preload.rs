//! The names of this project's libraries in `LD_PRELOAD`.
//!
//! The loader of another C library (musl) that finds these libraries in `LD_PRELOAD` cannot resolve their symbols, and
//! ends the program before it starts. glibc's loader replaces `$LIB` by a directory below the root (`lib64`,
//! `lib/x86_64-linux-gnu`); other loaders take `$LIB` literally, find no such file, and go on. So `/$LIB/../../../..` in
//! front of a path leads glibc's loader to the same path, and others to nothing.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// From the directory that glibc's loader puts in place of `$LIB`, links of `/lib` to `/usr/lib` followed, up to the root.
const FROM_LIB: &[u8] = b"/$LIB/../../../..";
/// File names of this project's libraries.
const OURS: [&[u8]; 2] = [b"libcrosslane_sockets.so", b"libcrosslane_malloc.so"];

/// The name by which only loaders that can load `library` find it; the path itself if it is not absolute, or the system
/// has no such directory.
pub fn name(library: &Path) -> OsString {
    let path = library.as_os_str();
    if library.is_absolute() && Path::new("/lib").is_dir() {
        return OsString::from_vec([FROM_LIB, path.as_bytes()].concat());
    }
    path.to_owned()
}

/// The `LD_PRELOAD` list with this project's libraries under their [`name`]; `None` if they have it already.
pub fn list(list: &OsStr) -> Option<OsString> {
    let is_ours = |one: &[u8]| OURS.contains(&one.rsplit(|&byte| byte == b'/').next().unwrap_or_default());
    let named = |one: &[u8]| {
        if one.starts_with(FROM_LIB) || !is_ours(one) {
            return one.to_vec();
        }
        name(Path::new(OsStr::from_bytes(one))).into_vec()
    };
    let bytes = list.as_bytes();
    let parts: Vec<Vec<u8>> = bytes.split(|byte| b": ".contains(byte)).map(named).collect();
    let whole = parts.join(&b':');
    let same = whole.len() == bytes.len();
    (!same).then(|| OsString::from_vec(whole))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_libraries_are_named_for_one_kind_of_loader() {
        let of = |text: &str| list(OsStr::new(text)).map(|list| list.into_string().expect("text"));
        assert_eq!(
            of("/opt/x/libcrosslane_sockets.so:/a/libother.so /opt/libcrosslane_malloc.so").as_deref(),
            Some(
                "/$LIB/../../../../opt/x/libcrosslane_sockets.so:/a/libother.so:/$LIB/../../../../opt/libcrosslane_malloc.so"
            )
        );
        for same in
            ["", "/a/libother.so", "libcrosslane_sockets.so", "/$LIB/../../../../opt/libcrosslane_sockets.so"]
        {
            assert_eq!(of(same), None, "{same}");
        }
    }

    #[test]
    fn preload_name_leads_to_the_path() {
        let expanded = |lib: &str| {
            let name = name(Path::new("/usr/bin/env")).into_string().expect("text").replace("$LIB", lib);
            std::fs::canonicalize(name).expect("a file")
        };
        let path = std::fs::canonicalize("/usr/bin/env").expect("a file");
        assert_eq!(expanded("lib"), path);
        assert_eq!(expanded("usr/lib"), path);
        assert!(std::fs::metadata(name(Path::new("/usr/bin/env"))).is_err());
    }
}
