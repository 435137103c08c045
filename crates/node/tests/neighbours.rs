//! A neighbour that speaks in the name of others: what it forges is outdone, or not believed.

mod support;

use crosslane_fabric::links::Keys;
use crosslane_node::config::Config;
use crosslane_node::keys::{KeyRing, generate, public_text};
use crosslane_wire::HostId;
use crosslane_wire::control::{Control, LinkState};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use support::liar::{Liar, record};
use support::*;

/// Host 2, which the test holds, beside host 1, beside host 3. Lines of configuration of the two are given.
fn beside(one: &str, three: &str) -> (Lab, Liar) {
    let mut lab = Lab::new();
    lab.configure(1, 1, &[port("c", true), port("d", true)], one);
    lab.configure(3, 3, &[port("d", false)], three);
    lab.start(1);
    lab.start(3);
    let liar = Liar::new(&lab, "c", 2);
    lab.wait(1, "host 3", |status| status["hosts"].as_array().unwrap().iter().any(|host| host["id"] == 3));
    (lab, liar)
}

fn forged_in_many_ways(truth: &LinkState) -> Vec<LinkState> {
    let number = truth.incarnation;
    [u64::MAX, number.wrapping_add((1 << 63) - 1), number.wrapping_add(1 << 63), number + 1, number]
        .into_iter()
        .map(|incarnation| record(3, incarnation, u64::MAX, &[]))
        .collect()
}

#[test]
fn forged_record_removes_nobody() {
    let (lab, mut liar) = beside("", "");
    liar.say(&Control::LinkStates(vec![record(2, 1, 1, &[1])]));
    let mut truth = liar.hear_of(3, |_| true);
    for _ in 0..3 {
        for forged in forged_in_many_ways(&truth) {
            liar.say(&Control::LinkStates(vec![forged.clone()]));
            truth = liar.hear_of(3, |record| record.neighbours == truth.neighbours);
        }
        lab.wait_hosts(1, &[2, 3]);
        lab.wait_hosts(3, &[1, 2]);
    }
    assert_eq!(truth.neighbours, [HostId(1)]);
    liar.say(&Control::LinkStates(vec![
        record(1, u64::MAX / 3, 9, &[]),
        record(1, u64::MAX / 3 * 2, 9, &[]),
    ]));
    liar.hear_of(1, |record| record.neighbours.len() == 2);
    lab.wait_hosts(3, &[1, 2]);
}

#[test]
fn flood_of_records_is_passed_on_slowly() {
    let mut lab = Lab::new();
    lab.configure(1, 1, &[port("c", true), port("d", true)], "");
    lab.start(1);
    let (mut liar, mut other) = (Liar::new(&lab, "c", 2), Liar::new(&lab, "d", 3));
    let began = Instant::now();
    let mut buffer = Vec::new();
    let mut heard = 0_u64;
    let mut listen = |other: &mut Liar| {
        other.poll();
        while let Some(message) = other.cable.receive(&mut buffer) {
            if let Control::LinkStates(records) = message {
                heard += records.iter().filter(|record| record.origin.0 == 9).count() as u64;
            }
        }
        heard
    };
    for number in 1..=4000 {
        liar.say(&Control::LinkStates(vec![record(9, 5, number, &[2])]));
        until("room", || {
            liar.poll();
            liar.cable.flush();
            liar.cable.has_room().then_some(())
        });
        listen(&mut other);
    }
    lab.wait_hosts(1, &[2, 3]);
    let most = 16 + 4 * (began.elapsed().as_secs() + 1) + 1;
    let heard = listen(&mut other);
    assert!((1..=most).contains(&heard), "{heard} records were passed on, {most} allowed");
    other.hear_of(9, |record| record.sequence == 4000);
}

