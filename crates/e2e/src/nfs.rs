//! NFS without a kernel's: the server `nfs-ganesha`, and the programs of `libnfs`.

use crate::program::{Program, run};
use crate::rig::{Rig, open_folder};
use crate::{WORK, package};
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// Where the server's modules may be.
const MODULES: [&str; 3] =
    ["/usr/lib/x86_64-linux-gnu/ganesha", "/usr/lib/aarch64-linux-gnu/ganesha", "/usr/lib64/ganesha"];

/// A shell script: mounts a file system in memory on the folder `$0`, if possible, and executes its arguments. Not
/// every file system can be exported: a container's overlay has no handles for its files.
const IN_MEMORY: &str = r#"mount -t tmpfs none "$0" 2>/dev/null; exec "$@""#;
/// What the server logs if it cannot export the folder; it runs on.
const NOT_EXPORTED: &str = "Lookup failed on path";

/// A server of NFS 4 that exports a folder.
#[derive(Debug)]
pub struct Nfs {
    /// The server.
    pub server: Program,
    /// The exported folder, seen from the server's mount namespace: nobody else sees the mount, so nothing is left behind.
    pub folder: PathBuf,
    copy: PathBuf,
    address: String,
    port: u16,
}

impl Nfs {
    /// Starts a server, plain; `None`, loudly, if a program is missing or the server can export nothing here.
    ///
    /// # Errors
    /// It does not listen.
    pub fn start(rig: &Rig, host: &str, port: u16) -> Result<Option<Self>> {
        let (Some(server), Some(copy)) = (package::need("ganesha.nfsd"), package::need("nfs-cp")) else {
            return Ok(None);
        };
        let module = |folder: &&str| format!("{folder}/libfsalvfs.so");
        let Some(modules) = MODULES.iter().find(|folder| Path::new(&module(folder)).is_file()) else {
            return Ok(package::need(&module(&MODULES[0])).and(None));
        };
        if !rustix::process::geteuid().is_root() {
            package::skip("the server of NFS needs root's rights");
            return Ok(None);
        }
        let (folder, state) = (rig.file("export"), rig.file("state"));
        for path in [&folder, &state] {
            fs::create_dir(path)?;
            open_folder(path)?;
        }
        let address = rig.address(host)?.to_string();
        let file = rig.file("ganesha.conf");
        fs::write(&file, config(modules, &address, port, &folder, &state))?;
        let mut command = rig.plain(host, "unshare")?;
        command
            .args(["--mount", "sh", "-c", IN_MEMORY])
            .arg(&folder)
            .arg(server)
            .args(["-F", "-f"])
            .arg(file)
            .arg("-L")
            .arg(state.join("log"))
            .arg("-p")
            .arg(state.join("pid"));
        let mut server = Program::start(&mut command)?;
        let log = || fs::read_to_string(state.join("log")).unwrap_or_default();
        server.listens(port).with_context(log)?;
        if let Some(line) = log().lines().find(|line| line.contains(NOT_EXPORTED)) {
            package::skip(&format!("the server of NFS can export nothing here: {line}"));
            return Ok(None);
        }
        let folder = PathBuf::from(format!("/proc/{}/root{}", server.pid(), folder.display()));
        Ok(Some(Self { server, folder, copy, address, port }))
    }

    /// Copies an exported file to `file`.
    ///
    /// # Errors
    /// It fails.
    pub fn fetch(&self, rig: &Rig, host: &str, name: &str, file: &Path) -> Result<()> {
        let mut command = rig.plain(host, &self.copy)?;
        run(command.arg(self.url(name)).arg(file), WORK)?;
        Ok(())
    }

    /// Copies `file` to a new exported file. Of at most 2 KB: longer writes by NFS 4 fail within libnfs 4.0, before
    /// anything is sent.
    ///
    /// # Errors
    /// It fails.
    pub fn store(&self, rig: &Rig, host: &str, file: &Path, name: &str) -> Result<()> {
        let mut command = rig.plain(host, &self.copy)?;
        run(command.arg(file).arg(self.url(name)), WORK)?;
        Ok(())
    }

    fn url(&self, name: &str) -> String {
        format!("nfs://{}/export/{name}?version=4&nfsport={}", self.address, self.port)
    }
}

fn config(modules: &str, address: &str, port: u16, folder: &Path, state: &Path) -> String {
    let (folder, state) = (folder.display(), state.display());
    format!(
        "NFS_CORE_PARAM {{ Protocols = 4; NFS_Port = {port}; Enable_NLM = false; Enable_RQUOTA = false; \
         Enable_UDP = false; Bind_addr = {address}; Plugins_Dir = {modules}; }}\n\
         NFS_KRB5 {{ Active_krb5 = false; }}\n\
         NFSV4 {{ Graceless = true; RecoveryBackend = fs; RecoveryRoot = {state}; Minor_Versions = 0; }}\n\
         EXPORT {{ Export_Id = 1; Path = {folder}; Pseudo = /export; Access_Type = RW; Squash = None; SecType = sys; Transports = TCP; Protocols = 4; \
         FSAL {{ Name = VFS; }} }}\n"
    )
}
