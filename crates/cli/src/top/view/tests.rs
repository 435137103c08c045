//! What is on the screen, for states and keys.

use super::*;
use crate::top::columns::Tab;
use crate::top::key::Key;
use crate::top::ui::Act;
use crosslane_status::{Circuit, Counters, Host, Link, Port, Status};
use crosslane_wire::{CircuitId, HostId};
use proptest::prelude::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::Color;
use std::time::{Duration, SystemTime};

const THEME: Theme = Theme { colour: true, unicode: true };
const POOR: Theme = Theme { colour: false, unicode: false };

fn port(name: &str, peer: u16, tx_bytes: u64) -> Port {
    let (name, peer) = (name.to_owned(), Some(HostId(peer)));
    Port { name, peer, tx_bytes, link: Link::Up, window: 1 << 30, ..Port::default() }
}

fn circuit(id: u64, program: &str, tx_bytes: u64) -> Circuit {
    Circuit {
        id: CircuitId(id),
        program: program.to_owned(),
        pid: 4000 + i32::try_from(id).expect("small"),
        peer: HostId(2),
        tx_bytes,
        ..Circuit::between(([10, 86, 0, 1], 50_000).into(), ([10, 86, 0, 2], 5201).into())
    }
}

/// A ring of three, after `bytes` were sent by the first of two ports and the last of three streams.
fn ring(bytes: u64) -> Status {
    let hosts = [2, 3].map(|id| Host { id: HostId(id), hops: Some(1), ..Host::default() }).into();
    Status {
        host: HostId(1),
        hosts,
        links: [(1, 2), (2, 3), (1, 3)].map(|(one, other)| (HostId(one), HostId(other))).into(),
        ports: vec![port("right", 2, bytes), port("left", 3, 0)],
        circuits: vec![
            circuit(1, "redis-server", 0),
            circuit(2, "ssh", bytes / 1000),
            circuit(3, "iperf3", bytes),
        ],
        counters: Counters { stream_tx_bytes: bytes, streams_open: 3, ..Counters::default() },
        uptime_s: 100.0,
        ..Status::default()
    }
}

fn state() -> State {
    let mut state = State::new(ring(0));
    for second in 1..=3_u64 {
        state.look(ring(second * 1_250_000_000), Duration::from_secs(second), SystemTime::UNIX_EPOCH);
    }
    state.latencies.add(HostId(2), Some(12_300), 1);
    state
}

fn ui() -> Ui {
    Ui::new(Duration::from_secs(1))
}

fn screen(width: u16, height: u16, state: &State, ui: &mut Ui, theme: Theme) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a screen");
    let page = layout(Rect::new(0, 0, width, height), state, theme).page();
    let rows = ui.rows(state);
    ui.settle(&rows, page);
    terminal.draw(|frame| draw(frame.buffer_mut(), state, ui, theme)).expect("drawn");
    terminal
}

fn lines_of(terminal: &Terminal<TestBackend>) -> Vec<String> {
    let buffer = terminal.backend().buffer();
    let line = |y| (0..buffer.area.width).map(|x| buffer[(x, y)].symbol().to_owned()).collect::<String>();
    (0..buffer.area.height).map(line).collect()
}

fn lines(width: u16, height: u16, state: &State, ui: &mut Ui, theme: Theme) -> Vec<String> {
    lines_of(&screen(width, height, state, ui, theme))
}

fn press(ui: &mut Ui, state: &State, keys: &[Key]) -> Act {
    let mut act = Act::Nothing;
    for key in keys {
        let rows = ui.rows(state);
        act = ui.key(*key, &rows, 5);
        let rows = ui.rows(state);
        ui.settle(&rows, 5);
    }
    act
}

fn typed(text: &str) -> Vec<Key> {
    text.chars().map(Key::Char).collect()
}

/// The programs in the table, from top to bottom.
fn programs(ui: &mut Ui, state: &State) -> Vec<String> {
    ui.rows(state).iter().map(|row| row.cells[0].text().to_owned()).collect()
}

