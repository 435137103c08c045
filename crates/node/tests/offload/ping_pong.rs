//! Who waits for answers copies by itself; whoever floods does not.

use crate::{bytes, check_flow, join, moved, pair};

#[test]
fn messages_there_and_back_are_copied_by_the_programs_and_a_flood_behind_them_is_not() {
    let lab = pair();
    let (client, server) = join(&lab, 1, 2);
    const LEN: usize = 1 << 20;
    const ROUNDS: usize = 20;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut asked = vec![0; LEN];
            for round in 0..ROUNDS {
                server.receive_all(&mut asked).unwrap();
                assert!(asked == bytes(round, LEN), "question {round}");
                server.send(&bytes(round + 1, LEN)).unwrap();
            }
        });
        let mut answer = vec![0; LEN];
        for round in 0..ROUNDS {
            client.send(&bytes(round, LEN)).unwrap();
            client.receive_all(&mut answer).unwrap();
            assert!(answer == bytes(round + 1, LEN), "answer {round}");
        }
    });
    let all = (ROUNDS * LEN) as u64;
    // The first question is no answer yet, and to receive it is not either.
    let first = |moved: u64| moved <= LEN as u64;
    assert!(first(moved(&lab, 1).0) && moved(&lab, 1).1 == 0, "{:?} of {all}", moved(&lab, 1));
    assert!(first(moved(&lab, 2).1) && moved(&lab, 2).0 == 0, "{:?} of {all}", moved(&lab, 2));
    check_flow(&client, &server, 3, &[LEN; 20], LEN);
    assert!(
        moved(&lab, 1).0 > all / 10 && moved(&lab, 2).1 > all / 10,
        "{:?} {:?}",
        moved(&lab, 1),
        moved(&lab, 2)
    );
}

#[test]
fn long_answer_is_handed_over_from_some_point_on() {
    let lab = pair();
    let (client, server) = join(&lab, 1, 2);
    const LONG: usize = 32 << 20;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut asked = [0; 5];
            server.receive_all(&mut asked).unwrap();
            let answer = bytes(0, LONG);
            answer.chunks(1 << 20).for_each(|part| server.send(part).unwrap());
        });
        client.send(b"GET /").unwrap();
        let mut answer = vec![0; LONG];
        answer.chunks_mut(1 << 20).for_each(|part| client.receive_all(part).unwrap());
        assert!(answer == bytes(0, LONG));
    });
    let sent = moved(&lab, 2).0;
    assert!(((LONG / 10) as u64..LONG as u64).contains(&sent), "{sent}");
}
