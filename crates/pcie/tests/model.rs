//! The packets of the model against the formulas, and against the studies' figures.

use crosslane_pcie::{Cable, Direction, Generation, Limits, SECOND, Writer};

const LANES: [u8; 6] = [1, 2, 4, 8, 12, 16];
const DMA: Writer = Writer::Dma { buffer: None };

/// Bytes a second of a writer that never stops, by sending `count` packets.
fn saturated(cable: &Cable, count: u64) -> f64 {
    let payload = cable.writer.payload(cable);
    let mut direction = Direction::new(*cable, 1);
    let mut ready = 0;
    let mut last = 0;
    let mut first = 0;
    for number in 0..count {
        let sent = direction.send(ready, payload);
        ready += cable.writer.gap();
        last = sent.landed;
        // What is before the buffers are full is not steady.
        if number == count / 10 {
            first = sent.landed;
        }
    }
    (count - count / 10 - 1) as f64 * payload as f64 * SECOND as f64 / (last - first) as f64
}

fn near(ours: f64, formula: f64) -> bool {
    (ours / formula - 1.0).abs() < 0.01
}

#[test]
fn saturated_links_are_within_a_percent_of_the_formula() {
    for generation in Generation::ALL {
        for lanes in LANES {
            for mps in [128, 256, 512, 1024, 2048, 4096] {
                for writer in [Writer::Stores, DMA] {
                    let cable = Cable { mps, writer, ..Cable::new(generation, lanes) };
                    let (ours, formula) = (saturated(&cable, 20_000), Limits(&cable).payload(false));
                    assert!(near(ours, formula), "{cable}: {ours} bytes/s, by the formula {formula}");
                }
            }
        }
    }
}

#[test]
fn both_directions_at_once_lose_what_acknowledgements_take() {
    for generation in Generation::ALL {
        for (lanes, mps) in [(1, 128), (4, 256), (8, 512), (16, 256)] {
            let cable = Cable { mps, writer: DMA, ..Cable::new(generation, lanes) };
            let payload = u64::from(mps);
            let mut ways = [Direction::new(cable, 1), Direction::new(cable, 2)];
            let count: u64 = 20_000;
            let mut last = 0;
            for _ in 0..count {
                for way in 0..2 {
                    last = ways[way].send(0, payload).landed;
                    ways[1 - way].acknowledge(payload);
                }
            }
            let ours = count as f64 * payload as f64 * SECOND as f64 / last as f64;
            let formula = Limits(&cable).payload(true);
            assert!(near(ours, formula), "{cable}: {ours} bytes/s, by the formula {formula}");
        }
    }
    let share = |text: &str| Limits(&text.parse().unwrap()).share_of_acknowledgements();
    // "Up to 8 to 10 % more when both directions are busy."
    assert!(share("gen3 x4, mps 128") > 0.07 && share("gen3 x4, mps 128") < 0.10);
}

#[test]
fn latency_of_a_line_is_the_sum_of_its_parts() {
    for generation in Generation::ALL {
        for lanes in LANES {
            for (length, hops) in [(1000, 2), (10_000, 0), (3000, 5)] {
                let cable = Cable { length, hops, ..Cable::new(generation, lanes) };
                let sent = Direction::new(cable, 1).send(cable.writer.start(), 64);
                let rate = f64::from(lanes) * generation.lane_rate() as f64;
                let wire = (64 + generation.overhead()) as f64 / rate * SECOND as f64;
                // Store, wire, cable, hops, landing: ns.
                let parts =
                    50.0 + wire / 1000.0 + 4.5 * f64::from(length) / 1000.0 + 132.0 * f64::from(hops) + 100.0;
                assert!(near(sent.landed as f64 / 1000.0, parts), "{cable}: {} ps, {parts} ns", sent.landed);
            }
        }
    }
}