#[test]
fn view_of_a_usual_terminal_shows_everything() {
    let all = lines(80, 24, &state(), &mut ui(), THEME);
    let text = all.join("\n");
    assert!(all[0].starts_with("h1 up 1:40  every 1 s"), "{text}");
    assert!(all[1].starts_with("Out[|||") && all[1].contains("10.0 Gb/s]"), "{text}");
    assert!(all[2].starts_with("Streams 3 open"), "{text}");
    assert_eq!(all[3].trim_end(), " ┌─ [h1] ─10G/0─ h2 ─┐", "{text}");
    assert_eq!(all[4].trim_end(), " │ 0/0               │", "{text}");
    assert_eq!(all[5].trim_end(), " └─ h3 ──────────────┘", "{text}");
    assert!(all[6].starts_with(" PORT   LINK    PEER  OUT/s OUT 60 s"), "{text}");
    assert!(all[7].starts_with(" right  up        h2    10G") && all[7].contains("█"), "{text}");
    assert!(all[9].starts_with(" Streams  Ports  Latency  Switch-overs "), "{text}");
    assert!(all[10].contains("PROGRAM") && all[10].contains("MOVED"), "{text}");
    assert!(all[11].starts_with(" iperf3") && all[11].contains("10.86.0.2:5201") && all[11].contains("10G"));
    assert!(all[12].starts_with(" ssh") && all[13].starts_with(" redis-"), "{text}");
    assert!(all[23].starts_with("F1Help") && all[23].contains("F10Quit"), "{text}");
}

#[test]
fn view_of_a_small_terminal_keeps_the_table_and_the_keys() {
    let all = lines(40, 12, &state(), &mut ui(), POOR);
    let text = all.join("\n");
    assert!(all[0].starts_with("h1 up") && all[1].starts_with("Out["), "{text}");
    assert!(all.iter().any(|line| line.starts_with(" iperf3") && line.contains("10G")), "{text}");
    assert!(all[11].contains("F1Help") && all[11].contains("F10Quit"), "{text}");
}

#[test]
fn view_without_unicode_and_colour_has_none() {
    for key in [None, Some(Key::F(1)), Some(Key::F(6)), Some(Key::F(4)), Some(Key::Tab)] {
        let mut ui = ui();
        press(&mut ui, &state(), &key.into_iter().collect::<Vec<_>>());
        let terminal = screen(80, 24, &state(), &mut ui, POOR);
        let buffer = terminal.backend().buffer();
        for cell in buffer.content() {
            assert!(cell.symbol().is_ascii(), "{:?}", cell.symbol());
            assert_eq!((cell.fg, cell.bg), (Color::Reset, Color::Reset));
        }
    }
}

#[test]
fn view_of_hostile_names_is_harmless_and_stays_in_its_columns() {
    let name = "\x1b[2J\u{202e}端末\u{200d}端末\r\n";
    let mut now = ring(1000);
    now.circuits = vec![circuit(1, name, 10), circuit(2, "iperf3", 5)];
    now.ports[1].why = Some("\x1b]0;x\x07".to_owned());
    let mut state = State::new(ring(0));
    state.look(now, Duration::from_secs(1), SystemTime::UNIX_EPOCH);
    for (theme, shown) in [(THEME, "?[2J?端"), (POOR, "?[2J???")] {
        let terminal = screen(80, 24, &state, &mut ui(), theme);
        let all = lines_of(&terminal);
        assert!(
            terminal
                .backend()
                .buffer()
                .content()
                .iter()
                .all(|cell| !cell.symbol().contains(char::is_control))
        );
        let [hostile, usual] = [11, 12].map(|line| all[line].as_str());
        assert!(hostile.trim_start().replace(' ', "").starts_with(shown), "{hostile}");
        // The cell behind a wide character is empty in the buffer: columns are counted by cells.
        let place = |y: u16| (0..80).find(|x| terminal.backend().buffer()[(*x, y)].symbol() == "4");
        assert_eq!(place(11), place(12), "{hostile}\n{usual}");
    }
}

