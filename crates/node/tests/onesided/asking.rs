//! Transactions while the cable under them is cut and mended: every answer comes once, and the way that spares copies is
//! taken again.

use super::fabric;
use super::streams::pair;
use super::support::{Client, Lab, until};
use super::zcopy::{answer_all, ask, cut_and_mend, fill, with_program};
use crosslane::stream::OpenBuffer;
use crosslane::stream::Stream;
use crosslane_wire::local::{Reply, Request};
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes of the memory that answers are written into.
const PLACE: usize = 65_536;
/// Lengths of answers, less than the place, as long, and more.
const LENS: [usize; 7] = [1, 8, 777, 4096, 65_535, 65_536, 200_000];

fn order(lab: &Lab, request: &Request) {
    let mut client = Client::hello(&lab.control(1), "lab");
    assert_eq!(client.ask(request, &[]).0, Reply::Done);
}

/// Waits until the streams of host 1 go over so many cables.
fn wait_hops(lab: &Lab, hops: u64) {
    lab.wait(1, &format!("streams over {hops} cables"), |status| {
        let mut circuits = status["circuits"].as_array().unwrap().iter().filter(|it| it["state"] == "open");
        circuits.all(|circuit| circuit["hops"] == hops)
    });
}

#[test]
fn answers_come_once_while_the_cable_is_cut_and_mended() {
    let lab = Lab::ring();
    let (client, server) = pair(fabric(&lab, 1), fabric(&lab, 2), 2);
    let (answer, over) = (OpenBuffer::new(PLACE).unwrap(), AtomicBool::new(false));
    let written = || server.statistics().sent.write_zcopy;
    let moves = || lab.status(1)["counters"]["moves"].as_u64().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| answer_all(&server).unwrap_err());
        scope.spawn(|| cut_and_mend(&lab, &over));
        let mut lens = LENS.into_iter().cycle();
        while moves() < 8 {
            lens.by_ref().take(50).for_each(|len| ask(&client, &answer, len).unwrap());
        }
        over.store(true, Ordering::Relaxed);
        let before = written();
        assert!(
            (before > 0) != lab.is_posted() && server.statistics().tx_bytes > before,
            "{:?}",
            server.statistics()
        );
        until("answers are written again", || {
            lens.by_ref().take(50).for_each(|len| ask(&client, &answer, len).unwrap());
            (lab.is_posted() || written() > before + PLACE as u64).then_some(())
        });
        client.finish().unwrap();
    });
}

/// What another program does: asks for answers of all lengths until it is killed.
pub(crate) fn asker(stream: &Stream) -> ! {
    let answer = OpenBuffer::new(PLACE).unwrap();
    loop {
        LENS.into_iter().for_each(|len| ask(stream, &answer, len).unwrap());
    }
}

/// Reads a request: how long its answer is to be.
fn request(stream: &Stream) -> usize {
    let mut request = [0; 8];
    stream.receive_all(&mut request).unwrap();
    usize::try_from(u64::from_ne_bytes(request)).unwrap()
}

fn answer(stream: &Stream, len: usize) {
    let mut bytes = vec![0; len];
    fill(&mut bytes, len);
    stream.send(&bytes).unwrap();
}

/// The answer was written, its program stands still and has not seen it, and the cable is cut: it comes by what the daemons
/// have counted. Whether more of it lies behind in the ring, and whether the cable is mended meanwhile, is all the same.
#[test]
fn answer_that_nobody_has_taken_yet_outlives_the_cut_of_its_cable() {
    let lab = Lab::ring();
    let (mut program, stream) = with_program(&lab, "asker", 2);
    let written = || stream.statistics().sent.write_zcopy;
    for round in 0..LENS.len() {
        until("answers are written", || {
            let before = written();
            answer(&stream, request(&stream));
            (lab.is_posted() || written() > before).then_some(())
        });
        let (len, before) = (request(&stream), written());
        program.freeze();
        answer(&stream, len);
        let directly = if lab.is_posted() { 0 } else { len.min(PLACE) as u64 };
        assert_eq!(written() - before, directly, "round {round}");
        order(&lab, &Request::Cut { port: "c12".to_owned() });
        wait_hops(&lab, 2);
        if round % 2 == 0 {
            order(&lab, &Request::Mend { port: "c12".to_owned() });
            wait_hops(&lab, 1);
        }
        program.thaw();
        // It asks again only if all of the answer was right.
        answer(&stream, request(&stream));
        order(&lab, &Request::Mend { port: "c12".to_owned() });
        wait_hops(&lab, 1);
    }
    program.kill();
}
