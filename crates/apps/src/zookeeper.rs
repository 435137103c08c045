//! ZooKeeper's server, as Debian has it.

use crate::{Site, file};
use anyhow::Result;
use std::fs;
use std::process::Command;

/// Debian's Java, rather than one of another version in front of it.
pub const JAVA: &str = "/usr/lib/jvm/default-java/bin/java";
/// ZooKeeper, which names the libraries that it uses.
pub const CLASSES: &str = "/usr/share/java/zookeeper.jar";

/// One server without others, with its data in a folder of its own.
///
/// # Errors
/// Its files cannot be written.
pub fn server(at: &Site<'_>) -> Result<Command> {
    let folder = at.own_folder("zookeeper")?;
    let data = folder.join("data");
    fs::create_dir_all(&data)?;
    let text = format!(
        "tickTime=2000\ndataDir={}\nclientPortAddress={}\nclientPort={}\nadmin.enableServer=false\n\
         maxClientCnxns=0\n",
        data.display(),
        at.address,
        at.port
    );
    let settings = file(&folder, "zoo.cfg", &text)?;
    let mut command = at.command(JAVA)?;
    command.args(["-Xmx256m", "-Dzookeeper.forceSync=no", "-cp", CLASSES]);
    command.arg("org.apache.zookeeper.server.quorum.QuorumPeerMain").arg(settings);
    Ok(command)
}