/// GB/s that the direct-access study saw, as a share of the link, against what the model gives.
#[test]
fn direct_access_is_as_the_study_saw_it() {
    let share = |text: &str| {
        let cable: Cable = text.parse().unwrap();
        let limits = Limits(&cable);
        limits.payload(false) / limits.raw() as f64
    };
    // 64 to 70 %, and 63 % of generation 4 with 8 lanes: the model's ceiling lies above what was measured, by no more than an eighth.
    for (text, seen) in [("gen3 x4", 0.69), ("gen3 x8", 0.69), ("gen4 x4", 0.70), ("gen4 x8", 0.63)] {
        assert!(share(text) >= seen && share(text) < seen * 1.125, "{text}: {} against {seen}", share(text));
    }
    // 16 lanes give what 8 do, since one core's stores are at their end.
    let (eight, sixteen): (Cable, Cable) = ("gen4 x8".parse().unwrap(), "gen4 x16".parse().unwrap());
    assert!(near(Limits(&sixteen).payload(false), Limits(&eight).payload(false)));
    let engine: Cable = "gen4 x16, dma".parse().unwrap();
    assert!(Limits(&engine).payload(false) > 2.0 * Limits(&sixteen).payload(false));
}

#[test]
fn long_fibres_wait_for_credits() {
    let rate = |metres: f64| {
        let cable: Cable = format!("gen4 x16, mps 256, fibre {metres} m, dma").parse().unwrap();
        let (ours, formula) = (saturated(&cable, 20_000), Limits(&cable).payload(false));
        assert!(near(ours, formula), "{cable}: {ours} bytes/s, by the formula {formula}");
        ours
    };
    assert!(near(rate(10.0), rate(1.0)), "10 m cost nothing");
    assert!(rate(100.0) < 0.6 * rate(10.0), "what is under way on 100 m is more than the credits are for");
}

#[test]
fn bit_errors_cost_what_is_sent_again() {
    let rate = |errors: f64| {
        let cable = Cable { bit_errors: errors, writer: DMA, ..Cable::new(Generation::new(3).unwrap(), 8) };
        let (ours, formula) = (saturated(&cable, 400_000), Limits(&cable).payload(false));
        assert!(near(ours, formula), "errors {errors}: {ours} bytes/s, by the formula {formula}");
        ours
    };
    assert!(near(rate(1e-12), rate(0.0)), "what the specification allows is not seen");
    assert!(rate(1e-6) < 0.999 * rate(0.0));
}

/// Bytes at once take as long as their packets one by one.
#[test]
fn many_packets_at_once_are_as_one_by_one() {
    let mut dice = fastrand::Rng::with_seed(5);
    for generation in Generation::ALL {
        for lanes in LANES {
            for (writer, mps) in [(Writer::Stores, 256), (DMA, 256), (DMA, 4096)] {
                let cable = Cable { mps, writer, ..Cable::new(generation, lanes) };
                let (mut one, mut all) = (Direction::new(cable, 1), Direction::new(cable, 1));
                let payload = writer.payload(&cable);
                let (mut at, mut ours, mut theirs) = (0, 0, 0);
                for _ in 0..200 {
                    let count = dice.u64(1..200);
                    let mut ready = at + writer.start();
                    for _ in 0..count {
                        theirs = one.send(ready, payload).landed;
                        ready += writer.gap();
                    }
                    ours = all.send_all(at, count * payload).landed;
                    at += dice.u64(0..2_000_000);
                }
                assert!(
                    near(ours as f64, theirs as f64),
                    "{cable}: {ours} ps at once, {theirs} ps one by one"
                );
            }
        }
    }
}

/// Both directions busy: chunks with their acknowledgements at once give what the formula does, whoever writes.
#[test]
fn acknowledgements_of_many_packets_at_once_are_as_one_by_one() {
    for generation in Generation::ALL {
        for lanes in LANES {
            for (writer, mps) in [(Writer::Stores, 256), (DMA, 128), (DMA, 256), (DMA, 4096)] {
                let cable = Cable { mps, writer, ..Cable::new(generation, lanes) };
                let mut ways = [Direction::new(cable, 1), Direction::new(cable, 2)];
                let (count, len, mut last) = (1000, 64 << 10, 0);
                for _ in 0..count {
                    for way in 0..2 {
                        last = ways[way].send_all(0, len).landed;
                        ways[1 - way].acknowledge_all(len);
                    }
                }
                let ours = (count * len) as f64 * SECOND as f64 / last as f64;
                let formula = Limits(&cable).payload(true);
                assert!(near(ours, formula), "{cable}: {ours} bytes/s, by the formula {formula}");
            }
        }
    }
}

