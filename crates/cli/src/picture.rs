//! The network as a picture: a ring as a ring, a chain as a chain, anything else as a list of neighbours.
//!
//! ```text
//!   ┌─ [h1] ── h2 ── h3 ─┐        [h1] ── h2 ╳╳ h3        [h1]  h2 h3 h4 h7
//!   └─ h5 ── h4 ─────────┘                                h2    h1 h3 h5 h8
//! ```

use crosslane_status::Status;
use crosslane_wire::HostId;
use std::collections::{BTreeMap, BTreeSet};

/// Two hosts that a cable joins, the smaller id first.
pub(crate) type Link = (u16, u16);

/// What a part of the picture is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// A host.
    Host,
    /// The host whose daemon was asked.
    Me,
    /// A cable whose link is up.
    Cable,
    /// A cable that was lost.
    Lost,
    /// What a cable carries.
    Load,
}

/// A line of the picture: its parts, side by side.
pub(crate) type Row = Vec<(Part, String)>;

/// The characters of lines.
struct Strokes {
    line: char,
    upright: char,
    lost: char,
    /// Upper left, upper right, lower left, lower right.
    corners: [char; 4],
}

const UNICODE: Strokes =
    Strokes { line: '─', upright: '│', lost: '╳', corners: ['┌', '┐', '└', '┘'] };
const ASCII: Strokes = Strokes { line: '-', upright: '|', lost: 'x', corners: ['+', '+', '+', '+'] };

/// The network to draw.
#[derive(Debug)]
pub(crate) struct Picture {
    me: u16,
    hosts: BTreeSet<u16>,
    links: BTreeSet<Link>,
    lost: BTreeSet<Link>,
    loads: BTreeMap<Link, String>,
}

/// The links in a daemon's status.
pub(crate) fn links(status: &Status) -> BTreeSet<Link> {
    status.links.iter().map(|(HostId(one), HostId(other))| ordered(*one, *other)).collect()
}

impl Picture {
    /// The network in a daemon's status. Links in `seen` that are gone are drawn as lost.
    pub(crate) fn new(status: &Status, seen: &BTreeSet<Link>) -> Self {
        let me = status.host.0;
        let links = links(status);
        let lost: BTreeSet<Link> = seen.difference(&links).copied().collect();
        let known = status.hosts.iter().map(|host| host.id.0);
        let ends = links.iter().chain(&lost).flat_map(|&(one, other)| [one, other]);
        let hosts = known.chain(ends).chain([me]).collect();
        Self { me, hosts, links, lost, loads: BTreeMap::new() }
    }

    /// The same with what some cables of this host carry, by the host at the other end: a word that stands beside the cable.
    pub(crate) fn with_loads(mut self, loads: impl IntoIterator<Item = (u16, String)>) -> Self {
        let me = self.me;
        self.loads = loads.into_iter().map(|(peer, load)| (ordered(me, peer), load)).collect();
        self.loads.retain(|link, _| self.links.contains(link));
        self
    }

    /// Its lines as text.
    pub(crate) fn lines(&self, width: usize, unicode: bool) -> Vec<String> {
        let text = |row: &Row| row.iter().map(|(_, text)| text.as_str()).collect();
        self.rows(width, unicode).iter().map(text).collect()
    }

    /// Its lines, none longer than `width` characters as far as names allow; nothing for a host that is alone.
    pub(crate) fn rows(&self, width: usize, unicode: bool) -> Vec<Row> {
        let strokes = if unicode { &UNICODE } else { &ASCII };
        if self.hosts.len() < 2 {
            return Vec::new();
        }
        match self.round() {
            Some((order, closed)) if closed => self
                .ring(&order, strokes)
                .filter(|rows| rows.iter().all(|row| length(row) <= width))
                .unwrap_or_else(|| self.chain(&order, true, width, strokes)),
            Some((order, _)) => self.chain(&order, false, width, strokes),
            None => self.list(width),
        }
    }

