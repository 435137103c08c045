//! The tables of the display, and their columns.

/// A table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tab {
    /// Ends of circuits.
    Streams,
    /// This host's ports.
    Ports,
    /// Round trips to other hosts.
    Latency,
    /// What happened to cables and streams.
    Events,
}

impl Tab {
    /// All, in their order.
    pub(crate) const ALL: [Self; 4] = [Self::Streams, Self::Ports, Self::Latency, Self::Events];

    /// Its place among them.
    pub(crate) fn index(self) -> usize {
        Self::ALL.iter().position(|tab| *tab == self).unwrap_or(0)
    }

    /// The one that is `by` further on, round and round.
    pub(crate) fn turn(self, by: usize) -> Self {
        Self::ALL[(self.index() + by) % Self::ALL.len()]
    }

    /// Its name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Streams => "Streams",
            Self::Ports => "Ports",
            Self::Latency => "Latency",
            Self::Events => "Switch-overs",
        }
    }

    /// Its columns.
    pub(crate) fn columns(self) -> &'static [Column] {
        match self {
            Self::Streams => STREAMS,
            Self::Ports => PORTS,
            Self::Latency => LATENCY,
            Self::Events => EVENTS,
        }
    }

    /// The column that it is sorted by at first.
    pub(crate) fn first_order(self) -> usize {
        let name = match self {
            Self::Streams => "LOAD/s",
            Self::Ports => "PORT",
            Self::Latency => "HOST",
            Self::Events => "AGO",
        };
        self.column(name)
    }

    /// The place of the column of this title; the first one if there is none.
    pub(crate) fn column(self, title: &str) -> usize {
        self.columns().iter().position(|column| column.title == title).unwrap_or(0)
    }
}

/// What is in a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Text, of which the beginning says most.
    Text,
    /// Text, of which the end says most.
    Tail,
    /// A number, the largest first.
    Number,
    /// A number, the smallest first.
    Rising,
    /// A small curve.
    Curve,
}

/// A column.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    /// Its title.
    pub(crate) title: &'static str,
    /// Its least width, columns of the terminal.
    pub(crate) least: usize,
    /// Where there is little room, columns of the highest rank go first; those of rank 0 stay.
    pub(crate) rank: u8,
    /// What is in it.
    pub(crate) kind: Kind,
}

const fn column(title: &'static str, least: usize, rank: u8, kind: Kind) -> Column {
    Column { title, least, rank, kind }
}

const STREAMS: &[Column] = &[
    column("PROGRAM", 8, 0, Kind::Text),
    column("PID", 7, 3, Kind::Rising),
    column("CLIENT", 15, 4, Kind::Tail),
    column("SERVER", 15, 2, Kind::Tail),
    column("OUT/s", 6, 0, Kind::Number),
    column("IN/s", 6, 0, Kind::Number),
    column("LOAD/s", 6, 6, Kind::Number),
    column("MOVED", 6, 1, Kind::Number),
    column("AGE", 6, 5, Kind::Number),
    column("STATE", 7, 7, Kind::Text),
    column("PEER", 4, 8, Kind::Rising),
    column("HOPS", 4, 9, Kind::Rising),
    column("MOVES", 5, 10, Kind::Number),
    column("WAKES", 6, 11, Kind::Number),
];

const PORTS: &[Column] = &[
    column("PORT", 6, 0, Kind::Text),
    column("LINK", 7, 0, Kind::Text),
    column("PEER", 4, 1, Kind::Rising),
    column("OUT/s", 6, 0, Kind::Number),
    column("OUT 60 s", 10, 2, Kind::Curve),
    column("IN/s", 6, 0, Kind::Number),
    column("IN 60 s", 10, 3, Kind::Curve),
    column("WHY", 12, 4, Kind::Text),
    column("p50", 7, 5, Kind::Number),
    column("STREAMS", 7, 6, Kind::Number),
    column("UPS", 4, 7, Kind::Number),
    column("TRANSITS", 8, 8, Kind::Number),
    column("WINDOW", 6, 9, Kind::Number),
    column("SENT", 6, 10, Kind::Number),
    column("RECEIVED", 8, 11, Kind::Number),
];

