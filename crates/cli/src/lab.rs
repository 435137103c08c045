//! `crosslane lab`.

use crate::table::{Table, count};
use crate::{exit, status};
use anyhow::Result;
use crosslane_lab::{Entry, Lab, Options, Place, Preload, State, default_base, enter, list as labs};
use crosslane_status::Status;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::{Write, stdout};
use std::time::Instant;

/// Brings a lab up and lets it live on. Ctrl-C takes it down again: its keeper sees us end.
pub(crate) fn up(options: &Options) -> Result<()> {
    sweep()?;
    let begin = Instant::now();
    if options.machines.is_some() {
        eprintln!(
            "crosslane: {} boot; without KVM that takes a minute or two",
            count(options.hosts.into(), "virtual machine")
        );
    }
    let lab = Lab::up(options)?;
    let state = lab.state().clone();
    lab.detach()?;
    let mut out = stdout().lock();
    let name = if options.name == "default" { String::new() } else { format!(" --name {}", options.name) };
    writeln!(
        out,
        "lab `{}` is up after {:.1} s: {}, {}",
        state.name,
        begin.elapsed().as_secs_f64(),
        count(state.hosts.len(), "host"),
        count(state.cables.len(), "cable")
    )?;
    for host in &state.hosts {
        writeln!(out, "  {}  {}  {}", host.name, host.address, host.address6)?;
    }
    if let Some(accelerator) = &state.accelerator {
        writeln!(
            out,
            "  (each a virtual machine, by {accelerator}; programs and files are this machine's, what they write is its memory)"
        )?;
    }
    if !state.tun {
        writeln!(out, "  (no /dev/net/tun for this user: the fabric addresses are on the veth pairs)")?;
    }
    writeln!(out, "run a program:  crosslane lab exec{name} h1 -- CMD    end it:  crosslane lab down{name}")?;
    Ok(())
}

/// Becomes a program in a host.
pub(crate) fn exec(name: &str, host: String, preload: Preload, command: Vec<OsString>) -> Result<()> {
    let lab = Lab::attach(name, None)?;
    let (state, folder) = (lab.state().clone(), lab.folder().to_owned());
    state.host(&host)?;
    let (error, code) =
        enter(&Entry { state, folder, host, preload, command, tied: false, place: Place::Inside });
    Err(exit::with_code(code, error.to_string()))
}

/// Shows a lab that is up.
pub(crate) fn status(name: &str, as_json: bool) -> Result<()> {
    let lab = Lab::attach(name, None)?;
    let state = lab.state();
    let looks: Vec<Result<Status, String>> =
        state.hosts.iter().map(|host| lab.status(&host.name).map_err(|error| error.to_string())).collect();
    let mut out = stdout().lock();
    if as_json {
        return Ok(writeln!(out, "{:#}", status_json(state, looks)?)?);
    }
    writeln!(
        out,
        "lab `{}`: {}, {}, files in {}",
        state.name,
        count(state.hosts.len(), "host"),
        count(state.cables.len(), "cable"),
        lab.folder().display()
    )?;
    let mut timed = Vec::new();
    let mut table = Table::new("host|address|daemon|links|>sessions|>streams|>other hosts");
    for (host, look) in state.hosts.iter().zip(looks) {
        let daemon = host.daemon.filter(|d| d.alive()).map_or("gone".to_owned(), |d| d.pid.to_string());
        let address = host.address.to_string();
        for port in look.iter().flat_map(|status| &status.ports) {
            timed.extend(
                port.pacing
                    .as_ref()
                    .map(|kept| format!("{} {}: {}", host.name, port.name, status::kept(kept))),
            );
        }
        match look {
            Ok(status) => table.row([
                host.name.clone(),
                address,
                daemon,
                links(&status),
                status.sessions.to_string(),
                status.counters.streams_open.to_string(),
                status.hosts.len().to_string(),
            ]),
            Err(_) => {
                let none = || "-".to_owned();
                table.row([host.name.clone(), address, daemon, "no answer".into(), none(), none(), none()]);
            }
        }
    }
    table.print(&mut out)?;
    timed.iter().try_for_each(|line| writeln!(out, "{line}"))?;
    Ok(())
}

fn links(status: &Status) -> String {
    let all: Vec<String> = status.ports.iter().map(|port| format!("{}:{}", port.name, port.link)).collect();
    if all.is_empty() { "none".to_owned() } else { all.join(" ") }
}

fn status_json(state: &State, looks: Vec<Result<Status, String>>) -> Result<Value> {
    let mut all = serde_json::to_value(state)?;
    for (host, look) in all["hosts"].as_array_mut().into_iter().flatten().zip(looks) {
        match look {
            Ok(status) => host["status"] = serde_json::to_value(status)?,
            Err(error) => host["error"] = error.into(),
        }
    }
    Ok(all)
}

/// Removes what labs left behind whose keepers were killed, and says so.
fn sweep() -> Result<()> {
    for name in Lab::sweep(&default_base())? {
        eprintln!("crosslane: removed what was left of lab `{name}`: its keeper had been killed");
    }
    Ok(())
}

/// Takes down one lab, or all of them.
pub(crate) fn down(name: Option<&str>) -> Result<()> {
    sweep()?;
    let base = default_base();
    let names = name.map_or_else(|| labs(&base), |name| Ok(vec![name.to_owned()]))?;
    let mut out = stdout().lock();
    for name in &names {
        Options::named(name).check()?;
        let was = Lab::clean(name, Some(&base))?;
        writeln!(out, "lab `{name}` {}", if was { "is down" } else { "was not up" })?;
    }
    Ok(())
}

/// Lists the labs of this user.
pub(crate) fn list(as_json: bool) -> Result<()> {
    let base = default_base();
    let mut table = Table::new("lab|>hosts|state");
    let mut rows = Vec::new();
    for name in labs(&base)? {
        let hosts = Lab::attach(&name, Some(&base)).ok().map(|lab| lab.state().hosts.len());
        let state = if hosts.is_some() { "up" } else { "left over: take it down" };
        rows.push(json!({"name": name, "hosts": hosts, "up": hosts.is_some()}));
        table.row([name, hosts.map_or("-".to_owned(), |n| n.to_string()), state.to_owned()]);
    }
    let mut out = stdout().lock();
    if as_json { Ok(writeln!(out, "{:#}", Value::from(rows))?) } else { table.print(&mut out) }
}