    /// The hosts in the order of a ring or a chain, and whether it is closed; `None` if it is neither.
    fn round(&self) -> Option<(Vec<u16>, bool)> {
        let all = self.neighbours();
        if all.len() != self.hosts.len() || all.values().any(|near| near.len() > 2) {
            return None;
        }
        let end = all.iter().find(|(_, near)| near.len() == 1).map(|(host, _)| *host);
        let mut order = vec![end.or_else(|| self.hosts.first().copied())?];
        while let Some(next) = all[order.last()?].iter().find(|host| !order.contains(host)) {
            order.push(*next);
        }
        (order.len() == self.hosts.len()).then_some((order, end.is_none()))
    }

    /// Each host with those that it is or was joined to.
    fn neighbours(&self) -> BTreeMap<u16, BTreeSet<u16>> {
        let mut all: BTreeMap<u16, BTreeSet<u16>> = BTreeMap::new();
        for &(one, other) in self.links.iter().chain(&self.lost) {
            all.entry(one).or_default().insert(other);
            all.entry(other).or_default().insert(one);
        }
        all
    }

    /// Two rows with rounded ends, if there are enough hosts for that; between them, if they are known, the loads of the cables that join them.
    fn ring(&self, order: &[u16], strokes: &Strokes) -> Option<Vec<Row>> {
        let (top, bottom) = order.split_at(order.len().div_ceil(2));
        let bottom: Vec<u16> = bottom.iter().rev().copied().collect();
        let ends = [(*top.first()?, *bottom.first()?), (*top.last()?, *bottom.last()?)];
        let rows = [&top.to_vec(), &bottom].map(|row| self.row(row, strokes));
        let loads = ends.map(|(one, other)| self.load(one, other));
        let has_loads = loads.iter().any(Option::is_some) && ends[0] != ends[1];
        let [left, right] = loads.map(Option::unwrap_or_default);
        let between = if has_loads { length_of(&left) + length_of(&right) + 1 } else { 0 };
        let width = rows.iter().map(length).max()?.max(between);
        let [begin, end] = ends.map(|(one, other)| self.stroke(one, other, strokes));
        let whole = |row: &Row, corners: [char; 2]| {
            let gap: String = [strokes.line].repeat(width - length(row)).iter().collect();
            let mut all = vec![(Part::Cable, corners[0].to_string()), self.edge(ends[0], begin)];
            all.push((Part::Host, " ".to_owned()));
            all.extend(row.iter().cloned());
            all.extend([(Part::Cable, format!(" {gap}")), self.edge(ends[1], end)]);
            all.push((Part::Cable, corners[1].to_string()));
            all
        };
        let [a, b, c, d] = strokes.corners;
        let mut all = vec![whole(&rows[0], [a, b]), whole(&rows[1], [c, d])];
        if has_loads {
            // As wide as the rows, which have two strokes and a space at each end.
            let gap = " ".repeat(width + 2 - length_of(&left) - length_of(&right));
            let upright = |(one, other)| {
                let lost = self.lost.contains(&ordered(one, other));
                self.edge((one, other), if lost { strokes.lost } else { strokes.upright })
            };
            let space = || (Part::Load, " ".to_owned());
            let middle = [upright(ends[0]), space(), (Part::Load, left), (Part::Load, gap)];
            all.insert(
                1,
                middle.into_iter().chain([(Part::Load, right), space(), upright(ends[1])]).collect(),
            );
        }
        Some(all)
    }

    fn row(&self, hosts: &[u16], strokes: &Strokes) -> Row {
        let mut row: Row = hosts.first().map(|host| self.host(*host)).into_iter().collect();
        for pair in hosts.windows(2) {
            row.push((Part::Host, " ".to_owned()));
            row.extend(self.cable(pair[0], pair[1], strokes));
            row.extend([(Part::Host, " ".to_owned()), self.host(pair[1])]);
        }
        row
    }

