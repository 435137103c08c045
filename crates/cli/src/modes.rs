//! `crosslane explain`, its second half: how streams move their data, by whose choice, and what they counted.

use crate::status;
use crate::table::{Table, cell};
use anyhow::Result;
use crosslane_node::rule::text;
use crosslane_wire::local::{Action, Role, Rule};
use crosslane_wire::rule;
use serde_json::{Value, json};
use std::io::Write;
use std::net::SocketAddr;

/// Counters of a direction, as the daemon names them.
const COUNTERS: [&str; 9] = [
    "bcopy",
    "read_zcopy",
    "write_zcopy",
    "transaction",
    "copied",
    "offloaded",
    "records",
    "control",
    "cancelled",
];

/// What was chosen for the stream of this circuit, by whom, and how it moved its bytes.
pub(crate) fn of(circuit: &Value, rules: &[Rule]) -> Value {
    json!({
        "transfer": circuit["transfer"],
        "transfer_by": circuit["transfer_by"],
        "transfer_rule": by_rule(circuit, "transfer_by", rules, |action| matches!(action, Action::Transfer(_))),
        "offload": circuit["offload"],
        "offload_by": circuit["offload_by"],
        "offload_rule": by_rule(circuit, "offload_by", rules, |action| matches!(action, Action::Offload(_))),
        "sent": circuit["sent"],
        "received": circuit["received"],
        "wakes": circuit["wakes"],
        "sleeps": circuit["sleeps"],
    })
}

/// The present rule that says what a rule said when the stream began; if it says something else now, nothing is known.
fn by_rule(circuit: &Value, by: &str, rules: &[Rule], kind: impl Fn(Action) -> bool) -> Option<String> {
    if circuit[by] != "rule" {
        return None;
    }
    let role = if circuit["role"] == "server" { Role::Server } else { Role::Client };
    let server: SocketAddr = circuit["server"].as_str()?.parse().ok()?;
    let wanted = |action| kind(action).then_some(());
    let (_, found) = rule::first(rules, role, circuit["program"].as_str()?, server, wanted)?;
    let text = text(found);
    let says = match circuit["offload"].as_bool() {
        Some(on) if by == "offload_by" => {
            if on {
                "on"
            } else {
                "off"
            }
        }
        _ => circuit["transfer"].as_str()?,
    };
    (text.split_whitespace().nth(1) == Some(says)).then_some(text)
}

/// Prints a table of the streams among `rows`, two lines for each, and the rules that chose for them.
///
/// # Errors
/// Those of `out`.
pub(crate) fn print(rows: &[Value], out: &mut impl Write) -> Result<()> {
    let mut table = Table::new(&[
        ">fd",
        "mode",
        "offload",
        "",
        ">bcopy",
        ">read zcopy",
        ">write zcopy",
        ">transaction",
        ">copied",
        ">offloaded",
        ">records",
        ">control",
        ">cancelled",
    ]);
    for row in rows.iter().filter(|row| !row["modes"].is_null()) {
        let modes = &row["modes"];
        for direction in ["sent", "received"] {
            let sending = direction == "sent";
            let said = |text: String| if sending { text } else { String::new() };
            let of = |at: usize| &modes[direction][COUNTERS[at]];
            table.row([
                said(cell(&row["fd"])),
                said(chosen(cell(&modes["transfer"]), &modes["transfer_by"])),
                said(chosen(
                    if modes["offload"] == true { "yes" } else { "no" }.to_owned(),
                    &modes["offload_by"],
                )),
                direction.to_owned(),
                status::size(of(0)),
                status::size(of(1)),
                status::size(of(2)),
                status::size(of(3)),
                status::size(of(4)),
                status::size(of(5)),
                cell(of(6)),
                cell(of(7)),
                cell(of(8)),
            ]);
        }
    }
    if table.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    table.print(out)?;
    for row in rows {
        for what in ["transfer_rule", "offload_rule"] {
            if let Some(rule) = row["modes"][what].as_str() {
                writeln!(out, "descriptor {}: by the rule `{rule}`", cell(&row["fd"]))?;
            }
        }
        if let Some(why) = fallen_back(&row["modes"]) {
            writeln!(out, "descriptor {}: {why}", cell(&row["fd"]))?;
        }
    }
    Ok(())
}

/// Why bytes went by Bcopy although another mode was chosen by hand.
fn fallen_back(modes: &Value) -> Option<&'static str> {
    let carried = |direction: &str| modes[direction]["bcopy"].as_u64() > Some(0);
    match modes["transfer"].as_str()? {
        "read-zcopy" if carried("sent") => Some(
            "read-zcopy is for sends of 8 KB or more that may wait, from registered buffers (xl_alloc, \
             `crosslane run --malloc`), over one cable at most; all else goes by bcopy",
        ),
        "write-zcopy" if carried("received") => Some(
            "write-zcopy is for receives into buffers of xl_alloc with XL_ALLOC_OPEN, over one cable at most; \
             all else goes by bcopy",
        ),
        _ => None,
    }
}

/// `auto`, `bcopy (program)`: by whom, unless by nobody.
fn chosen(what: String, by: &Value) -> String {
    match by.as_str() {
        None | Some("default") => what,
        Some(by) => format!("{what} ({by})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    fn circuit(transfer: &str) -> Value {
        json!({
            "client": "10.86.0.1:5", "server": "10.86.0.2:80", "role": "client", "program": "curl",
            "transfer": transfer, "transfer_by": "rule", "offload": false, "offload_by": "default",
            "sent": {"bcopy": 2048, "copied": 2048, "records": 2}, "received": {"bcopy": 0},
        })
    }

    fn rules() -> [Rule; 1] {
        let address = IpAddr::from([10, 86, 0, 0]);
        let (action, role, program) = (Action::Transfer(1), Role::Client, "c*".to_owned());
        [Rule { action, role, program, address, prefix: 24, port_min: 0, port_max: u16::MAX }]
    }

    #[test]
    fn a_choice_is_told_with_its_rule_as_long_as_that_says_so() {
        let told = |transfer| of(&circuit(transfer), &rules())["transfer_rule"].clone();
        assert_eq!(told("bcopy"), "transfer bcopy client c* 10.86.0.0/24:*");
        assert_eq!(told("read-zcopy"), Value::Null, "the rules are others now");
    }

    #[test]
    fn what_a_mode_could_not_carry_is_told_with_the_reason() {
        let mut told = of(&circuit("read-zcopy"), &rules());
        assert!(fallen_back(&told).is_some_and(|why| why.contains("registered buffers")), "{told}");
        told["sent"] = json!({"read_zcopy": 2048, "bcopy": 0});
        assert_eq!(fallen_back(&told), None);
        assert_eq!(fallen_back(&of(&circuit("auto"), &rules())), None);
    }

    #[test]
    fn each_stream_has_a_line_for_each_direction() {
        let rows =
            [json!({"fd": 4, "way": "tcp"}), json!({"fd": 5, "modes": of(&circuit("bcopy"), &rules())})];
        let mut out = Vec::new();
        print(&rows, &mut out).expect("printed");
        let text = String::from_utf8(out).expect("text");
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[2][..6], ["5", "bcopy", "(rule)", "no", "sent", "2.0"], "{text}");
        assert_eq!(lines[3][..3], ["received", "0", "B"]);
        assert!(text.ends_with("descriptor 5: by the rule `transfer bcopy client c* 10.86.0.0/24:*`\n"));
    }
}
