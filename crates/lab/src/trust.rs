//! Whether other users can put files where a lab's are: these files say which programs to run and which processes to end.

use crate::LabError;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Write permission of the group, and of others.
const GROUP: u32 = 0o020;
const OTHERS: u32 = 0o002;
/// In such a folder only the owner of a file can remove or rename it.
const STICKY: u32 = 0o1000;

/// Checks each existing folder on the way to `path`: only this user and root may own it, or replace the next one. Links
/// on the way, and the ways that they lead, are checked too.
///
/// # Errors
/// [`LabError::Untrusted`] names the folder and what is wrong with it.
pub(crate) fn check(path: &Path) -> Result<(), LabError> {
    let path = std::path::absolute(path).map_err(LabError::io(format!("find {}", path.display())))?;
    let there = check_each(&path)?;
    let real = there.canonicalize().map_err(LabError::io(format!("follow {}", there.display())))?;
    check_each(&real).map(drop)
}

/// Makes a folder and its missing parents, from the root on. Each one must exist and be trusted before anything is
/// looked for or made in it, since another user may make it at the same time, or make a link that leads elsewhere. An
/// existing trusted one stays.
///
/// # Errors
/// As [`check`]; [`LabError::Io`] if one cannot be made, also because the last is there, or has gone again.
pub(crate) fn create(path: &Path) -> Result<(), LabError> {
    let path = std::path::absolute(path).map_err(LabError::io(format!("find {}", path.display())))?;
    let above: Vec<&Path> = path.ancestors().skip(1).collect();
    for part in above.into_iter().rev() {
        if !stands(part)? {
            match make(part) {
                Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                    return Err(LabError::io(format!("create {}", part.display()))(error));
                }
                _ => {}
            }
            if !stands(part)? {
                let gone = std::io::Error::from(std::io::ErrorKind::NotFound);
                return Err(LabError::io(format!("create {}", part.display()))(gone));
            }
        }
        check(part)?;
    }
    make(&path).map_err(LabError::io(format!("create {}", path.display())))?;
    check(&path)
}

/// Whether something is there, which is then trusted itself; by one look.
fn stands(path: &Path) -> Result<bool, LabError> {
    match path.symlink_metadata() {
        Ok(meta) => judge(path, &meta).map(|()| true),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(LabError::io(format!("look at {}", path.display()))(error)),
    }
}

/// Never open to others, whatever the user's mask is.
fn make(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().mode(0o755).create(path)
}

/// Whether a folder is this user's and nobody else can even look into it.
pub(crate) fn is_private(path: &Path) -> bool {
    let own = rustix::process::geteuid().as_raw();
    path.symlink_metadata().is_ok_and(|meta| meta.is_dir() && meta.uid() == own && meta.mode() & 0o077 == 0)
}

/// Checks the folders from the root on; the last one that is there.
fn check_each(path: &Path) -> Result<PathBuf, LabError> {
    let mut there = PathBuf::from("/");
    let outermost_first: Vec<&Path> = path.ancestors().collect();
    for part in outermost_first.into_iter().rev() {
        if !stands(part)? {
            break;
        }
        part.clone_into(&mut there);
    }
    Ok(there)
}