#[test]
fn probe_of_a_host_that_is_elsewhere_goes_nowhere() {
    let (lab, mut liar) = beside("", "");
    let echo = |from, to, token| Control::Echo {
        from: HostId(from),
        to: HostId(to),
        token,
        ttl: 255,
        stamp: 0,
        reply: false,
    };
    liar.say(&Control::LinkStates(vec![record(2, 1, 1, &[1])]));
    lab.wait_hosts(3, &[1, 2]);
    for from in [0, 1, 3, 9] {
        liar.say(&echo(from, 1, 1));
        liar.say(&echo(from, 3, 1));
    }
    for (to, token) in [(1, 2), (3, 3)] {
        liar.say(&echo(2, to, token));
        let answer = liar.hear();
        assert!(
            matches!(answer, Control::Echo { from, token: it, reply: true, .. } if from.0 == to && it == token),
            "{answer:?}"
        );
    }
}

#[test]
fn neighbour_that_sets_up_without_end_is_left_alone_for_a_while() {
    use crosslane_port::Port;
    use crosslane_port::soft::{SoftConfig, SoftPort};
    use crosslane_wire::scratchpad::DOORBELL_SETUP;
    let mut lab = Lab::new();
    lab.configure(1, 1, &[port("c", true)], "");
    lab.start(1);
    let mut port = SoftPort::connect(SoftConfig::new(lab.path("c"))).unwrap();
    until("the daemon says why", || {
        while port.poll_event().is_some() {}
        for _ in 0..100 {
            port.ring_peer_doorbell(1 << DOORBELL_SETUP);
            // Rings that the daemon has not heard are one.
            std::thread::sleep(Duration::from_micros(100));
        }
        let why = lab.status(1)["ports"][0]["why"].as_str().unwrap_or_default().to_owned();
        why.contains("set-up without end").then_some(())
    });
}

/// Files of keys in a folder: each host's private one, and the public ones.
struct Keyring {
    folder: tempfile::TempDir,
    lines: Vec<String>,
}

