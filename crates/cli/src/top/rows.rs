//! The rows of the tables: their texts, and what they are sorted by.

use super::columns::{Kind, Tab};
use super::latency;
use super::state::State;
use super::units::{ago, bits, clock, size};
use crate::table::or_dash;
use crate::text;
use crosslane_status::{Circuit, Host, Link, Port};
use crosslane_wire::HostId;
use std::cmp::Ordering;

/// A cell.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Cell {
    /// A text, which is sorted as it is.
    Text(String),
    /// A text for a number.
    Number(String, f64),
    /// A small curve, and the value that is as high as the cell.
    Curve(Vec<f64>, f64),
}

/// How a row is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    /// As others.
    Plain,
    /// It is about something that was lost, or does not work.
    Bad,
    /// Nothing moves.
    Quiet,
}

/// A row.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// What it is about: the number of a circuit, a port, a host or an event.
    pub(crate) key: u64,
    /// One cell for each column.
    pub(crate) cells: Vec<Cell>,
    /// How it is drawn.
    pub(crate) tone: Tone,
    /// Bytes out and in a second, of those that have that.
    pub(crate) rates: [f64; 2],
}

impl Cell {
    fn of(value: impl ToString) -> Self {
        Self::Text(text::harmless(&value.to_string()))
    }

    fn number(text: String, value: f64) -> Self {
        Self::Number(text, value)
    }

    fn count(value: u64) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "to sort by")]
        Self::Number(value.to_string(), value as f64)
    }

    fn rate(value: Option<f64>) -> Self {
        Self::Number(value.map_or_else(|| "-".to_owned(), bits), value.unwrap_or(0.0))
    }

    fn host(host: Option<HostId>) -> Self {
        Self::Number(
            or_dash(host.map(|host| format!("h{host}"))),
            host.map_or(f64::MAX, |host| f64::from(host.0)),
        )
    }

    fn round_trip(ns: Option<u64>) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "to sort by")]
        Self::Number(or_dash(ns.map(latency::time)), ns.unwrap_or(0) as f64)
    }

    /// What it says; nothing for a curve.
    pub(crate) fn text(&self) -> &str {
        match self {
            Self::Text(text) | Self::Number(text, _) => text,
            Self::Curve(..) => "",
        }
    }

    /// How wide it would be.
    pub(crate) fn width(&self) -> usize {
        match self {
            Self::Curve(values, _) => values.len(),
            other => text::width(other.text()),
        }
    }

    fn compare(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Number(_, one), Self::Number(_, other)) => one.total_cmp(other),
            (Self::Curve(one, _), Self::Curve(other, _)) => {
                one.iter().sum::<f64>().total_cmp(&other.iter().sum())
            }
            (one, other) => one.text().to_lowercase().cmp(&other.text().to_lowercase()),
        }
    }
}

impl Row {
    /// Whether one of its texts has one of the words, which stand between `|`, in it, capital or not. An empty `words` fits all.
    pub(crate) fn has(&self, words: &str) -> bool {
        let words = words.to_lowercase();
        let texts: Vec<String> = self.cells.iter().map(|cell| cell.text().to_lowercase()).collect();
        let has = |word: &str| texts.iter().any(|text| text.contains(word));
        words.is_empty() || words.split('|').any(|word| !word.is_empty() && has(word))
    }
}

/// Sorts rows by a column: numbers from the largest, texts from A, or the other way round if `inverted`.
pub(crate) fn sort(rows: &mut [Row], tab: Tab, column: usize, inverted: bool) {
    let kind = tab.columns()[column].kind;
    let falls = matches!(kind, Kind::Number | Kind::Curve) != inverted;
    rows.sort_by(|one, other| {
        let order = one.cells[column].compare(&other.cells[column]);
        let order = if falls { order.reverse() } else { order };
        order.then(one.key.cmp(&other.key))
    });
}

/// All rows of a table, unsorted.
pub(crate) fn rows(tab: Tab, state: &State) -> Vec<Row> {
    match tab {
        Tab::Streams => state.circuits().into_iter().map(|(it, rates)| stream(state, it, rates)).collect(),
        Tab::Ports => ports(state),
        Tab::Latency => state.status().hosts.iter().filter_map(|host| round_trips(state, host)).collect(),
        Tab::Events => events(state),
    }
}