#[test]
fn view_marks_what_was_lost() {
    let mut now = ring(0);
    now.links.remove(0);
    now.ports[0] =
        Port { link: Link::Cut, peer: None, why: Some("cut here".to_owned()), ..port("right", 2, 0) };
    now.counters.moves = 2;
    let mut state = state();
    state.look(now, Duration::from_secs(4), SystemTime::UNIX_EPOCH);
    let mut ui = ui();
    let all = lines(100, 24, &state, &mut ui, THEME);
    assert!(
        all[3].contains("╳╳") && all[7].contains("cut") && all[7].contains("cut here"),
        "{}",
        all.join("\n")
    );
    press(&mut ui, &state, &[Key::BackTab]);
    assert_eq!(ui.tab, Tab::Events);
    let all = lines(100, 24, &state, &mut ui, THEME);
    assert!(all[10].contains("CAUSE"), "{}", all.join("\n"));
    let row = all.iter().find(|line| line.contains("2 streams lost the circuit")).expect("an event");
    assert!(row.contains("port right cut") && row.contains("cut here"), "{row}");
}

#[test]
fn view_of_latency_has_percentiles() {
    let (state, mut ui) = (state(), ui());
    press(&mut ui, &state, &[Key::Tab, Key::Tab]);
    let all = lines(80, 24, &state, &mut ui, THEME);
    let text = all.join("\n");
    assert!(["p50", "p90", "p99", "MAX"].iter().all(|title| all[10].contains(title)), "{text}");
    assert!(all[11].contains("h2") && all[11].matches("12.3us").count() == 5, "{text}");
}

#[test]
fn sort_by_keys_and_by_choice() {
    let (state, mut ui) = (state(), ui());
    assert_eq!(programs(&mut ui, &state), ["iperf3", "ssh", "redis-server"]);
    press(&mut ui, &state, &[Key::Char('I')]);
    assert_eq!(programs(&mut ui, &state), ["redis-server", "ssh", "iperf3"]);
    press(&mut ui, &state, &[Key::Char('N')]);
    assert_eq!(programs(&mut ui, &state), ["redis-server", "ssh", "iperf3"], "by process");
    press(&mut ui, &state, &[Key::Char('M')]);
    assert_eq!(programs(&mut ui, &state), ["iperf3", "ssh", "redis-server"], "by bytes moved");
    press(&mut ui, &state, &[Key::F(6), Key::Home, Key::Enter]);
    assert_eq!(programs(&mut ui, &state), ["iperf3", "redis-server", "ssh"], "by name");
    press(&mut ui, &state, &[Key::Char('>'), Key::Down, Key::Esc]);
    assert_eq!(programs(&mut ui, &state), ["iperf3", "redis-server", "ssh"], "given up");
}

#[test]
fn filter_shows_only_rows_that_have_the_text() {
    let (state, mut ui) = (state(), ui());
    press(&mut ui, &state, &[vec![Key::F(4)], typed("SSH|redis")].concat());
    assert_eq!(programs(&mut ui, &state), ["ssh", "redis-server"]);
    let all = lines(80, 24, &state, &mut ui, THEME);
    assert!(all[23].contains("Filter: SSH|redis_"), "{}", all.join("\n"));
    press(&mut ui, &state, &[Key::Enter, Key::Char('\\'), Key::Backspace, Key::Enter]);
    assert_eq!(ui.view().filter, "SSH|redi");
    press(&mut ui, &state, &[Key::Esc]);
    assert_eq!(programs(&mut ui, &state).len(), 3);
}