    /// One host after the other, wrapped into lines; a closed chain names its first host again.
    fn chain(&self, order: &[u16], closed: bool, width: usize, strokes: &Strokes) -> Vec<Row> {
        let mut rows = vec![vec![self.host(order[0])]];
        let again = if closed { order.first() } else { None };
        let pairs = order.iter().zip(order[1..].iter().chain(again));
        for (from, to) in pairs {
            let mut part = self.cable(*from, *to, strokes);
            part.extend([(Part::Host, " ".to_owned()), self.host(*to)]);
            match rows.last_mut() {
                Some(row) if length(row) + 1 + length(&part) <= width => {
                    row.push((Part::Host, " ".to_owned()));
                    row.extend(part);
                }
                _ => rows.push([vec![(Part::Host, "  ".to_owned())], part].concat()),
            }
        }
        rows
    }

    /// Each host with its neighbours; lost ones in brackets.
    fn list(&self, width: usize) -> Vec<Row> {
        let all = self.neighbours();
        let column = self.hosts.iter().map(|host| self.name(*host).chars().count()).max().unwrap_or(0);
        let row = |host: &u16| {
            let mut row = vec![self.host(*host)];
            let mut gap = column + 2 - length(&row);
            for other in all.get(host).into_iter().flatten() {
                row.push((Part::Host, " ".repeat(gap)));
                let lost = self.lost.contains(&ordered(*host, *other));
                row.push(if lost {
                    (Part::Lost, format!("(h{other})"))
                } else {
                    (Part::Host, format!("h{other}"))
                });
                if let Some(load) = self.load(*host, *other).filter(|_| *host == self.me) {
                    row.push((Part::Load, format!(" {load}")));
                }
                gap = 1;
            }
            shortened(row, width)
        };
        self.hosts.iter().map(row).collect()
    }

    fn name(&self, host: u16) -> String {
        if host == self.me { format!("[h{host}]") } else { format!("h{host}") }
    }

    fn host(&self, host: u16) -> (Part, String) {
        (if host == self.me { Part::Me } else { Part::Host }, self.name(host))
    }

    /// A cable in a row, with its load if that is known.
    fn cable(&self, one: u16, other: u16, strokes: &Strokes) -> Row {
        let stroke = self.stroke(one, other, strokes);
        match self.load(one, other) {
            Some(load) => {
                let line = || self.edge((one, other), stroke);
                vec![line(), (Part::Load, load), line()]
            }
            None => vec![(self.edge((one, other), stroke).0, [stroke; 2].iter().collect())],
        }
    }

    fn edge(&self, (one, other): Link, stroke: char) -> (Part, String) {
        let lost = !self.links.contains(&ordered(one, other));
        (if lost { Part::Lost } else { Part::Cable }, stroke.to_string())
    }

    fn load(&self, one: u16, other: u16) -> Option<String> {
        self.loads.get(&ordered(one, other)).cloned()
    }

    fn stroke(&self, one: u16, other: u16, strokes: &Strokes) -> char {
        if self.links.contains(&ordered(one, other)) { strokes.line } else { strokes.lost }
    }
}

fn length_of(text: &str) -> usize {
    text.chars().count()
}

fn length(row: &Row) -> usize {
    row.iter().map(|(_, text)| length_of(text)).sum()
}

fn shortened(row: Row, width: usize) -> Row {
    let mut left = width;
    let part = |(part, text): (Part, String)| {
        let text: String = text.chars().take(left).collect();
        left -= length_of(&text);
        (part, text)
    };
    row.into_iter().map(part).collect()
}

