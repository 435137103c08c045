//! The command that is a machine.

use super::PORTS;
use super::image::{EMULATOR, INITRD, KERNEL, QEMU};
use super::server::{self, VECTORS};
use crate::LabError;
use crate::plan::Machines;
use crate::state::{HostState, State};
use std::ffi::OsString;
use std::path::Path;

/// Slot of a machine's first cable on its PCI bus; the next has the next one, so that `/dev/crosslane0` is the first cable's.
const FIRST_SLOT: usize = 0x10;

/// Processor and words for the kernel of a machine that is emulated. `rep movsb` takes seven times as long as vector moves there (`bench kernel`): it
/// is not said to be fast, so that nobody takes it for long copies. The time stamp counter is this machine's, the same for all processors; the
/// kernel finds by itself that they differ, and each look at the clock is then a system call that reads an emulated timer.
const EMULATED: (&str, &str) = ("max,erms=off,fsrm=off", " tsc=reliable");

/// Socket of port `number` (from 1) of a host's serial device, in the lab's folder.
pub(super) fn port_name(host: &HostState, number: u32) -> String {
    format!("{}.p{number}.sock", host.name)
}

/// QEMU and its arguments for `host` of the lab in `folder`. Console and log are its standard output.
///
/// # Errors
/// [`LabError::Options`] if a path has characters that neither QEMU nor the kernel's command line can have.
pub(crate) fn command(
    machines: &Machines,
    accelerator: &str,
    folder: &Path,
    host: &HostState,
    state: &State,
) -> Result<Vec<OsString>, LabError> {
    let (folder_text, keeper) = (plain(folder)?, plain(&state.program)?);
    let image = plain(&machines.image)?;
    let mut words: Vec<String> = vec![QEMU.into()];
    let mut add = |option: &str, value: String| words.extend([option.to_owned(), value]);
    add("-name", format!("crosslane-{}", host.name));
    add("-M", format!("q35,accel={accelerator}"));
    let (processor, clock) = if accelerator == EMULATOR { EMULATED } else { ("max", "") };
    add("-cpu", processor.into());
    add("-smp", machines.processors.to_string());
    add("-m", machines.memory_mb.to_string());
    add("-display", "none".into());
    add("-nic", "none".into());
    add("-serial", "stdio".into());
    add("-kernel", format!("{image}/{KERNEL}"));
    add("-initrd", format!("{image}/{INITRD}"));
    let words_of_kernel = format!("console=ttyS0 quiet panic=-1 oops=panic{clock}");
    add(
        "-append",
        format!("{words_of_kernel} xl.keeper={keeper} xl.folder={folder_text} xl.host={}", host.name),
    );
    add("-fsdev", "local,id=root,path=/,security_model=none,readonly=on,multidevs=remap".into());
    add("-device", "virtio-9p-pci,fsdev=root,mount_tag=host".into());
    let own = state.cables.iter().filter(|cable| cable.other(host.id).is_some());
    for (at, it) in own.enumerate() {
        let (socket, number) = (server::path(folder, it), it.number);
        add("-chardev", format!("socket,id=c{number},path={}", socket.display()));
        let slot = FIRST_SLOT + at;
        add("-device", format!("ivshmem-doorbell,chardev=c{number},vectors={VECTORS},addr={slot:#x}"));
    }
    add("-device", format!("virtio-serial-pci,max_ports={}", PORTS + 1));
    for number in 1..=PORTS {
        let socket = port_name(host, number);
        add("-chardev", format!("socket,id=p{number},path={folder_text}/{socket},server=on,wait=off"));
        add("-device", format!("virtserialport,chardev=p{number},nr={number},name=crosslane{number}"));
    }
    words.extend(["-no-reboot", "-nodefaults", "-no-user-config"].map(str::to_owned));
    Ok(words.into_iter().map(OsString::from).collect())
}

fn plain(path: &Path) -> Result<&str, LabError> {
    let text = path.to_str().filter(|text| !text.contains([' ', ',', '"', '\t', '\n']));
    text.ok_or_else(|| {
        let path = path.display();
        LabError::Options(format!(
            "{path}: a lab of virtual machines can have no blank, comma or quote in its paths"
        ))
    })
}