#[test]
fn search_selects_the_next_row_that_has_the_text() {
    let (state, mut ui) = (state(), ui());
    let selected = |ui: &Ui| ui.selected(&ui.rows(&state));
    press(&mut ui, &state, &[vec![Key::Char('/')], typed("10.86")].concat());
    assert_eq!(selected(&ui), 0);
    press(&mut ui, &state, &[Key::F(3)]);
    assert_eq!(selected(&ui), 1);
    press(&mut ui, &state, &[Key::F(3), Key::F(3)]);
    assert_eq!(selected(&ui), 0, "round and round");
    press(&mut ui, &state, &[vec![Key::Enter, Key::F(3)], typed("redis"), vec![Key::Esc]].concat());
    assert_eq!(selected(&ui), 2);
}

#[test]
fn select_and_tag_follow_their_stream_when_the_order_changes() {
    let (mut state, mut ui) = (state(), ui());
    press(&mut ui, &state, &[Key::Char(' '), Key::Char(' ')]);
    let about = lines(80, 24, &state, &mut ui, THEME)[9].clone();
    assert!(about.contains("2 tagged: 10G out, 0 in"), "{about}");
    assert_eq!(ui.selected(&ui.rows(&state)), 2, "the next one is selected");
    let mut now = ring(3 * 1_250_000_000);
    now.circuits[0].tx_bytes = 9_000_000;
    state.look(now, Duration::from_secs(4), SystemTime::UNIX_EPOCH);
    assert_eq!(ui.selected(&ui.rows(&state)), 0, "redis-server moves most now");
    press(&mut ui, &state, &[Key::Char('U')]);
    assert!(ui.view().tagged.is_empty());
}

#[test]
fn keys_change_delay_pause_and_end() {
    let (state, mut ui) = (state(), ui());
    press(&mut ui, &state, &[Key::Char('+')]);
    assert_eq!(ui.delay, Duration::from_secs(2));
    press(&mut ui, &state, &[Key::Char('-'), Key::Char('-')]);
    assert_eq!(ui.delay, Duration::from_millis(500));
    press(&mut ui, &state, &[Key::Char('p')]);
    assert!(ui.paused && lines(80, 24, &state, &mut ui, THEME)[0].contains("PAUSED"));
    for key in [Key::Char('k'), Key::F(9), Key::F(5), Key::Char('t')] {
        assert_eq!(press(&mut ui, &state, &[key]), Act::Nothing, "nothing is killed here");
    }
    for key in [Key::Char('q'), Key::F(10), Key::Ctrl('c')] {
        assert_eq!(press(&mut ui, &state, &[key]), Act::Quit);
    }
}

#[test]
fn help_names_every_key_and_can_be_moved() {
    let (state, mut ui) = (state(), ui());
    press(&mut ui, &state, &[Key::Char('?')]);
    let first = lines(80, 40, &state, &mut ui, THEME).join("\n");
    for word in ["F3 /", "F4 \\", "F6 < >", "Space", "F10 q", "crosslane ping"] {
        assert!(first.contains(word), "{word}: {first}");
    }
    press(&mut ui, &state, &[Key::Down, Key::Down]);
    assert!(!lines(80, 24, &state, &mut ui, THEME).join("\n").contains("F1 h ?"));
    press(&mut ui, &state, &[Key::Char('x')]);
    assert!(lines(80, 24, &state, &mut ui, THEME)[10].contains("PROGRAM"));
}

#[test]
fn scroll_keeps_the_selected_row_on_the_screen() {
    let mut now = ring(0);
    now.circuits = (1..=100).map(|id| circuit(id, &format!("p{id:03}"), 0)).collect();
    let (state, mut ui) = (State::new(now), ui());
    let shows = |ui: &mut Ui, name: &str| {
        let all = lines(80, 24, &state, ui, THEME);
        all.iter().any(|line| line.contains(name))
    };
    assert!(shows(&mut ui, "p001") && !shows(&mut ui, "p100"));
    press(&mut ui, &state, &[Key::End]);
    assert!(shows(&mut ui, "p100") && !shows(&mut ui, "p001"));
    press(&mut ui, &state, &[Key::PageUp, Key::Up]);
    assert!(shows(&mut ui, "p095"));
    press(&mut ui, &state, &[Key::Home, Key::PageDown]);
    assert!(shows(&mut ui, "p005"));
}

