//! What `send` and `recv` do before their bytes are copied: `crosslane-steps server PORT` in one host of a lab, `crosslane-steps ADDRESS
//! PORT [--json]` in another. docs/performance.md has the command.

use anyhow::{Result, bail};
use crosslane_e2e::steps;
use std::io::{Read, Write};
use std::net::{Ipv6Addr, SocketAddr, TcpListener};
use std::process::Command;

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["server", port] => serve(port.parse()?),
        ["program", server] => steps::run_program(server.parse()?),
        [address, port, rest @ ..] => {
            let server = SocketAddr::new(address.parse()?, port.parse()?);
            let mut program = Command::new(std::env::current_exe()?);
            program.args(["program", &server.to_string()]);
            let counts = steps::count(program)?;
            if rest == ["--json"] {
                println!("{}", serde_json::to_string(&counts)?);
            } else {
                show(&counts);
            }
            Ok(())
        }
        _ => bail!("server PORT, or ADDRESS PORT [--json]"),
    }
}

/// Echoes the bytes of one connection after the other.
fn serve(port: u16) -> Result<()> {
    for stream in TcpListener::bind((Ipv6Addr::UNSPECIFIED, port))?.incoming() {
        let (mut stream, mut buffer) = (stream?, [0; 4096]);
        stream.set_nodelay(true)?;
        while let Ok(got @ 1..) = stream.read(&mut buffer) {
            stream.write_all(&buffer[..got])?;
        }
    }
    Ok(())
}

fn show(counts: &[steps::Count]) {
    println!(
        "call  bytes  frames  depth  branches  taken  indirect  shared lines  lines  locked  instructions"
    );
    for it in counts {
        println!(
            "{:4} {:6} {:7} {:6} {:9} {:6} {:9} {:13} {:6} {:7} {:13}{}",
            format!("{:?}", it.call).to_lowercase(),
            it.bytes,
            it.frames,
            it.depth,
            it.branches,
            it.taken,
            it.indirect,
            it.shared_lines,
            it.lines,
            it.locked,
            it.instructions,
            if it.system_calls > 0 {
                format!("  and {} system calls", it.system_calls)
            } else {
                String::new()
            }
        );
    }
}
