//! Daemons joined by posted cables: set-up and control messages go through queues of stores, and land later.

mod support;

use crosslane_wire::local::Request;
use serde_json::Value;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use support::joined::join;
use support::*;

/// Ports of host `host` of a chain of `hosts`.
fn ports(lab: &Lab, host: u16, hosts: u16, more: &str) -> String {
    let port = |cable: u16, side: &str| {
        let path = lab.path(&format!("c{cable}"));
        format!(
            "[[port]]\nname = \"c{cable}\"\nkind = \"posted\"\ncable = \"{}\"\nside = \"{side}\"\n{more}\n",
            path.display()
        )
    };
    let right = if host < hosts { port(host, "a") } else { String::new() };
    let left = if host > 1 { port(host - 1, "b") } else { String::new() };
    right + &left
}

/// A chain of hosts that all know each other.
fn chain(hosts: u16, more: &str) -> Lab {
    let mut lab = Lab::new();
    for host in 1..=hosts {
        let ports = ports(&lab, host, hosts, more);
        lab.configure(host.into(), host, &[], &ports);
    }
    (1..=hosts).for_each(|host| lab.start(host.into()));
    (1..=hosts).for_each(|host| wait_known(&lab, host.into(), hosts));
    lab
}

fn wait_known(lab: &Lab, host: usize, hosts: u16) {
    let all = usize::from(hosts) - 1;
    lab.wait(host, "all hosts", |status| {
        let up = |port: &Value| port["link"] == "up";
        status["hosts"].as_array().is_some_and(|known| known.len() == all)
            && status["ports"].as_array().unwrap().iter().all(up)
    });
}

#[test]
fn posted_cables_come_up_with_any_delay() {
    for more in ["delay_us = 0", "delay_us = 10", "delay_us = [0, 1000]\nseed = 3", "combine = false"] {
        let lab = chain(3, more);
        assert_eq!(lab.status(1)["counters"]["violations"], 0, "{more}");
    }
}

#[test]
fn posted_cable_with_a_small_window_comes_up() {
    for more in ["window = \"4M\"", "window = \"8M\"\ndelay_us = [0, 500]"] {
        chain(2, more);
    }
}

#[test]
fn posted_cable_comes_up_again_after_its_daemon_was_killed() {
    let mut lab = chain(2, "delay_us = [0, 1000]");
    for _ in 0..3 {
        lab.kill(2);
        lab.wait(1, "the loss", |status| status["ports"][0]["link"] == "down");
        lab.start(2);
        (1..=2).for_each(|host| wait_known(&lab, host, 2));
    }
}

/// A message that lands while the other daemon goes to sleep, or has just gone, is not left for the next event.
#[test]
fn posted_messages_wake_daemons_whenever_they_land() {
    let lab = chain(2, "delay_us = 0");
    let mut joined = join(&lab, 2);
    let (waiter, event) = joined.server.waiter();
    let (circuit, token) = joined.near.key();
    let begin = Instant::now();
    for round in 0..1000_u64 {
        // The other daemon has just been woken, and sleeps again as soon as it has nothing to do.
        let pause = Instant::now() + Duration::from_micros(round % 100 * 2);
        while Instant::now() < pause {}
        joined.client.tell(&Request::Wake { circuit, token, waiter }, &[]);
        wait_readable(event.as_fd());
        assert!(event.clear());
    }
    // One that was left waited for a timer of the daemon's.
    assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", begin.elapsed());
}
