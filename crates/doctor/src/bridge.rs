//! Each bridge of the machine, its driver, link, packets and windows.

use crate::config_space::{Express, Sizes};
use crate::finding::{Check, Finding, Severity};
use crate::iommu::Iommu;
use crate::known::{Family, Support};
use crate::memory;
use crate::pci::{Function, Machine, Upstream};
use crate::tree::{Tree, Unread};

/// Says what there is, and of each bridge what is wrong with it.
pub(crate) fn examine(tree: &Tree, machine: &Machine, iommu: &Iommu, found: &mut Vec<Finding>) {
    if let Err(why) = machine.functions {
        let seen = match why {
            Unread::Absent => "this machine has no list of PCI devices (/sys/bus/pci/devices)",
            _ => "the list of PCI devices (/sys/bus/pci/devices) cannot be read",
        };
        let finding = Finding::new(Check::PciList, Severity::Warning, seen);
        found.push(
            finding
                .why("bridges cannot be looked for; a container may hide them")
                .fix("run this outside the container"),
        );
    }
    for function in &machine.ivshmem {
        found.push(shared_memory(function));
    }
    if !machine.has_bridge() {
        let seen = match machine.functions {
            Ok(count) => format!("no NTB bridge among {count} PCI devices"),
            Err(_) => "no NTB bridge".to_owned(),
        };
        let finding = Finding::new(Check::Bridge, Severity::Info, seen);
        found
            .push(finding.why(
                "Crosslane uses software ports here: `kind = \"soft\"`, the default, needs no hardware",
            ));
        return;
    }
    for (function, family) in &machine.bridges {
        bridge(tree, function, *family, iommu, found);
    }
    link_power(tree, found);
}

fn bridge(tree: &Tree, function: &Function, family: Family, iommu: &Iommu, found: &mut Vec<Finding>) {
    let before = found.len();
    found.push(Finding::new(
        Check::Bridge,
        Severity::Ok,
        format!("{} ({:04x}:{:04x})", family.name, function.vendor, function.device),
    ));
    found.extend(support(family));
    if family.support != Support::NoDriver {
        found.push(driver(function, family));
    }
    links(function, found);
    packets(function, found);
    memory::examine(tree, function, family, found);
    found.extend(errors(function));
    found.extend(node(tree, function));
    found.extend(iommu.about(function));
    for finding in &mut found[before..] {
        finding.about.get_or_insert_with(|| function.address.clone());
    }
}

fn support(family: Family) -> Option<Finding> {
    match family.support {
        Support::Possible => None,
        Support::NeighbourTranslates => Some(
            Finding::new(
                Check::Support,
                Severity::Warning,
                "a neighbour's side of this bridge sets where its stores go in this machine's memory",
            )
            .why("without an IOMMU that translates, a neighbour reaches all of it")
            .fix("switch the IOMMU on (docs/hardware.md), or connect only machines that trust each other"),
        ),
        Support::NoDriver => Some(
            Finding::new(Check::Support, Severity::Error, "Linux has no NTB driver for this family")
                .why("`crosslane_ntb` works on the drivers below drivers/ntb/hw of the kernel")
                .fix("use a bridge of another family (docs/hardware.md)"),
        ),
    }
}

fn driver(function: &Function, family: Family) -> Finding {
    let (module, wanted) = (family.driver, family.function_driver);
    let load = if wanted == module {
        format!("`modprobe {module}`")
    } else {
        format!("`modprobe {wanted}`, `modprobe {module}`")
    };
    match function.driver.as_deref() {
        Some(driver) if driver == wanted || driver == module => {
            Finding::new(Check::Driver, Severity::Ok, format!("driver {driver} has it"))
        }
        Some(other) => Finding::new(Check::Driver, Severity::Error, format!("driver {other} has it, not {wanted}"))
            .why("the kernel's NTB devices come from the bridge's own driver")
            .fix(format!("take it away (`echo {} >/sys/bus/pci/drivers/{other}/unbind`) and {load}", function.address)),
        None => Finding::new(Check::Driver, Severity::Error, "no driver has it")
            .why("without its driver the kernel does not know it as an NTB")
            .fix(format!("{load}; if there is no such module, kernel/README.md says how to build it; if it refuses the bridge, `dmesg` says why (a wrong NTB mode in the firmware, as a rule)")),
    }
}

