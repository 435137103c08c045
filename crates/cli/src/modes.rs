//! The second half of `crosslane explain`: how streams move their data, who chose that, and what they counted.

use crate::table::{Table, size};
use anyhow::Result;
use crosslane_node::rule::text;
use crosslane_status::{ChosenBy, Circuit, Direction, Role};
use crosslane_wire::local::{self, Action, Rule};
use crosslane_wire::rule;
use serde::Serialize;
use std::io::Write;

/// The mode of a stream, who chose it, and how its bytes were moved.
#[derive(Debug, Serialize)]
pub(crate) struct Modes {
    transfer: String,
    transfer_by: ChosenBy,
    /// The present rule with that choice, if a rule chose.
    transfer_rule: Option<String>,
    offload: bool,
    offload_by: ChosenBy,
    offload_rule: Option<String>,
    sent: Direction,
    received: Direction,
    wakes: u64,
    sleeps: u64,
}

/// The mode of this circuit's stream, who chose it, and how its bytes were moved.
pub(crate) fn of(circuit: &Circuit, rules: &[Rule]) -> Modes {
    let offload = if circuit.offload { "on" } else { "off" };
    let is_transfer = |action: Action| matches!(action, Action::Transfer(_));
    let is_offload = |action: Action| matches!(action, Action::Offload(_));
    Modes {
        transfer: circuit.transfer.clone(),
        transfer_by: circuit.transfer_by,
        transfer_rule: by_rule(circuit, (circuit.transfer_by, &circuit.transfer), rules, is_transfer),
        offload: circuit.offload,
        offload_by: circuit.offload_by,
        offload_rule: by_rule(circuit, (circuit.offload_by, offload), rules, is_offload),
        sent: circuit.sent,
        received: circuit.received,
        wakes: circuit.wakes,
        sleeps: circuit.sleeps,
    }
}

/// The present rule that `says` what a rule said when the stream began; `None` if the rules have changed.
fn by_rule(
    circuit: &Circuit,
    (by, says): (ChosenBy, &str),
    rules: &[Rule],
    kind: impl Fn(Action) -> bool,
) -> Option<String> {
    if by != ChosenBy::Rule {
        return None;
    }
    let role = match circuit.role {
        Role::Client => local::Role::Client,
        Role::Server => local::Role::Server,
    };
    let wanted = |action| kind(action).then_some(());
    let (_, found) = rule::first(rules, role, &circuit.program, circuit.server, wanted)?;
    let text = text(found);
    (text.split_whitespace().nth(1) == Some(says)).then_some(text)
}

/// Prints a table of streams by their descriptors, two lines for each, and the rules that chose for them.
///
/// # Errors
/// Those of `out`.
pub(crate) fn print(streams: &[(i32, &Modes)], out: &mut impl Write) -> Result<()> {
    let mut table = Table::new(
        ">fd|mode|offload||>bcopy|>read zcopy|>write zcopy|>transaction|>copied|>offloaded|>records|>control|\
         >cancelled",
    );
    for (fd, modes) in streams {
        let offload = if modes.offload { "yes" } else { "no" };
        let head =
            [fd.to_string(), chosen(&modes.transfer, modes.transfer_by), chosen(offload, modes.offload_by)];
        table.row(line(head, "sent", &modes.sent));
        table.row(line(Default::default(), "received", &modes.received));
    }
    if table.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    table.print(out)?;
    for (fd, modes) in streams {
        for rule in [&modes.transfer_rule, &modes.offload_rule].into_iter().flatten() {
            writeln!(out, "descriptor {fd}: by the rule `{rule}`")?;
        }
        if let Some(why) = fallen_back(modes) {
            writeln!(out, "descriptor {fd}: {why}")?;
        }
    }
    Ok(())
}

/// The line of one direction.
fn line([fd, transfer, offload]: [String; 3], name: &str, moved: &Direction) -> [String; 13] {
    [
        fd,
        transfer,
        offload,
        name.to_owned(),
        size(moved.bcopy),
        size(moved.read_zcopy),
        size(moved.write_zcopy),
        size(moved.transaction),
        size(moved.copied),
        size(moved.offloaded),
        moved.records.to_string(),
        moved.control.to_string(),
        moved.cancelled.to_string(),
    ]
}

/// Why bytes went by Bcopy although another mode was forced.
fn fallen_back(modes: &Modes) -> Option<&'static str> {
    match modes.transfer.as_str() {
        "read-zcopy" if modes.sent.bcopy > 0 => Some(
            "read-zcopy is for sends of 8 KB or more that may wait, from registered buffers (xl_alloc, \
             `crosslane run --malloc`), over one cable at most; all else goes by bcopy",
        ),
        "write-zcopy" if modes.received.bcopy > 0 => Some(
            "write-zcopy is for receives into buffers of xl_alloc with XL_ALLOC_OPEN, over one cable at most; \
             all else goes by bcopy",
        ),
        _ => None,
    }
}

/// `auto`, `bcopy (program)`: the choice, and who made it unless nobody did.
fn chosen(what: &str, by: ChosenBy) -> String {
    match by {
        ChosenBy::Default => what.to_owned(),
        by => format!("{what} ({by})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    fn circuit(transfer: &str) -> Circuit {
        let at = |address: &str| address.parse().expect("address");
        Circuit {
            program: "curl".to_owned(),
            transfer: transfer.to_owned(),
            transfer_by: ChosenBy::Rule,
            sent: Direction { bcopy: 2048, copied: 2048, records: 2, ..Direction::default() },
            ..Circuit::between(at("10.86.0.1:5"), at("10.86.0.2:80"))
        }
    }

    fn rules() -> [Rule; 1] {
        let address = IpAddr::from([10, 86, 0, 0]);
        let (action, role, program) = (Action::Transfer(1), local::Role::Client, "c*".to_owned());
        [Rule { action, role, program, address, prefix: 24, port_min: 0, port_max: u16::MAX }]
    }

    #[test]
    fn mode_choice_is_shown_with_its_rule_while_it_holds() {
        let modes = |transfer| of(&circuit(transfer), &rules()).transfer_rule;
        assert_eq!(modes("bcopy").as_deref(), Some("transfer bcopy client c* 10.86.0.0/24:*"));
        assert_eq!(modes("read-zcopy"), None, "the rules are others now");
    }

    #[test]
    fn mode_shows_why_bytes_went_another_way() {
        let mut modes = of(&circuit("read-zcopy"), &rules());
        assert!(fallen_back(&modes).is_some_and(|why| why.contains("registered buffers")), "{modes:?}");
        modes.sent = Direction { read_zcopy: 2048, ..Direction::default() };
        assert_eq!(fallen_back(&modes), None);
        assert_eq!(fallen_back(&of(&circuit("auto"), &rules())), None);
    }

    #[test]
    fn modes_have_a_line_per_stream_and_direction() {
        let modes = of(&circuit("bcopy"), &rules());
        let mut out = Vec::new();
        print(&[(5, &modes)], &mut out).expect("printed");
        let text = String::from_utf8(out).expect("text");
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[2][..6], ["5", "bcopy", "(rule)", "no", "sent", "2.0"], "{text}");
        assert_eq!(lines[3][..3], ["received", "0", "B"]);
        assert!(text.ends_with("descriptor 5: by the rule `transfer bcopy client c* 10.86.0.0/24:*`\n"));
    }
}