impl Keyring {
    fn new(hosts: &[u16]) -> Self {
        let mut keyring = Self { folder: tempfile::tempdir().unwrap(), lines: vec![] };
        hosts.iter().for_each(|host| keyring.add(*host, &host.to_string()));
        keyring
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Another key of a host, in the file of this name.
    fn add(&mut self, host: u16, name: &str) {
        let key = generate(&self.path(name)).unwrap();
        self.lines.push(format!("{host} {}", public_text(&key.verifying_key())));
        self.write();
    }

    fn write(&self) {
        std::fs::write(self.path("keys"), self.lines.join("\n")).unwrap();
    }

    fn lines_for(&self, host: u16) -> String {
        format!("key = {:?}\nkeys = {:?}", self.path(&host.to_string()), self.path("keys"))
    }

    fn sign(&self, host: u16, mut record: LinkState) -> LinkState {
        let config = Config::parse(&format!("host = {host}\n{}", self.lines_for(host))).unwrap();
        record.seal = KeyRing::load(&config).unwrap().sign(&record.sealed_bytes());
        record
    }
}

#[test]
fn signed_records_make_forged_ones_unbelieved_and_that_is_shown() {
    let keyring = Keyring::new(&[1, 2, 3]);
    let (lab, mut liar) = beside(&keyring.lines_for(1), &keyring.lines_for(3));
    liar.say(&Control::LinkStates(vec![keyring.sign(2, record(2, 1, 1, &[1]))]));
    lab.wait_hosts(1, &[2, 3]);
    lab.wait_hosts(3, &[1, 2]);
    let truth = liar.hear_of(3, |_| true);
    let mut forged = forged_in_many_ways(&truth);
    forged.truncate(4);
    forged.extend(forged.clone().into_iter().map(|record| LinkState { seal: truth.seal, ..record }));
    let signed: Vec<LinkState> = forged[..4].iter().map(|record| keyring.sign(2, record.clone())).collect();
    forged.extend(signed);
    // Only what would count as newer is looked at, and that is not answered.
    for record in &forged {
        liar.say(&Control::LinkStates(vec![record.clone()]));
    }
    liar.say(&Control::LinkStates(vec![record(77, 1, 1, &[2])]));
    let status = lab.wait(1, "refused", |status| {
        let refused = status["link_states"]["refused"].as_array().unwrap();
        refused.len() == 2 && refused[0]["host"] == 3 && refused[1]["why"] == "no key of this host is known"
    });
    assert_eq!(
        (&status["link_states"]["signed"], &status["link_states"]["checked"]),
        (&true.into(), &true.into())
    );
    assert_eq!(status["hosts"].as_array().unwrap().len(), 2, "{status:#}");
    assert!(status["hosts"].as_array().unwrap().iter().all(|host| host["signed"] == true));
    let now = &lab.status(3);
    assert_eq!(now["duplicate_id"], false, "host 3 has heard of none of them");
}

#[test]
fn record_of_an_earlier_life_that_is_said_again_changes_nothing() {
    let keyring = Keyring::new(&[1, 2, 3]);
    let (mut lab, mut liar) = beside(&keyring.lines_for(1), &keyring.lines_for(3));
    let old = liar.hear_of(3, |_| true);
    lab.kill(3);
    lab.start(3);
    let new = liar.hear_of(3, |record| record.incarnation != old.incarnation);
    liar.say(&Control::LinkStates(vec![LinkState { age: 0, ..old }]));
    let answer = liar.hear_of(3, |_| true);
    assert!(answer.incarnation == new.incarnation && answer.sequence >= new.sequence);
}

#[test]
fn keys_treat_each_host_as_its_line_says_where_some_have_none() {
    let mut keyring = Keyring::new(&[1]);
    keyring.lines.push("3 unsigned".to_owned());
    keyring.write();
    let (lab, mut liar) = beside(&keyring.lines_for(1), "");
    liar.say(&Control::LinkStates(vec![record(2, 1, 1, &[1])]));
    lab.wait(1, "host 2 is refused", |status| status["link_states"]["refused"][0]["host"] == 2);
    lab.wait_hosts(3, &[1]);
    let status = lab.status(1);
    let three = status["hosts"].as_array().unwrap().iter().find(|host| host["id"] == 3).unwrap();
    assert_eq!((&three["signed"], &status["link_states"]["checked"]), (&false.into(), &true.into()));
    // What is forged of a host without a key is believed until that host goes above it.
    let truth = liar.hear_of(3, |_| true);
    liar.say(&Control::LinkStates(vec![record(3, truth.incarnation + 9, 1, &[])]));
    liar.hear_of(3, |record| record.incarnation == truth.incarnation + 10 && !record.neighbours.is_empty());
}

#[test]
fn key_is_changed_without_a_gap() {
    let mut keyring = Keyring::new(&[1, 2, 3]);
    let (mut lab, mut liar) = beside(&keyring.lines_for(1), &keyring.lines_for(3));
    let before = liar.hear_of(3, |record| record.seal.is_some());
    let hang_up = |lab: &mut Lab, number: usize| {
        let pid = rustix::process::Pid::from_child(lab.daemon(number));
        let lines = || lab.log(number).matches("keys were read again").count();
        let said = lines();
        rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
        until("keys are read", || (lines() > said).then_some(()));
    };
    keyring.add(3, "3.new");
    hang_up(&mut lab, 1);
    hang_up(&mut lab, 3);
    std::fs::rename(keyring.path("3.new"), keyring.path("3")).unwrap();
    hang_up(&mut lab, 3);
    let after = liar.hear_of(3, |record| record.sequence > before.sequence + 1);
    keyring.lines.remove(2);
    keyring.write();
    hang_up(&mut lab, 1);
    hang_up(&mut lab, 3);
    lab.wait(1, "host 3", |status| status["hosts"].as_array().unwrap().iter().any(|host| host["id"] == 3));
    assert!(after.incarnation == before.incarnation && after.seal != before.seal);
    let log = lab.log(1);
    assert_eq!(log.matches("are not believed").count(), 0, "{log}");
}