fn links(function: &Function, found: &mut Vec<Finding>) {
    let (link, above) = (function.link, function.upstream.as_ref());
    if !link.now.is_known() {
        let finding = Finding::new(Check::Link, Severity::Info, "the bridge's PCI function reports no link");
        found.push(finding.why("an NTB inside a processor need not have one of its own; its driver knows the cable's link: `dmesg`, and /sys/kernel/debug/ntb_hw_*"));
        return;
    }
    let slot = above.map(|port| port.link.most).unwrap_or_default();
    let able = link.most.least(slot);
    if link.now.is_below(able) {
        found.push(
            Finding::new(Check::Link, Severity::Warning, format!("the link runs at {}, and both its ends could do {able}", link.now))
                .why("throughput falls with the rate and the number of lanes")
                .fix("put card and cable in again; try another cable (length, retimer) and slot; look at the slot's settings in the firmware (bifurcation, link speed)"),
        );
    } else {
        found.push(Finding::new(Check::Link, Severity::Ok, format!("the link runs at {}", link.now)));
    }
    if slot.is_below(link.most) {
        let port = above.map_or("-", |port| &port.address);
        found.push(
            Finding::new(Check::Slot, Severity::Warning, format!("the bridge could do {}, and the port above it ({port}) {slot}", link.most))
                .why("the slot is what limits throughput")
                .fix("put the bridge into a slot with as many lanes and of the same generation, if the machine has one"),
        );
    }
}

fn packets(function: &Function, found: &mut Vec<Finding>) {
    let own = match &function.express {
        Ok(Express::Sizes(sizes)) => *sizes,
        Ok(Express::Missing) => return,
        Ok(Express::CutShort) | Err(Unread::Denied) => {
            let finding = Finding::new(
                Check::Config,
                Severity::Info,
                "only the first 64 bytes of the configuration space could be read",
            );
            found.push(
                finding
                    .why("sizes of packets (MPS, MRRS) lie behind them, where only root may read")
                    .fix("run this as root"),
            );
            return;
        }
        Ok(Express::Odd) => {
            let finding =
                Finding::new(Check::Config, Severity::Warning, "the configuration space makes no sense");
            found.push(
                finding
                    .why("a device that is gone, or in reset, reads as all ones")
                    .fix("look at `dmesg`; put the card in again and start the machine again"),
            );
            return;
        }
        Err(_) => {
            found.push(Finding::new(Check::Config, Severity::Info, "the configuration space cannot be read"));
            return;
        }
    };
    found.push(payload(own, function.upstream.as_ref()));
    let severity = if own.read_request < 512 { Severity::Warning } else { Severity::Ok };
    let request = Finding::new(
        Check::ReadRequest,
        severity,
        format!("largest read request {} bytes", own.read_request),
    );
    found.push(if severity == Severity::Ok { request } else {
        request.why("small requests slow down what the bridge reads from memory; stores, which are all that streams use, do not care").fix("`pci=pcie_bus_perf` on the kernel's command line, or the firmware's setting")
    });
}

fn payload(own: Sizes, above: Option<&Upstream>) -> Finding {
    let port = above.and_then(|port| match port.express {
        Ok(Express::Sizes(sizes)) => Some((port, sizes)),
        _ => None,
    });
    let finding = |severity, seen: String| Finding::new(Check::Payload, severity, seen);
    let Some((port, sizes)) = port else {
        let seen = format!(
            "largest payload {} of {} bytes; that of the port above is not known",
            own.payload, own.payload_able
        );
        return finding(Severity::Info, seen);
    };
    let able = own.payload_able.min(sizes.payload_able);
    if own.payload > sizes.payload {
        return finding(
            Severity::Error,
            format!(
                "largest payload {} bytes, and {} at the port above ({})",
                own.payload, sizes.payload, port.address
            ),
        )
        .why("the port drops packets that are longer than it takes: malformed TLP, and the link may go down")
        .fix(
            "`pci=pcie_bus_safe` on the kernel's command line, or the same setting for both in the firmware",
        );
    }
    if own.payload < able {
        return finding(Severity::Warning, format!("largest payload {} bytes, and both ends of the link could do {able}", own.payload))
            .why("each packet has 20 to 28 bytes besides its payload: at 128 bytes about 16 % of the link, at 256 about 9 %")
            .fix("`pci=pcie_bus_perf` on the kernel's command line, or the firmware's setting; all that is on the way must do as much");
    }
    finding(
        Severity::Ok,
        format!("largest payload {} bytes, as much as both ends of the link can", own.payload),
    )
}

