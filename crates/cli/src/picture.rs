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

/// The characters of lines.
struct Strokes {
    line: char,
    lost: char,
    /// Upper left, upper right, lower left, lower right.
    corners: [char; 4],
}

const UNICODE: Strokes = Strokes { line: '─', lost: '╳', corners: ['┌', '┐', '└', '┘'] };
const ASCII: Strokes = Strokes { line: '-', lost: 'x', corners: ['+', '+', '+', '+'] };

/// The network to draw.
#[derive(Debug)]
pub(crate) struct Picture {
    me: u16,
    hosts: BTreeSet<u16>,
    links: BTreeSet<Link>,
    lost: BTreeSet<Link>,
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
        Self { me, hosts, links, lost }
    }

    /// Its lines, none longer than `width` characters as far as names allow; nothing for a host that is alone.
    pub(crate) fn lines(&self, width: usize, unicode: bool) -> Vec<String> {
        let strokes = if unicode { &UNICODE } else { &ASCII };
        if self.hosts.len() < 2 {
            return Vec::new();
        }
        match self.round() {
            Some((order, closed)) if closed => self
                .ring(&order, strokes)
                .filter(|lines| lines.iter().all(|line| line.chars().count() <= width))
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

    /// Two rows with rounded ends, if there are enough hosts for that.
    fn ring(&self, order: &[u16], strokes: &Strokes) -> Option<Vec<String>> {
        let (top, bottom) = order.split_at(order.len().div_ceil(2));
        let bottom: Vec<u16> = bottom.iter().rev().copied().collect();
        let (first, last) = ((*top.first()?, *top.last()?), (*bottom.first()?, *bottom.last()?));
        let (left, right) = (self.stroke(first.0, last.0, strokes), self.stroke(first.1, last.1, strokes));
        let rows = [&top.to_vec(), &bottom].map(|row| self.row(row, strokes));
        let width = rows.iter().map(|row| row.chars().count()).max()?;
        let whole = |row: &str, corners: [char; 2]| {
            let gap: String = [strokes.line].repeat(width - row.chars().count()).iter().collect();
            format!("{}{left} {row} {gap}{right}{}", corners[0], corners[1])
        };
        let [a, b, c, d] = strokes.corners;
        Some(vec![whole(&rows[0], [a, b]), whole(&rows[1], [c, d])])
    }

    fn row(&self, hosts: &[u16], strokes: &Strokes) -> String {
        let mut text = hosts.first().map(|host| self.name(*host)).unwrap_or_default();
        for pair in hosts.windows(2) {
            let stroke = self.stroke(pair[0], pair[1], strokes);
            text.push_str(&format!(" {stroke}{stroke} {}", self.name(pair[1])));
        }
        text
    }

    /// One host after the other, wrapped into lines; a closed chain names its first host again.
    fn chain(&self, order: &[u16], closed: bool, width: usize, strokes: &Strokes) -> Vec<String> {
        let mut lines = vec![self.name(order[0])];
        let again = if closed { order.first() } else { None };
        let pairs = order.iter().zip(order[1..].iter().chain(again));
        for (from, to) in pairs {
            let stroke = self.stroke(*from, *to, strokes);
            let part = format!("{stroke}{stroke} {}", self.name(*to));
            match lines.last_mut() {
                Some(line) if line.chars().count() + 1 + part.chars().count() <= width => {
                    line.push(' ');
                    line.push_str(&part);
                }
                _ => lines.push(format!("  {part}")),
            }
        }
        lines
    }

    /// Each host with its neighbours; lost ones in brackets.
    fn list(&self, width: usize) -> Vec<String> {
        let all = self.neighbours();
        let column = self.hosts.iter().map(|host| self.name(*host).chars().count()).max().unwrap_or(0);
        let line = |host: &u16| {
            let near = all.get(host).into_iter().flatten().map(|other| {
                let lost = self.lost.contains(&ordered(*host, *other));
                if lost { format!("(h{other})") } else { format!("h{other}") }
            });
            let near: Vec<String> = near.collect();
            let text = format!("{:<column$}  {}", self.name(*host), near.join(" "));
            text.trim_end().chars().take(width).collect()
        };
        self.hosts.iter().map(line).collect()
    }

    fn name(&self, host: u16) -> String {
        if host == self.me { format!("[h{host}]") } else { format!("h{host}") }
    }

    fn stroke(&self, one: u16, other: u16, strokes: &Strokes) -> char {
        if self.links.contains(&ordered(one, other)) { strokes.line } else { strokes.lost }
    }
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
