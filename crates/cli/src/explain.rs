//! `crosslane explain`: which way the connections of a program go, and why.

use crate::status;
use crate::table::{Table, cell};
use anyhow::{Context, Result};
use crosslane_wire::local::Request;
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{Write, stdout};
use std::path::Path;

/// Prints what the daemon knows of process `pid`, or only of its descriptor `fd`.
///
/// # Errors
/// No daemon answers; it knows no such process.
pub(crate) fn explain(socket: &Path, pid: u32, fd: Option<i32>, json: bool) -> Result<()> {
    let text = status::session(socket)?.text(&Request::Explain { pid })?;
    let mut answer: Value = serde_json::from_str(&text).context("the daemon's answer is not JSON")?;
    if let Some(fd) = fd {
        keep_only(&mut answer, fd);
    }
    let mut out = stdout().lock();
    if json {
        writeln!(out, "{answer:#}")?;
        return Ok(());
    }
    print(&answer, &mut out)
}

/// Drops all rows that speak of another descriptor.
fn keep_only(answer: &mut Value, fd: i32) {
    match answer {
        Value::Array(rows) => {
            rows.retain(|row| row.get("fd").is_none_or(|other| other.as_i64() == Some(fd.into())));
            rows.iter_mut().for_each(|row| keep_only(row, fd));
        }
        Value::Object(fields) => fields.values_mut().for_each(|field| keep_only(field, fd)),
        _ => {}
    }
}

/// Single values first, then each list as a table of its own.
fn print(answer: &Value, out: &mut impl Write) -> Result<()> {
    let Some(fields) = answer.as_object() else {
        return match answer.as_array() {
            Some(rows) => list("connections", rows, out),
            None => Ok(writeln!(out, "{}", cell(answer))?),
        };
    };
    for (name, value) in fields.iter().filter(|(_, value)| !is_table(value)) {
        writeln!(out, "{name}: {}", cell(value))?;
    }
    for (name, value) in fields {
        if let (true, Some(rows)) = (is_table(value), value.as_array()) {
            writeln!(out)?;
            list(name, rows, out)?;
        }
    }
    Ok(())
}

fn is_table(value: &Value) -> bool {
    value.as_array().is_some_and(|rows| rows.iter().all(Value::is_object))
}

fn list(name: &str, rows: &[Value], out: &mut impl Write) -> Result<()> {
    if rows.is_empty() {
        return Ok(writeln!(out, "{name}: none")?);
    }
    let columns: BTreeSet<&String> =
        rows.iter().filter_map(Value::as_object).flat_map(|row| row.keys()).collect();
    let mut table = Table::new(&columns.iter().map(|column| column.as_str()).collect::<Vec<_>>());
    for row in rows {
        table.cells(columns.iter().map(|column| cell(&row[column.as_str()])).collect());
    }
    writeln!(out, "{name}:")?;
    table.print(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn lists_become_tables_and_one_descriptor_can_be_picked() {
        let mut answer = json!({"pid": 7, "streams": [{"fd": 3, "peer": 2}, {"fd": 4}], "notes": []});
        let mut out = Vec::new();
        print(&answer, &mut out).expect("printed");
        let text = String::from_utf8(out).expect("text");
        assert_eq!(text, "pid: 7\n\nnotes: none\n\nstreams:\nFD  PEER\n3   2\n4   -\n");
        keep_only(&mut answer, 4);
        assert_eq!(answer["streams"], json!([{"fd": 4}]));
    }
}