fn errors(function: &Function) -> Option<Finding> {
    let [correctable, survivable, fatal] = function.errors;
    let seen = format!("errors counted: {correctable} correctable, {survivable} not fatal, {fatal} fatal");
    let severity = if survivable > 0 || fatal > 0 { Severity::Warning } else { Severity::Info };
    (correctable > 0 || survivable > 0 || fatal > 0).then(|| {
        Finding::new(Check::LinkErrors, severity, seen)
            .why("correctable errors cost time, others lose packets: a cable, a connector or a retimer that is not good")
            .fix("watch aer_dev_correctable of the device grow, or not; put card and cable in again, try a shorter cable")
    })
}

fn node(tree: &Tree, function: &Function) -> Option<Finding> {
    let nodes = tree.names("sys/devices/system/node").unwrap_or_default();
    let count = nodes
        .iter()
        .filter(|name| name.strip_prefix("node").is_some_and(|rest| rest.parse::<u32>().is_ok()))
        .count();
    if count < 2 {
        return None;
    }
    Some(match function.node {
        Some(node) => {
            let near = tree.text(&format!("sys/devices/system/node/node{node}/cpulist")).unwrap_or_default();
            Finding::new(
                Check::Node,
                Severity::Info,
                format!("near memory of node {node} of {count}, processors {near}"),
            )
            .why("programs and the daemon on another node store across the sockets' link")
            .fix(format!("run both near it: `numactl --cpunodebind={node} --membind={node}`"))
        }
        None => Finding::new(
            Check::Node,
            Severity::Warning,
            format!("which of {count} nodes it is near is not known"),
        )
        .why("programs cannot be placed near it")
        .fix("the firmware leaves it out of its tables: the slot's place in the board's manual tells it"),
    })
}

fn link_power(tree: &Tree, found: &mut Vec<Finding>) {
    let Ok(policy) = tree.text("sys/module/pcie_aspm/parameters/policy") else { return };
    let chosen = policy
        .split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'))
        .map_or(policy.as_str(), |(chosen, _)| chosen);
    if chosen.starts_with("power") {
        found.push(
            Finding::new(Check::LinkPower, Severity::Warning, format!("links save power: the policy is {chosen}"))
                .why("a link that sleeps takes microseconds to wake, for a message that takes one")
                .fix("`echo performance >/sys/module/pcie_aspm/parameters/policy`, or `pcie_aspm.policy=performance` on the kernel's command line"),
        );
    }
}

fn shared_memory(function: &Function) -> Finding {
    let len = function
        .bars
        .iter()
        .find(|bar| bar.index == 2)
        .map_or("of unknown length".to_owned(), |bar| memory::bytes(bar.len));
    let kind = if function.bars.iter().any(|bar| bar.index == 1) {
        "with doorbells"
    } else {
        "plain: its ends look for news by a timer"
    };
    let seen = format!("memory shared between virtual machines (ivshmem), {len}, {kind}");
    let finding = match function.driver.as_deref() {
        Some("ntb_soft") => Finding::new(Check::Ivshmem, Severity::Ok, format!("{seen}; ntb_soft has it")),
        Some(other) => Finding::new(Check::Ivshmem, Severity::Warning, format!("{seen}; {other} has it"))
            .fix(format!(
                "if it shall be a cable: `echo {} >/sys/bus/pci/drivers/{other}/unbind`, `modprobe ntb_soft`",
                function.address
            )),
        None => Finding::new(Check::Ivshmem, Severity::Info, format!("{seen}; no driver has it"))
            .fix("if it shall be a cable: `modprobe ntb_soft`, `modprobe crosslane_ntb` (kernel/README.md)"),
    };
    finding.about(&function.address).why("`ntb_soft` makes a bridge of it, to the other virtual machine")
}