fn judge(part: &Path, meta: &Metadata) -> Result<(), LabError> {
    let own = rustix::process::geteuid().as_raw();
    let refuse = |why: String| Err(LabError::Untrusted { folder: part.to_owned(), why });
    if meta.uid() != own && meta.uid() != 0 {
        return refuse(format!("it belongs to user {}", meta.uid()));
    }
    // By custom a user's own group has the user's number; other groups have other members.
    let own_group = [0, own].contains(&meta.gid());
    let foreign = OTHERS | if own_group { 0 } else { GROUP };
    if meta.is_dir() && meta.mode() & foreign != 0 && meta.mode() & STICKY == 0 {
        return refuse(format!("others may write there (mode {:o})", meta.mode() & 0o7777));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{Permissions, create_dir, set_permissions};
    use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};

    const NOBODY: u32 = 65534;

    fn refused(path: &Path, folder: &Path) -> bool {
        matches!(check(path), Err(LabError::Untrusted { folder: named, .. }) if named == folder)
    }

    #[test]
    fn folder_writable_by_others_is_refused_unless_sticky() {
        let root = tempfile::tempdir().expect("folder");
        let (open, lab) = (root.path().join("open"), root.path().join("open/lab/one"));
        assert!(check(&lab).is_ok(), "what is not there yet can be made");
        create_dir(&open).expect("create");
        for (mode, good) in [(0o755, true), (0o777, false), (0o1777, true), (0o702, false)] {
            set_permissions(&open, Permissions::from_mode(mode)).expect("mode");
            assert_eq!(check(&lab).is_ok(), good, "{mode:o}");
            assert_eq!(refused(&lab, &open), !good, "{mode:o}");
        }
    }

    #[test]
    fn folder_writable_by_a_group_is_refused_unless_it_is_ones_own() {
        if !rustix::process::geteuid().is_root() {
            println!("SKIPPED: only root can give folders to groups");
            return;
        }
        let root = tempfile::tempdir().expect("folder");
        for (group, good) in [(0, true), (100, false)] {
            chown(root.path(), None, Some(group)).expect("group");
            set_permissions(root.path(), Permissions::from_mode(0o775)).expect("mode");
            assert_eq!(check(&root.path().join("lab")).is_ok(), good, "group {group}");
        }
    }

    #[test]
    fn folder_is_not_made_in_what_another_user_put_in_the_way() {
        if !rustix::process::geteuid().is_root() {
            println!("SKIPPED: only root can make folders of others");
            return;
        }
        let root = tempfile::tempdir().expect("folder");
        let (base, canary) = (root.path().join("crosslane-1/lab"), root.path().join("canary"));
        let above = root.path().join("crosslane-1");
        create_dir(&canary).expect("create");
        // After the check at the beginning, before the folders are made.
        assert!(check(&base.join("one")).is_ok());
        symlink(&canary, &above).expect("link");
        lchown(&above, Some(NOBODY), None).expect("owner");
        assert!(
            matches!(create(&base.join("one")), Err(LabError::Untrusted { folder, .. }) if folder == above)
        );
        assert!(!canary.join("lab").exists());
        std::fs::remove_file(&above).expect("removed");
        create_dir(&above).expect("create");
        set_permissions(&above, Permissions::from_mode(0o777)).expect("mode");
        assert!(
            matches!(create(&base.join("one")), Err(LabError::Untrusted { folder, .. }) if folder == above)
        );
        assert!(!base.exists());
        std::fs::remove_dir(&above).expect("removed");
        create(&base.join("one")).expect("created");
        assert!(create(&base.join("one")).is_err(), "it is there");
    }

    #[test]
    fn folder_or_link_of_others_is_refused() {
        if !rustix::process::geteuid().is_root() {
            println!("SKIPPED: only root can make folders of others");
            return;
        }
        let root = tempfile::tempdir().expect("folder");
        let (theirs, own, link) =
            (root.path().join("theirs"), root.path().join("own"), root.path().join("link"));
        create_dir(&own).expect("create");
        create_dir(&theirs).expect("create");
        chown(&theirs, Some(NOBODY), None).expect("owner");
        assert!(refused(&theirs.join("lab"), &theirs));
        symlink(&own, &link).expect("link");
        assert!(check(&link.join("lab")).is_ok(), "our own link to our own folder");
        lchown(&link, Some(NOBODY), None).expect("owner");
        assert!(refused(&link.join("lab"), &link));
        let inward = root.path().join("inward");
        symlink(&theirs, &inward).expect("link");
        assert!(refused(&inward.join("lab"), &theirs), "our link into their folder");
    }

    #[test]
    fn folder_that_only_we_can_read_is_private() {
        let root = tempfile::tempdir().expect("folder");
        for (mode, private) in [(0o700, true), (0o710, false), (0o755, false)] {
            set_permissions(root.path(), Permissions::from_mode(mode)).expect("mode");
            assert_eq!(is_private(root.path()), private, "{mode:o}");
        }
        assert!(!is_private(&root.path().join("missing")));
    }
}
