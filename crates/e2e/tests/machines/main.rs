//! Hosts that are virtual machines, each with a kernel of its own, in a ring of NTB bridges: unmodified programs between them, while a
//! cable is pulled and a machine is reset.
//!
//! Needs what `make vm-image` builds. Without KVM a machine is slow, and three share two processors: times are long and nothing is timed.

mod everyday;

use anyhow::{Context, Result, bail, ensure};
use crosslane_apps::mpi::quoted;
use crosslane_e2e::package;
use crosslane_e2e::program::{Printed, Program, run};
use crosslane_e2e::wait_for;
use crosslane_lab::{Lab, LabError, Machines, Options, Preload};
use everyday::Place;
use std::time::Duration;

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(300);
/// How long iperf3 may take until a part of its bytes has gone.
const BEGUN: Duration = Duration::from_secs(60);
/// How many connections are tried until one is a stream: a daemon that has to wait for a processor answers late, and a connection goes by
/// the kernel's TCP after half a second then.
const TRIES: usize = 8;
/// Bytes that iperf3 sends while its cable is pulled.
const SENT: u64 = 24 << 20;
/// Length of the value that goes through redis, bytes.
const VALUE: usize = 4 << 20;

fn up() -> Result<Option<Lab>> {
    let machines = match Machines::find(None) {
        Ok(machines) => machines,
        Err(LabError::Missing { what, .. }) => {
            package::skip(&format!("there is no {what}"));
            return Ok(None);
        }
        Err(error) => return Err(error.into()),
    };
    let options = Options { machines: Some(machines), patience: PATIENCE, ..Options::scratch("machines") };
    Ok(Some(Lab::up(&options)?))
}

fn program(lab: &Lab, host: &str, words: &[&str]) -> Result<std::process::Command> {
    let mut command = lab.command(host, Preload::On, words[0])?;
    command.args(&words[1..]);
    Ok(command)
}

fn output(lab: &Lab, host: &str, words: &[&str]) -> Result<Printed> {
    run(&mut program(lab, host, words)?, PATIENCE)
}

/// Bytes that programs of a host have sent by streams.
fn sent(lab: &Lab, host: &str) -> Result<u64> {
    Ok(lab.status(host)?.counters.stream_tx_bytes)
}

/// How often streams of the first two hosts have moved to another way.
fn moved(lab: &Lab) -> Result<u64> {
    Ok(lab.status("h1")?.counters.moved + lab.status("h2")?.counters.moved)
}

/// Programs see their own kernel, end with their own codes, and read what we write.
fn programs_run_inside(lab: &Lab) -> Result<()> {
    let mut echo = program(lab, "h2", &["sh", "-c", "hostname; cat; exit 3"])?;
    let input = vec![b'x'; 200_000];
    let mut echo = Program::start_with(&mut echo, &input)?;
    let status = echo.wait(PATIENCE)?;
    ensure!(status.code() == Some(3), "{status}: {}", echo.tail());
    ensure!(echo.output() == [b"h2\n", &input[..]].concat(), "other output: {}", echo.tail());
    let missing = Program::start(&mut program(lab, "h2", &["/no/such/program"])?)?.wait(PATIENCE)?;
    ensure!(missing.code() == Some(127), "{missing}");
    Ok(())
}

/// A program whose client has a terminal has one, too, of its size, also when that changes.
fn programs_have_a_terminal(lab: &Lab) -> Result<()> {
    const INSIDE: &str = "test -t 0 && test -t 1 && test -t 2 && stty size; tty; read line; echo got $line; \
                          trap 'stty size; exit 5' WINCH; while :; do sleep 0.2; done";
    let inside = program(lab, "h2", &["sh", "-c", INSIDE])?;
    let words = [inside.get_program()].into_iter().chain(inside.get_args());
    let words: Vec<_> = words.map(|word| quoted(&word.to_string_lossy())).collect();
    // Again and again, until the program is there to hear it.
    let outside = format!(
        "stty rows 33 cols 77; (while sleep 1 && stty rows 44 cols 55 && stty rows 33 cols 78; do :; done) </dev/tty & exec {}",
        words.join(" ")
    );
    let mut script = std::process::Command::new("script");
    script.args(["-qefc", &outside, "/dev/null"]);
    let mut script = Program::start_with(&mut script, b"typed\n")?;
    let status = script.wait(PATIENCE)?;
    let output = String::from_utf8_lossy(&script.output()).into_owned();
    ensure!(status.code() == Some(5), "{status}: {output}");
    for part in ["/dev/pts/", "got typed\r\n"] {
        ensure!(output.contains(part), "no `{part}` in: {output}");
    }
    ensure!(output.contains("33 7") || output.contains("44 55"), "no size in: {output}");
    Ok(())
}

/// A program whose client outside is killed ends, as one in a namespace does.
fn programs_end_with_their_client(lab: &Lab) -> Result<()> {
    let mut sleeper = Program::start(&mut program(lab, "h1", &["sh", "-c", "echo here; sleep 8642"])?)?;
    sleeper.says("here")?;
    sleeper.kill()?;
    wait_for("the program in the machine has ended", PATIENCE, || {
        let found =
            program(lab, "h1", &["pgrep", "-f", "sleep 864[2]"]).map_err(|error| error.to_string())?;
        let status = Program::start(&mut { found }).and_then(|mut it| it.wait(PATIENCE));
        match status.map_err(|error| error.to_string())?.code() {
            Some(1) => Ok(()),
            code => Err(format!("pgrep: {code:?}")),
        }
    })
}