#[test]
fn errors_of_many_packets_at_once_are_as_many() {
    let cable = Cable { bit_errors: 1e-6, writer: DMA, ..Cable::new(Generation::new(3).unwrap(), 8) };
    let mut direction = Direction::new(cable, 9);
    let (len, mut landed) = (64 << 10, 0);
    for _ in 0..10_000 {
        landed = direction.send_all(0, len).landed;
    }
    let ours = 10_000.0 * len as f64 * SECOND as f64 / landed as f64;
    assert!(near(ours, Limits(&cable).payload(false)));
}

/// A writer that has nothing to send does not fill the wire, and a packet lands no earlier than one before it.
#[test]
fn packets_land_in_their_order_and_not_before_they_are_sent() {
    let mut dice = fastrand::Rng::with_seed(3);
    for text in
        ["gen1 x1, copper 10 m", "gen5 x16, mps 512, fibre 100 m, errors 1e-6, dma", "gen6 x4, hops 0"]
    {
        let cable: Cable = text.parse().unwrap();
        let mut direction = Direction::new(cable, 7);
        let (mut ready, mut landed) = (0, 0);
        for _ in 0..50_000 {
            ready += dice.u64(..200_000);
            let payload = dice.u64(1..=cable.writer.payload(&cable));
            let sent = direction.send(ready, payload);
            assert!(sent.started >= ready && sent.landed >= landed && sent.landed > sent.started);
            landed = sent.landed;
        }
    }
}

/// An order packet by packet, as an engine with a buffer of its own sends it.
fn order_by_packets(cable: &Cable, direction: &mut Direction, ready: u64, len: u64) -> u64 {
    let payload = cable.writer.payload(cable);
    let Writer::Dma { buffer: Some(buffer) } = cable.writer else { panic!("{cable} has no buffer") };
    let (mut done, mut landed, mut ready) = (0, 0, ready);
    while done < len {
        let piece = buffer.min(len - done);
        if len > buffer {
            // It is read as fast as a link of this kind carries it.
            let mut slot = Direction::new(*cable, 1);
            let mut read = 0;
            while read < piece {
                slot.send(0, payload.min(piece - read));
                read += payload.min(piece - read);
            }
            ready += slot.free();
        }
        ready += cable.writer.start();
        let mut sent = 0;
        while sent < piece {
            landed = direction.send(ready, payload.min(piece - sent)).landed;
            sent += payload.min(piece - sent);
        }
        (done, ready) = (done + piece, direction.free());
    }
    landed
}

#[test]
fn orders_of_an_engine_with_a_buffer_are_as_the_formula_says() {
    let mut dice = fastrand::Rng::with_seed(11);
    for generation in Generation::ALL {
        for (lanes, mps) in [(1, 128), (4, 256), (8, 512), (16, 256)] {
            for buffer in [64 << 10, 1 << 20] {
                let writer = Writer::Dma { buffer: Some(buffer) };
                let cable = Cable { mps, writer, ..Cable::new(generation, lanes) };
                for len in [64, 5000, buffer, buffer + 1, 3 * buffer, dice.u64(1..8 * buffer)] {
                    let formula = Limits(&cable).order(len);
                    let at_once = Direction::new(cable, 1).order(0, len).landed;
                    let packets = order_by_packets(&cable, &mut Direction::new(cable, 1), 0, len);
                    for ours in [at_once, packets] {
                        let text = format!("{cable}: {len} bytes: {ours} ps, by the formula {formula}");
                        assert!(near(ours as f64, formula as f64), "{text}");
                    }
                }
            }
        }
    }
}

/// The switchless study: the rate of an engine grows with the size of what it is told to send, up to its buffer of 1 MB, and collapses above.
#[test]
fn engine_with_a_short_buffer_collapses_as_the_study_saw_it() {
    let cable: Cable = "gen3 x8, dma 1M".parse().unwrap();
    let rate = |len: u64| Limits(&cable).orders(len);
    let mut before = 0.0;
    for len in (10..=20).map(|power| 1 << power) {
        assert!(rate(len) > before, "{len} bytes");
        before = rate(len);
    }
    let collapsed = rate(2 << 20) / rate(1 << 20);
    assert!((0.4..0.6).contains(&collapsed), "{collapsed}");
    let without: Cable = "gen3 x8, dma".parse().unwrap();
    assert!(Limits(&without).orders(2 << 20) > Limits(&without).orders(1 << 20));
}