fn ordered(one: u16, other: u16) -> Link {
    (one.min(other), one.max(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(hosts: u16) -> Vec<Link> {
        (1..=hosts).map(|host| ordered(host, host % hosts + 1)).collect()
    }

    fn lines(me: u16, links: &[Link], seen: &[Link], width: usize, unicode: bool) -> Vec<String> {
        let links = links.iter().map(|(one, other)| (HostId(*one), HostId(*other))).collect();
        let status = Status { host: HostId(me), links, ..Status::default() };
        Picture::new(&status, &seen.iter().copied().collect()).lines(width, unicode)
    }

    #[test]
    fn picture_of_a_ring_is_a_ring() {
        assert_eq!(lines(1, &ring(5), &[], 80, true), ["┌─ [h1] ── h2 ── h3 ─┐", "└─ h5 ── h4 ─────────┘"]);
        assert_eq!(lines(3, &ring(3), &[], 80, false), ["+- h1 -- h2 -+", "+- [h3] -----+"]);
    }

    #[test]
    fn picture_draws_a_link_seen_before_as_lost() {
        let all = ring(4);
        let whole = |gone: Link| all.iter().copied().filter(|link| *link != gone).collect::<Vec<_>>();
        assert_eq!(lines(1, &whole((1, 2)), &all, 80, true), ["┌─ [h1] ╳╳ h2 ─┐", "└─ h4 ── h3 ───┘"]);
        assert_eq!(lines(1, &whole((1, 4)), &all, 80, true), ["┌╳ [h1] ── h2 ─┐", "└╳ h4 ── h3 ───┘"]);
        assert_eq!(lines(1, &whole((1, 2)), &[], 80, true), ["[h1] ── h4 ── h3 ── h2"], "nobody knows of it");
    }

    #[test]
    fn picture_of_a_chain_or_pair_is_a_row() {
        assert_eq!(lines(2, &[(1, 2), (2, 3)], &[], 80, true), ["h1 ── [h2] ── h3"]);
        assert_eq!(lines(1, &[(1, 2)], &[], 80, false), ["[h1] -- h2"]);
        assert!(lines(1, &[], &[], 80, true).is_empty());
    }

    #[test]
    fn picture_shows_what_the_cables_of_this_host_carry() {
        let links = ring(4).iter().map(|(one, other)| (HostId(*one), HostId(*other))).collect();
        let status = Status { host: HostId(1), links, ..Status::default() };
        let loads = [(2, "9.8G/2M".to_owned()), (4, "0/12k".to_owned()), (3, "no cable".to_owned())];
        let picture = Picture::new(&status, &BTreeSet::new()).with_loads(loads.clone());
        let ring = ["┌─ [h1] ─9.8G/2M─ h2 ─┐", "│ 0/12k               │", "└─ h4 ── h3 ──────────┘"];
        assert_eq!(picture.lines(80, true), ring);
        assert_eq!(picture.lines(20, false).first().map(String::as_str), Some("[h1] -9.8G/2M- h2"));
        assert!(picture.rows(80, true)[0].contains(&(Part::Load, "9.8G/2M".to_owned())));
        let torus = [(1, 2), (1, 3), (1, 4), (2, 3)].map(|(one, other)| (HostId(one), HostId(other)));
        let status = Status { host: HostId(1), links: torus.into(), ..Status::default() };
        let picture = Picture::new(&status, &BTreeSet::new()).with_loads(loads);
        assert_eq!(picture.lines(80, true)[0], "[h1]  h2 9.8G/2M h3 no cable h4 0/12k");
    }

    #[test]
    fn picture_wraps_a_large_ring_in_a_narrow_terminal() {
        let text = lines(1, &ring(64), &[], 40, true);
        assert!(text.len() > 5 && text.iter().all(|line| line.chars().count() <= 40), "{text:#?}");
        assert!(text[0].starts_with("[h1] ── h2") && text.last().unwrap().ends_with("h64 ── [h1]"));
    }

    #[test]
    fn picture_of_other_networks_is_a_list() {
        let torus = [(1, 2), (1, 3), (1, 4), (2, 3)];
        let text = lines(1, &torus, &[(3, 4)], 80, true);
        assert_eq!(text, ["[h1]  h2 h3 h4", "h2    h1 h3", "h3    h1 h2 (h4)", "h4    h1 (h3)"]);
        assert_eq!(lines(9, &[(1, 2)], &[], 80, true), ["h1    h2", "h2    h1", "[h9]"], "cut off");
    }
}