fn stream(state: &State, circuit: &Circuit, rates: Option<[f64; 2]>) -> Row {
    let (age, older) = state.age(circuit.id);
    let age = (format!("{}{}", if older { ">" } else { "" }, ago(age)), age.as_secs_f64());
    let moved = circuit.tx_bytes.saturating_add(circuit.rx_bytes);
    let [tx, rx] = [0, 1].map(|way| rates.map(|rates| rates[way]));
    let load = rates.map(|[tx, rx]| tx + rx);
    let quiet = load.is_none_or(|load| load <= 0.0);
    let bad = circuit.dead.is_some() || circuit.state == crosslane_status::State::Moving;
    #[expect(clippy::cast_precision_loss, reason = "to sort by")]
    let cells = vec![
        Cell::of(&circuit.program),
        Cell::count(u64::try_from(circuit.pid).unwrap_or(0)),
        Cell::of(circuit.client),
        Cell::of(circuit.server),
        Cell::rate(tx),
        Cell::rate(rx),
        Cell::rate(load),
        Cell::number(size(moved), moved as f64),
        Cell::number(age.0, age.1),
        Cell::of(circuit.state),
        Cell::host(Some(circuit.peer)),
        Cell::count(circuit.hops.into()),
        Cell::count(circuit.generation.into()),
        Cell::count(circuit.wakes),
    ];
    let tone = if bad {
        Tone::Bad
    } else if quiet {
        Tone::Quiet
    } else {
        Tone::Plain
    };
    Row { key: circuit.id.0, cells, tone, rates: rates.unwrap_or_default() }
}

/// The rows of the ports, in the order of the configuration.
pub(crate) fn ports(state: &State) -> Vec<Row> {
    let full = state.busiest();
    let row = |(key, (port, rates)): (usize, (&Port, Option<[f64; 2]>))| {
        let [tx, rx] = state.port_minute(&port.name);
        #[expect(clippy::cast_precision_loss, reason = "for people")]
        let window = port.window_used as f64 / port.window.max(1) as f64 * 100.0;
        let trips = port.peer.and_then(|peer| state.latencies.of(peer));
        let half = trips.and_then(|trips| trips.percentile(50.0));
        let link = if port.silent { "silent".to_owned() } else { port.link.to_string() };
        #[expect(clippy::cast_precision_loss, reason = "to sort by")]
        let cells = vec![
            Cell::of(&port.name),
            Cell::of(link),
            Cell::host(port.peer),
            Cell::rate(rates.map(|rates| rates[0])),
            Cell::Curve(tx, full),
            Cell::rate(rates.map(|rates| rates[1])),
            Cell::Curve(rx, full),
            Cell::of(port.why.as_deref().unwrap_or("")),
            Cell::round_trip(half),
            Cell::count(port.streams),
            Cell::count(u64::from(port.epoch.0)),
            Cell::count(port.transits),
            Cell::number(format!("{window:.1}%"), window),
            Cell::number(size(port.tx_bytes), port.tx_bytes as f64),
            Cell::number(size(port.rx_bytes), port.rx_bytes as f64),
        ];
        let tone = if port.link == Link::Up && !port.silent { Tone::Plain } else { Tone::Bad };
        Row { key: key as u64, cells, tone, rates: rates.unwrap_or_default() }
    };
    state.ports().into_iter().enumerate().map(row).collect()
}

fn round_trips(state: &State, host: &Host) -> Option<Row> {
    let trips = state.latencies.of(host.id)?;
    let curve = trips.latest();
    let full = curve.iter().copied().fold(0.0, f64::max);
    let cells = vec![
        Cell::host(Some(host.id)),
        Cell::count(trips.hops.or(host.hops).unwrap_or(0).into()),
        Cell::of(host.via.as_deref().unwrap_or("-")),
        Cell::count(trips.sent),
        Cell::count(trips.lost()),
        Cell::round_trip(trips.last()),
        Cell::round_trip(trips.percentile(50.0)),
        Cell::round_trip(trips.percentile(90.0)),
        Cell::round_trip(trips.percentile(99.0)),
        Cell::round_trip(trips.percentile(100.0)),
        Cell::Curve(curve, full),
    ];
    let tone = if trips.last().is_none() { Tone::Bad } else { Tone::Plain };
    Some(Row { key: u64::from(host.id.0), cells, tone, rates: [0.0; 2] })
}

fn events(state: &State) -> Vec<Row> {
    let row = |event: &super::events::Event| {
        let old = state.at().saturating_sub(event.at);
        let cells = vec![
            Cell::number(ago(old), old.as_secs_f64()),
            Cell::of(clock(event.clock)),
            Cell::of(&event.what),
            Cell::host(event.host),
            Cell::of(&event.cause),
        ];
        let tone = if event.bad { Tone::Bad } else { Tone::Plain };
        // The latest first, also among those of one look.
        Row { key: u64::MAX - event.number, cells, tone, rates: [0.0; 2] }
    };
    state.events().iter().map(row).collect()
}
