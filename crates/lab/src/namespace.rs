//! Making and entering namespaces. Only for processes of one thread.

use crate::LabError;
use crate::process::Identity;
use rustix::fs::{CWD, Mode, OFlags, open};
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, mount, mount_change, move_mount,
    open_tree,
};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};
use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Where control groups are mounted.
const CONTROL_GROUPS: &str = "/sys/fs/cgroup";

/// Leaves the user namespace for a new one in which this process is root; returns the new namespace.
///
/// # Errors
/// [`LabError::Forbidden`] where the kernel does not allow it.
pub(crate) fn become_root() -> Result<OwnedFd, LabError> {
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    detach(UnshareFlags::NEWUSER).map_err(forbidden("user namespaces"))?;
    let map = |file: &str, text: String| {
        fs::write(format!("/proc/self/{file}"), text)
            .map_err(LabError::io(format!("write /proc/self/{file}")))
    };
    map("setgroups", "deny".to_owned())?;
    map("uid_map", format!("0 {} 1\n", uid.as_raw()))?;
    map("gid_map", format!("0 {} 1\n", gid.as_raw()))?;
    own("user")
}

/// Moves this process into a new network namespace and returns that.
///
/// # Errors
/// [`LabError::Forbidden`] where the kernel does not allow it.
pub(crate) fn new_network() -> Result<OwnedFd, LabError> {
    detach(UnshareFlags::NEWNET).map_err(forbidden("network namespaces"))?;
    own("net")
}

/// Moves this process into the network namespace `network`.
pub(crate) fn enter_network(network: BorrowedFd<'_>) -> Result<(), LabError> {
    move_into_link_name_space(network, Some(LinkNameSpaceType::Network))
        .map_err(LabError::io("enter a network namespace"))
}

/// Moves this process into the user namespace `user`, if it is not there already.
pub(crate) fn enter_user(user: BorrowedFd<'_>) -> Result<(), LabError> {
    if inode(own("user")?)? == inode(user)? {
        return Ok(());
    }
    move_into_link_name_space(user, Some(LinkNameSpaceType::User))
        .map_err(LabError::io("enter a user namespace"))
}

/// Makes `/sys` show this process's network namespace, in a mount namespace of its own, as `ip netns exec` does: a
/// sysfs shows the namespace that it was mounted in. Control groups mounted below it stay. Where the kernel does not
/// allow it (in a container that hides parts of `/sys`), nothing changes.
pub(crate) fn show_interfaces() {
    let tree =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    let slave = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    if detach(UnshareFlags::NEWNS).is_err() || mount_change("/", slave).is_err() {
        return;
    }
    let groups = open_tree(CWD, CONTROL_GROUPS, tree);
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC | MountFlags::NODEV;
    if mount("sysfs", "/sys", "sysfs", flags, None).is_ok()
        && let Ok(groups) = groups
    {
        let _ = move_mount(groups, "", CWD, CONTROL_GROUPS, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH);
    }
}

/// A namespace that `holder` has open as descriptor `number`.
pub(crate) fn held_by(holder: Identity, number: i32) -> Result<OwnedFd, LabError> {
    let path = format!("/proc/{}/fd/{number}", holder.pid);
    let fd = open(&path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .map_err(LabError::io(format!("open {path}")))?;
    if !holder.alive() {
        return Err(LabError::io(format!("open {path}"))(Errno::SRCH));
    }
    Ok(fd)
}

/// Inode of a namespace: its identity as long as somebody holds it.
pub(crate) fn inode(namespace: impl AsFd) -> Result<u64, LabError> {
    rustix::fs::fstat(namespace).map(|stat| stat.st_ino).map_err(LabError::io("look at a namespace"))
}

fn own(kind: &str) -> Result<OwnedFd, LabError> {
    let path = format!("/proc/self/ns/{kind}");
    open(&path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).map_err(LabError::io(format!("open {path}")))
}

fn forbidden(what: &'static str) -> impl FnOnce(Errno) -> LabError {
    move |errno| LabError::Forbidden { what, source: errno.into() }
}

fn detach(flags: UnshareFlags) -> Result<(), Errno> {
    // SAFETY: only the flags of user, network and mount namespaces are passed (see the callers above); the unsafe
    // effect of `unshare` is that of `FILES`, which takes the descriptor table from other threads.
    unsafe { unshare_unsafe(flags) }
}