/// A value goes to the next machine and back by streams, whole.
fn redis_keeps_a_value(lab: &Lab) -> Result<()> {
    let address = lab.address("h2")?.to_string();
    let words =
        ["redis-server", "--bind", &address, "--port", "6400", "--save", "", "--protected-mode", "no"];
    let mut server = Program::start(&mut program(lab, "h2", &words)?)?;
    server.says("Ready to accept connections")?;
    let value: Vec<u8> = (0..VALUE).map(|at| b'a' + u8::try_from(at * 7 % 26).unwrap_or(0)).collect();
    let cli = ["redis-cli", "-h", &address, "-p", "6400"];
    for _ in 0..TRIES {
        let before = sent(lab, "h1")?;
        let mut set = program(lab, "h1", &[&cli[..], &["-x", "set", "value"]].concat())?;
        let set = Program::start_with(&mut set, &value)?.finish(PATIENCE)?;
        ensure!(set.output.starts_with(b"OK"), "set: {}", set.text());
        let got = output(lab, "h1", &[&cli[..], &["get", "value"]].concat())?;
        ensure!(
            got.output.strip_suffix(b"\n") == Some(&value),
            "another value came back: {} bytes",
            got.output.len()
        );
        if sent(lab, "h1")? - before >= VALUE as u64 {
            server.end();
            return Ok(());
        }
    }
    bail!("no connection of {TRIES} became a stream: {:?}", lab.status("h1")?.counters)
}

/// Starts a client in the first machine until its bytes go by a stream: `host`, it or the server's, has sent more than `least`.
fn begun(lab: &Lab, host: &str, words: &[&str], least: u64) -> Result<Program> {
    for _ in 0..TRIES {
        let before = sent(lab, host)?;
        let mut client = Program::start(&mut program(lab, "h1", words)?)?;
        let begun = wait_for("the client has begun", BEGUN, || {
            let now = sent(lab, host).map_err(|error| error.to_string())? - before;
            if now > least || client.is_over() { Ok(now) } else { Err(format!("{now} bytes")) }
        });
        if begun.is_ok_and(|bytes| bytes > least) {
            return Ok(client);
        }
        client.end();
    }
    bail!("no connection of {TRIES} became a stream: {:?}", lab.status(host)?.counters)
}

/// iperf3 sends on while its cable is pulled: its stream goes by the third machine.
fn iperf3_goes_on_through_a_cut(lab: &mut Lab) -> Result<()> {
    let (before, moved_before) = (sent(lab, "h1")?, moved(lab)?);
    let (address, bytes) = (lab.address("h2")?.to_string(), SENT.to_string());
    let mut server = Program::start(&mut program(lab, "h2", &["iperf3", "-s", "--forceflush"])?)?;
    server.says("Server listening")?;
    let client = begun(lab, "h1", &["iperf3", "-c", &address, "-n", &bytes, "--forceflush"], SENT / 16)?;
    ensure!(lab.cut("h1", "h2")?.changed, "the cable was cut already");
    client.finish(PATIENCE)?;
    server.end();
    let after = sent(lab, "h1")? - before;
    ensure!(after >= SENT, "{after} bytes by streams");
    ensure!(moved(lab)? > moved_before, "no stream has moved");
    lab.mend("h1", "h2")?;
    Ok(lab.wait_links(PATIENCE)?)
}

/// A machine loses its power; the others live on, and it comes back.
fn machine_rejoins_after_a_reset(lab: &mut Lab) -> Result<()> {
    lab.kill_host("h3")?;
    ensure!(lab.daemon("h3")?.is_none(), "the machine runs on");
    let address = lab.address("h2")?.to_string();
    output(lab, "h1", &["ping", "-c", "3", &address])?;
    lab.start_daemon("h3")?;
    lab.wait_host("h3", PATIENCE)?;
    lab.wait_links(PATIENCE)?;
    output(lab, "h3", &["ping", "-c", "3", &address]).map(drop)
}

/// Nobody broke the protocol.
fn no_violations(lab: &Lab) -> Result<()> {
    for host in ["h1", "h2", "h3"] {
        let violations = lab.status(host)?.counters.violations;
        ensure!(violations == 0, "{violations} violations at {host}");
    }
    Ok(())
}

/// Programs of every day lose no byte by a cut or a reset.
fn everyday_programs_lose_no_byte(lab: &mut Lab) -> Result<()> {
    let all = ["scp", "sshd", "nginx", "curl"].map(package::need);
    if all.iter().any(Option::is_none) {
        return Ok(());
    }
    let place = Place::new()?;
    everyday::scp_goes_on_through_a_cut(lab, &place).context("scp")?;
    everyday::curl_goes_on_through_a_reset(lab, &place).context("nginx and curl")?;
    everyday::pgbench_goes_on_through_a_cut(lab, &place).context("pgbench")
}

/// One after the other in the same ring: it takes a minute to boot.
#[test]
fn machines_in_a_ring_survive_cuts_and_resets_and_lose_no_byte() -> Result<()> {
    if package::need("iperf3").and(package::need("redis-server")).is_none() {
        return Ok(());
    }
    let Some(mut lab) = up()? else { return Ok(()) };
    programs_run_inside(&lab).context("programs")?;
    programs_have_a_terminal(&lab).context("a terminal")?;
    programs_end_with_their_client(&lab).context("a killed client")?;
    redis_keeps_a_value(&lab).context("redis")?;
    iperf3_goes_on_through_a_cut(&mut lab).context("a cut")?;
    machine_rejoins_after_a_reset(&mut lab).context("a reset")?;
    everyday_programs_lose_no_byte(&mut lab)?;
    no_violations(&lab)?;
    Ok(lab.down()?)
}
