//! Databases: Redis, memcached, PostgreSQL.

use anyhow::{Context, Result, ensure};
use crosslane_e2e::postgres::Postgres;
use crosslane_e2e::program::run;
use crosslane_e2e::python::Script;
use crosslane_e2e::redis::Redis;
use crosslane_e2e::rig::Rig;
use crosslane_e2e::{WORK, memcached, package, payload};

fn redis_benchmark(clients: u32, requests: u32) -> Result<()> {
    let Some(redis) = Redis::find() else { return Ok(()) };
    let Some(rig) = Rig::pair_with_room()? else { return Ok(()) };
    // With stores that are under way for a millisecond, a request takes more than two.
    let requests = if rig.is_posted()? { requests / 10 } else { requests };
    let to = rig.address("h2")?.to_string();
    let measure = rig.measure(&["h1", "h2"])?;
    let port = rig.port();
    let server = redis.server(&rig, "h2", port)?;
    redis.benchmark(&rig, "h1", &to, port, clients, requests)?;
    // 64 bytes of value with each SET and each GET, and each test has connections of its own.
    measure.carried(u64::from(requests) * 128, u64::from(clients) * 2)?;
    drop(server);
    measure.gave_back()
}

#[test]
fn redis_one_client() -> Result<()> {
    redis_benchmark(1, 20_000)
}

#[test]
fn redis_fifty_clients() -> Result<()> {
    redis_benchmark(50, 50_000)
}

#[test]
fn redis_big_values() -> Result<()> {
    big_values(|_| {})
}

/// Its allocator is jemalloc, which gets what is not large.
#[test]
fn redis_big_values_from_buffers() -> Result<()> {
    big_values(Rig::large_allocations_are_buffers)
}

fn big_values(prepare: impl FnOnce(&Rig)) -> Result<()> {
    let Some(redis) = Redis::find() else { return Ok(()) };
    let Some(rig) = Rig::pair()? else { return Ok(()) };
    prepare(&rig);
    let to = rig.address("h2")?.to_string();
    let measure = rig.measure(&["h1", "h2"])?;
    let port = rig.port();
    let server = redis.server(&rig, "h2", port)?;
    let sizes = [1, 100_000, 5_000_001, 64 << 20];
    for size in sizes {
        redis.big_value(&rig, "h1", &to, port, size)?;
    }
    measure.carried(2 * sizes.iter().sum::<usize>() as u64, 8)?;
    drop(server);
    measure.gave_back()
}

/// A replica keeps a long connection to its master, and gets its data as a file over it.
#[test]
fn redis_replica() -> Result<()> {
    let Some(redis) = Redis::find() else { return Ok(()) };
    let Some(rig) = Rig::pair()? else { return Ok(()) };
    let (one, two) = (rig.address("h1")?.to_string(), rig.address("h2")?.to_string());
    let measure = rig.measure(&["h1", "h2"])?;
    let (master_port, replica_port) = (rig.port(), rig.port());
    let master = redis.server(&rig, "h2", master_port)?;
    redis.big_value(&rig, "h1", &two, master_port, 8 << 20)?;
    let replica = redis.server(&rig, "h1", replica_port)?;
    let follow = ["REPLICAOF", &two, &master_port.to_string()];
    redis.command(&rig, "h1", &one, replica_port, &follow, None)?;
    crosslane_e2e::wait_for("the replica has it", WORK, || {
        let len = redis
            .command(&rig, "h2", &one, replica_port, &["STRLEN", "big"], None)
            .map_err(|error| error.to_string())?
            .text();
        if len.trim() == (8 << 20).to_string() { Ok(()) } else { Err(len) }
    })?;
    measure.carried(24 << 20, 4)?;
    drop((master, replica));
    measure.gave_back()
}

#[test]
fn memcached_with_threads() -> Result<()> {
    let (Some(program), Some(python)) = (package::need("memcached"), package::python()) else {
        return Ok(());
    };
    let Some(rig) = Rig::pair()? else { return Ok(()) };
    let address = rig.address("h2")?.to_string();
    let measure = rig.measure(&["h1", "h2"])?;
    let port = rig.port();
    let server = memcached::server(&rig, "h2", &program, &address, port)?;
    let mut client = Script::Memcached.command(&rig, "h1", &python)?;
    run(client.args([&address, &port.to_string()]), WORK)?;
    measure.carried(6 * 2 * 5_000_000, 6)?;
    drop(server);
    measure.gave_back()
}

#[test]
fn postgresql_with_pgbench() -> Result<()> {
    let Some(rig) = Rig::pair_with_room()? else { return Ok(()) };
    let measure = rig.measure(&["h1", "h2"])?;
    let Some(postgres) = Postgres::start(&rig, "h2", rig.port())? else { return Ok(()) };
    postgres.bench(&rig, "h1", &["-i", "-q", "-s", "2"])?;
    let text = postgres.bench(&rig, "h1", &["-c", "8", "-j", "4", "-t", "100"])?.text();
    ensure!(text.contains("number of transactions actually processed: 800/800"), "{text}");
    let text =
        postgres.bench(&rig, "h1", &["-n", "-S", "-M", "prepared", "-C", "-c", "4", "-t", "25"])?.text();
    ensure!(text.contains("number of transactions actually processed: 100/100"), "{text}");
    let sums = "SELECT (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(delta) FROM pgbench_history), \
                (SELECT sum(tbalance) FROM pgbench_tellers) = (SELECT sum(bbalance) FROM pgbench_branches)";
    let agree = postgres.sql(&rig, "h1", sums, &[])?;
    ensure!(agree == b"t|t\n", "the books do not balance: {}", String::from_utf8_lossy(&agree));
    copy_there_and_back(&rig, &postgres)?;
    // 8 clients, the first of -C's 100 connections, and a few of psql's; 16 MB there and back.
    measure.carried(32 << 20, 8 + 25)?;
    drop(postgres);
    measure.gave_back()
}

/// `COPY` of 16 MB into a table and out of it again.
fn copy_there_and_back(rig: &Rig, postgres: &Postgres) -> Result<()> {
    let text: Vec<u8> = payload::bytes(5, 8 << 20).iter().flat_map(|b| hex(*b)).collect();
    let lines: Vec<u8> = text.chunks(4096).flat_map(|line| [line, b"\n"].concat()).collect();
    postgres.sql(rig, "h1", "CREATE TABLE t (line text)", &[])?;
    postgres.sql(rig, "h1", "COPY t FROM STDIN", &lines).context("COPY FROM")?;
    let got = postgres.sql(rig, "h1", "COPY t TO STDOUT", &[]).context("COPY TO")?;
    payload::equal(&lines, &got)
}

fn hex(byte: u8) -> [u8; 2] {
    let digit = |n: u8| if n < 10 { b'0' + n } else { b'a' + n - 10 };
    [digit(byte >> 4), digit(byte & 15)]
}
