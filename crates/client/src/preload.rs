//! How our libraries are named in `LD_PRELOAD`.
//!
//! A loader of another C library (musl) that finds ours there cannot resolve what they need, and ends the program before it
//! begins. glibc's loader puts a folder below the root in place of `$LIB` (`lib64`, `lib/x86_64-linux-gnu`); others take it for
//! a name, find no such file, and go on without. So `/$LIB/../../../..` in front of a path says the same path to glibc, and
//! nothing to others.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// Out of whatever folder glibc's loader puts in place of `$LIB`, links of `/lib` to `/usr/lib` followed, to the root.
const FROM_LIB: &[u8] = b"/$LIB/../../../..";
/// Our libraries' files.
const OURS: [&[u8]; 2] = [b"libcrosslane_sockets.so", b"libcrosslane_malloc.so"];

/// The name by which only loaders that can load `library` find it. It is the path itself if that is not absolute, or the
/// system has no such folder.
pub fn name(library: &Path) -> OsString {
    let path = library.as_os_str();
    if library.is_absolute() && Path::new("/lib").is_dir() {
        return OsString::from_vec([FROM_LIB, path.as_bytes()].concat());
    }
    path.to_owned()
}

/// A list of libraries as it is in `LD_PRELOAD`, with our own by their [`name`]; `None` if it is that already.
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
    fn the_name_leads_to_the_path() {
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
