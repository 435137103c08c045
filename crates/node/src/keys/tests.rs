use super::*;
use std::os::unix::fs::PermissionsExt;

fn record(origin: u16, ring: &KeyRing) -> LinkState {
    let neighbours = vec![HostId(1)];
    let mut record =
        LinkState { origin: HostId(origin), incarnation: 7, sequence: 1, neighbours, age: 0, seal: None };
    record.seal = ring.sign(&record.sealed_bytes());
    record
}

fn signer(seed: u8) -> (KeyRing, String) {
    let own = SigningKey::from_bytes(&[seed; 32]);
    let text = public_text(&own.verifying_key());
    (KeyRing { own: Some(own), public: None }, text)
}

fn checker(text: &str) -> KeyRing {
    KeyRing { own: None, public: Some(PublicKeys::parse(text).unwrap()) }
}

#[test]
fn record_is_believed_if_its_origin_signed_it() {
    let ((two, of_two), (other, of_other)) = (signer(2), signer(9));
    let ring = checker(&format!("# hosts\n2 {of_two}\n2 {of_other} # its next one\n3 unsigned\n"));
    assert_eq!(ring.check(&record(2, &two)), Ok(()));
    assert_eq!(ring.check(&record(2, &other)), Ok(()), "either of its keys");
    assert_eq!(ring.check(&record(2, &KeyRing::default())), Err(Distrust::Unsigned));
    assert_eq!(ring.check(&record(3, &KeyRing::default())), Ok(()));
    assert_eq!(ring.check(&record(4, &two)), Err(Distrust::Stranger));
    let changes: [fn(&mut LinkState); 4] = [
        |record| record.sequence += 1,
        |record| record.incarnation = u64::MAX,
        |record| record.neighbours = vec![],
        |record| record.seal = Some(Seal([0; 32], [0; 32])),
    ];
    for change in changes {
        let mut forged = record(2, &two);
        change(&mut forged);
        assert_eq!(ring.check(&forged), Err(Distrust::Forged));
    }
    let aged = LinkState { age: 900, ..record(2, &two) };
    assert_eq!(ring.check(&aged), Ok(()), "hosts between raise the age");
}

#[test]
fn key_for_the_whole_fabric_is_good_for_all_and_nobody_else() {
    let ((fabric, key), (other, _)) = (signer(1), signer(2));
    let ring = checker(&format!("* {key}"));
    assert_eq!(ring.check(&record(200, &fabric)), Ok(()));
    assert_eq!(ring.check(&record(200, &other)), Err(Distrust::Forged));
}

#[test]
fn lines_that_are_none_are_named() {
    let (_, key) = signer(1);
    for line in ["2", "2 abc", "* unsigned", "0 unsigned", "255 unsigned", "two unsigned", "2 unsigned x"] {
        assert_eq!(PublicKeys::parse(&format!("1 {key}\n{line}")).err(), Some(2), "{line}");
    }
}

fn config(text: &str) -> Config {
    Config::parse(&format!("host = 2\n{text}")).unwrap()
}

#[test]
fn files_that_others_can_read_or_change_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (key, keys) = (folder.path().join("key"), folder.path().join("keys"));
    let config = config(&format!("key = {key:?}\nkeys = {keys:?}"));
    let own = generate(&key).unwrap();
    assert!(matches!(generate(&key), Err(KeyError::File { .. })), "a key is never overwritten");
    let load = |text: &str, modes: (u32, u32)| {
        std::fs::write(&keys, text).unwrap();
        for (path, mode) in [(&key, modes.0), (&keys, modes.1)] {
            std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
        }
        KeyRing::load(&config)
    };
    let good = format!("2 {}", public_text(&own.verifying_key()));
    assert!(load(&good, (0o600, 0o644)).is_ok_and(|ring| ring.signs() && ring.checks()));
    for mode in [0o640, 0o604, 0o666] {
        assert!(matches!(load(&good, (mode, 0o644)), Err(KeyError::Open { .. })));
    }
    assert!(matches!(load(&good, (0o600, 0o664)), Err(KeyError::Writable { .. })));
    let Err(KeyError::NotListed { line, .. }) = load("3 unsigned", (0o600, 0o644)) else { panic!("listed") };
    assert_eq!(line, good);
    assert!(load("2 unsigned", (0o600, 0o644)).is_ok(), "while all are given keys");
}