const LATENCY: &[Column] = &[
    column("HOST", 5, 0, Kind::Rising),
    column("HOPS", 4, 3, Kind::Rising),
    column("VIA", 6, 4, Kind::Text),
    column("SENT", 5, 5, Kind::Number),
    column("LOST", 5, 2, Kind::Number),
    column("LAST", 7, 1, Kind::Number),
    column("p50", 7, 0, Kind::Number),
    column("p90", 7, 1, Kind::Number),
    column("p99", 7, 0, Kind::Number),
    column("MAX", 7, 0, Kind::Number),
    column("LAST 60", 10, 6, Kind::Curve),
];

const EVENTS: &[Column] = &[
    column("AGO", 6, 0, Kind::Rising),
    column("UTC", 8, 3, Kind::Text),
    column("WHAT", 16, 0, Kind::Text),
    column("HOST", 4, 1, Kind::Rising),
    column("CAUSE", 12, 0, Kind::Text),
];

/// A column as it is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Which of the table's.
    pub(crate) column: usize,
    /// Where it begins.
    pub(crate) x: usize,
    /// How wide it is.
    pub(crate) width: usize,
}

/// The columns that fit into `width`, the most important ones first, in the table's order. `wanted` is the width of each one's content; one of
/// 0 is left out.
pub(crate) fn fit(columns: &[Column], wanted: &[usize], width: usize) -> Vec<Place> {
    let mut shown: Vec<usize> = (0..columns.len()).filter(|at| wanted[*at] > 0).collect();
    let least = |shown: &[usize]| shown.iter().map(|at| columns[*at].least + 1).sum::<usize>();
    while least(&shown) > width + 1 && shown.len() > 1 {
        let Some(worst) = shown.iter().copied().max_by_key(|at| (columns[*at].rank, *at)) else { break };
        shown.retain(|at| *at != worst);
    }
    let mut spare = (width + 1).saturating_sub(least(&shown));
    let mut order = shown.clone();
    // Curves can be of any width: they have what words and numbers leave.
    order.sort_by_key(|at| (columns[*at].kind == Kind::Curve, columns[*at].rank));
    let mut widths: Vec<usize> = columns.iter().map(|column| column.least).collect();
    for at in order {
        let more = wanted[at].saturating_sub(columns[at].least).min(spare);
        widths[at] += more;
        spare -= more;
    }
    let mut x = 0;
    let place = |at: usize| {
        let begin = x;
        x += widths[at] + 1;
        Place { column: at, x: begin, width: widths[at].min(width.saturating_sub(begin)) }
    };
    shown.into_iter().map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(width: usize) -> Vec<&'static str> {
        let wanted = [20; STREAMS.len()];
        fit(STREAMS, &wanted, width).into_iter().map(|place| STREAMS[place.column].title).collect()
    }

    #[test]
    fn columns_go_by_their_rank_where_there_is_little_room() {
        assert_eq!(shown(39), ["PROGRAM", "OUT/s", "IN/s", "MOVED"]);
        assert_eq!(shown(79), ["PROGRAM", "PID", "CLIENT", "SERVER", "OUT/s", "IN/s", "MOVED", "AGE"]);
        assert_eq!(shown(300).len(), STREAMS.len());
        assert_eq!(shown(1), ["PROGRAM"]);
    }

    #[test]
    fn columns_never_overlap_or_leave_their_line() {
        for columns in Tab::ALL.map(Tab::columns) {
            for width in 0..200 {
                let wanted: Vec<usize> = (0..columns.len()).map(|at| at * width % 41).collect();
                let places = fit(columns, &wanted, width);
                assert!(places.windows(2).all(|pair| pair[0].x + pair[0].width < pair[1].x));
                assert!(
                    places.iter().all(|place| place.x + place.width <= width && wanted[place.column] > 0)
                );
            }
        }
    }

    #[test]
    fn columns_of_orders_and_tables_exist() {
        for tab in Tab::ALL {
            assert!(tab.first_order() < tab.columns().len());
            assert_eq!(tab.turn(Tab::ALL.len()), tab);
        }
        assert_eq!(STREAMS[Tab::Streams.first_order()].title, "LOAD/s");
    }
}
