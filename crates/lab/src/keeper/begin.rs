//! How a keeper starts: its own namespaces, the lab's lock, a description of the lab.

use crate::LabError;
use crate::config::Order;
use crate::folder::{self, Folder};
use crate::machine::image;
use crate::namespace::{become_root, inode, new_network};
use crate::plan::{MACHINE_CONTROL, address, address6};
use crate::process::Identity;
use crate::state::{HostState, State};
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use std::os::fd::{AsRawFd, OwnedFd};

/// Moves into a new network namespace, and into a new user namespace where that is needed.
pub(super) fn leave_home() -> Result<(Option<OwnedFd>, OwnedFd), LabError> {
    if rustix::process::geteuid().is_root() {
        // Root in a container may lack the right.
        if let Ok(home) = new_network() {
            return Ok((None, home));
        }
    }
    let user = become_root()?;
    Ok((Some(user), new_network()?))
}

/// Takes the lab's lock, which shows that its keeper lives.
pub(super) fn lock(folder: &Folder) -> Result<OwnedFd, LabError> {
    let lock = open(folder.file(folder::LOCK), OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .map_err(LabError::io("open the lab's lock"))?;
    flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(LabError::io("take the lab's lock"))?;
    Ok(lock)
}

/// The lab as it is before anything runs in it.
pub(super) fn describe(
    folder: &Folder,
    order: &Order,
    user: Option<&OwnedFd>,
    networks: &[OwnedFd],
    tun: bool,
) -> Result<State, LabError> {
    let keeper = i32::try_from(std::process::id())
        .ok()
        .and_then(Identity::of)
        .ok_or_else(|| LabError::Keeper("/proc is not mounted".to_owned()))?;
    let accelerator = order.options.machines.as_ref().map(|_| image::accelerator()).transpose()?;
    let mut hosts = Vec::new();
    for (id, network) in (1..).zip(networks) {
        hosts.push(HostState {
            name: format!("h{id}"),
            id,
            address: address(id),
            address6: address6(id),
            control: accelerator
                .map_or_else(|| folder.file(&format!("h{id}.sock")), |_| MACHINE_CONTROL.into()),
            config: folder.file(&format!("h{id}.toml")),
            log: folder.file(&format!("h{id}.log")),
            network: network.as_raw_fd(),
            inode: inode(network)?,
            daemon: None,
        });
    }
    Ok(State {
        name: order.options.name.clone(),
        topology: order.options.topology,
        mark: format!("{}:{}:{}", order.options.name, keeper.pid, keeper.start),
        keeper,
        ready: false,
        user: user.map(AsRawFd::as_raw_fd),
        // A machine has a TUN device of its own.
        tun: tun || accelerator.is_some(),
        program: order.programs.keeper.clone(),
        sockets: order.programs.sockets.clone(),
        accelerator: accelerator.map(str::to_owned),
        hosts,
        cables: order.options.cables(),
        cut: Vec::new(),
    })
}