fn any_status() -> impl Strategy<Value = Status> {
    let port = (".{0,12}", any::<[u64; 3]>(), prop::option::of(1..9_u16), 0..4_usize);
    let port = port.prop_map(|(name, [tx_bytes, rx_bytes, window], peer, link)| Port {
        link: [Link::Up, Link::Down, Link::Cut, Link::Refused][link],
        why: (link > 0).then(|| name.clone()),
        peer: peer.map(HostId),
        name,
        tx_bytes,
        rx_bytes,
        window,
        ..Port::default()
    });
    let circuit = (0..50_u64, ".{0,20}", any::<[u64; 2]>(), any::<i32>());
    let circuit = circuit.prop_map(|(id, program, [tx_bytes, rx_bytes], pid)| Circuit {
        rx_bytes,
        pid,
        program,
        ..super::tests::circuit(id, "", tx_bytes)
    });
    let links = prop::collection::vec((1..9_u16, 1..9_u16), 0..12);
    let hosts = prop::collection::vec(1..9_u16, 0..9);
    let lists = (prop::collection::vec(port, 0..6), prop::collection::vec(circuit, 0..40), links, hosts);
    (lists, any::<[u64; 4]>(), 0.0..1e9_f64).prop_map(
        |((ports, circuits, links, hosts), numbers, uptime_s)| Status {
            host: HostId(1),
            ports,
            circuits,
            links: links.into_iter().map(|(one, other)| (HostId(one), HostId(other))).collect(),
            hosts: hosts.into_iter().map(|id| Host { id: HostId(id), ..Host::default() }).collect(),
            counters: Counters {
                stream_tx_bytes: numbers[0],
                ip_rx_bytes: numbers[1],
                moves: numbers[2],
                moved: numbers[3],
                ..Counters::default()
            },
            uptime_s,
            ..Status::default()
        },
    )
}

fn any_key() -> impl Strategy<Value = Key> {
    prop_oneof![
        any::<char>().prop_map(Key::Char),
        prop::sample::select("hIPMTNUpz+-/\\<q ?".chars().collect::<Vec<_>>()).prop_map(Key::Char),
        (1..=12_u8).prop_map(Key::F),
        prop::sample::select(vec![
            Key::Up,
            Key::Down,
            Key::PageUp,
            Key::PageDown,
            Key::Home,
            Key::End,
            Key::Tab,
            Key::BackTab,
            Key::Enter,
            Key::Esc,
            Key::Backspace,
        ]),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]
    #[test]
    fn view_of_any_state_size_and_keys_is_drawn(
        statuses in prop::collection::vec(any_status(), 1..4),
        keys in prop::collection::vec(any_key(), 0..30),
        sizes in prop::collection::vec((0..160_u16, 0..60_u16), 1..4),
        unicode in any::<bool>(),
    ) {
        let theme = Theme { colour: unicode, unicode };
        let mut statuses = statuses.into_iter();
        let mut state = State::new(statuses.next().expect("one"));
        for (second, status) in statuses.enumerate() {
            state.look(status, Duration::from_millis(700 * (second as u64 + 1)), SystemTime::UNIX_EPOCH);
            state.latencies.add(HostId(2), Some(second as u64), 1);
        }
        let mut ui = ui();
        for (width, height) in sizes {
            press(&mut ui, &state, &keys);
            let terminal = screen(width, height, &state, &mut ui, theme);
            for cell in terminal.backend().buffer().content() {
                prop_assert!(!cell.symbol().contains(char::is_control));
                prop_assert!(unicode || cell.symbol().is_ascii(), "{:?}", cell.symbol());
            }
        }
    }
}
