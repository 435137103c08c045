//! nginx, with two workers that drop root's rights, and curl.

use crate::program::{Program, run};
use crate::rig::Rig;
use crate::{WORK, package};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// nginx and curl.
#[derive(Clone, Debug)]
pub struct Web {
    nginx: PathBuf,
    curl: PathBuf,
}

/// How a server is set up.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Whether files go out by `sendfile`.
    pub sendfile: bool,
    /// Whether it speaks TLS.
    pub tls: bool,
}

impl Web {
    /// Finds them; `None`, loudly, if one is missing.
    pub fn find() -> Option<Self> {
        Some(Self { nginx: package::need("nginx")?, curl: package::need("curl")? })
    }

    /// Starts a server on `address` that gives out `root`.
    ///
    /// # Errors
    /// It does not listen.
    pub fn server(
        &self,
        rig: &Rig,
        host: &str,
        address: &str,
        port: u16,
        root: &Path,
        setup: Setup,
    ) -> Result<Program> {
        let place = rig.file(&format!("nginx-{port}"));
        let config = set_up(&place, address, port, root, setup)?;
        let mut command = rig.command(host, &self.nginx)?;
        command.arg("-e").arg(place.join("error.log")).arg("-c").arg(&config);
        let mut server = Program::start(&mut command)?;
        server.listens(port).with_context(|| crate::program::text_of(&place.join("error.log")))?;
        Ok(server)
    }

    /// Gets `urls` by one curl, one after the other over as few connections as can be, into the files beside them.
    /// Returns how many connections it made.
    ///
    /// # Errors
    /// A request fails.
    pub fn get(
        &self,
        rig: &Rig,
        host: &str,
        authority: Option<&Path>,
        urls: &[(String, PathBuf)],
    ) -> Result<u64> {
        let mut command = rig.command(host, &self.curl)?;
        command.args(["--silent", "--show-error", "--fail", "--noproxy", "*", "--max-time", "50"]);
        command.args(["--write-out", "%{num_connects}\\n"]);
        if let Some(authority) = authority {
            command.arg("--cacert").arg(authority);
        }
        for (url, file) in urls {
            command.arg(url).arg("--output").arg(file);
        }
        let text = run(&mut command, WORK)?.text();
        let made: Vec<u64> = text.lines().filter_map(|line| line.trim().parse().ok()).collect();
        ensure!(made.len() == urls.len(), "curl's report: {text}");
        Ok(made.iter().sum())
    }
}

/// Certificate of the server that listens on `port`: its own authority.
pub fn authority(rig: &Rig, port: u16) -> PathBuf {
    rig.file(&format!("nginx-{port}")).join("cert.pem")
}

/// Makes the folder `place` of a server on `address` that gives out `root`; its configuration.
///
/// # Errors
/// A file cannot be written.
pub fn set_up(place: &Path, address: &str, port: u16, root: &Path, setup: Setup) -> Result<PathBuf> {
    fs::create_dir(place)?;
    if setup.tls {
        certificate(place, address)?;
    }
    let config = place.join("nginx.conf");
    fs::write(&config, text(place, address, port, root, setup))?;
    Ok(config)
}

fn text(place: &Path, address: &str, port: u16, root: &Path, setup: Setup) -> String {
    let (at, root) = (place.display(), root.display());
    // An ordinary user is root in its lab, and nobody else is known there.
    let user = if rustix::process::geteuid().is_root() { "www-data" } else { "root root" };
    let sendfile = if setup.sendfile { "on" } else { "off" };
    let (ssl, keys) = if setup.tls {
        (" ssl", format!("ssl_certificate {at}/cert.pem;\nssl_certificate_key {at}/key.pem;\n"))
    } else {
        ("", String::new())
    };
    let address = if address.contains(':') { format!("[{address}]") } else { address.to_owned() };
    format!(
        "user {user};\nworker_processes 2;\ndaemon off;\npid {at}/pid;\nerror_log {at}/error.log;\n\
         events {{ worker_connections 256; }}\n\
         http {{\naccess_log off;\nsendfile {sendfile};\nkeepalive_timeout 60;\n{keys}\
         client_body_temp_path {at}/body;\nproxy_temp_path {at}/proxy;\nfastcgi_temp_path {at}/fastcgi;\n\
         uwsgi_temp_path {at}/uwsgi;\nscgi_temp_path {at}/scgi;\n\
         server {{ listen {address}:{port}{ssl}; root {root}; }}\n}}\n"
    )
}

/// A certificate for `address` that signs itself.
fn certificate(place: &Path, address: &str) -> Result<()> {
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]);
    openssl.args([
        "-days",
        "2",
        "-subj",
        "/CN=crosslane",
        "-addext",
        &format!("subjectAltName=IP:{address}"),
    ]);
    openssl.arg("-keyout").arg(place.join("key.pem")).arg("-out").arg(place.join("cert.pem"));
    run(&mut openssl, WORK)?;
    Ok(())
}
