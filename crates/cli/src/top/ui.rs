//! What the keys have changed: table, order, filter, search, selection, tags.

use super::columns::Tab;
use super::key::Key;
use super::rows::{self, Row};
use super::state::State;
use std::collections::BTreeSet;
use std::time::Duration;

/// The times between refreshes that `+` and `-` choose from, ms.
const DELAYS_MS: [u64; 9] = [100, 200, 500, 1000, 2000, 5000, 10_000, 30_000, 60_000];
/// Longest text to search or filter by, characters.
const LONGEST: usize = 60;

/// What the keys mean just now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// As the footer says.
    Table,
    /// The page of keys is shown, from this line on.
    Help(usize),
    /// A column to sort by is chosen: this one is marked.
    Sort(usize),
    /// A text to search for is typed.
    Search,
    /// A text to filter by is typed.
    Filter,
}

/// How a table is sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    /// Its column.
    pub(crate) column: usize,
    /// Whether it is the other way round.
    pub(crate) inverted: bool,
}

/// What keys have changed in one table.
#[derive(Clone, Debug)]
pub(crate) struct View {
    /// How it is sorted.
    pub(crate) order: Order,
    /// Which rows are shown: those that have this.
    pub(crate) filter: String,
    /// The selected row; none: the first one.
    selected: Option<u64>,
    /// Tagged rows.
    pub(crate) tagged: BTreeSet<u64>,
    /// The first row on the screen.
    pub(crate) offset: usize,
}

/// What the keys have changed.
#[derive(Clone, Debug)]
pub(crate) struct Ui {
    /// The table that is shown.
    pub(crate) tab: Tab,
    /// What the keys mean.
    pub(crate) mode: Mode,
    /// What is searched for.
    pub(crate) search: String,
    /// Whether nothing is refreshed.
    pub(crate) paused: bool,
    /// Time between refreshes.
    pub(crate) delay: Duration,
    /// Why what is shown is old, if it is.
    pub(crate) trouble: Option<String>,
    views: [View; 4],
}

/// What is to be done beyond drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// Nothing.
    Nothing,
    /// The program ends.
    Quit,
    /// The whole screen is drawn anew.
    Redraw,
    /// The round trips are forgotten.
    Clear,
}

impl Ui {
    /// At first.
    pub(crate) fn new(delay: Duration) -> Self {
        let view = |tab: Tab| View {
            order: Order { column: tab.first_order(), inverted: false },
            filter: String::new(),
            selected: None,
            tagged: BTreeSet::new(),
            offset: 0,
        };
        Self {
            tab: Tab::Streams,
            mode: Mode::Table,
            search: String::new(),
            paused: false,
            delay,
            trouble: None,
            views: Tab::ALL.map(view),
        }
    }

    /// What concerns the table that is shown.
    pub(crate) fn view(&self) -> &View {
        &self.views[self.tab.index()]
    }

    fn view_mut(&mut self) -> &mut View {
        &mut self.views[self.tab.index()]
    }

    /// The rows of the table that is shown, filtered and sorted.
    pub(crate) fn rows(&self, state: &State) -> Vec<Row> {
        let view = self.view();
        let mut rows = rows::rows(self.tab, state);
        rows.retain(|row| row.has(&view.filter));
        rows::sort(&mut rows, self.tab, view.order.column, view.order.inverted);
        rows
    }

    /// The place of the selected row; that of the first one, if it is gone.
    pub(crate) fn selected(&self, rows: &[Row]) -> usize {
        let selected = self.view().selected;
        selected.and_then(|key| rows.iter().position(|row| row.key == key)).unwrap_or(0)
    }

    /// Moves the part of the table that is on the screen so that the selected row is in it. `page` is how many rows fit.
    pub(crate) fn settle(&mut self, rows: &[Row], page: usize) {
        let at = self.selected(rows);
        let view = self.view_mut();
        if view.selected.is_some_and(|key| rows.get(at).is_none_or(|row| row.key != key)) {
            view.selected = None;
        }
        let last = rows.len().saturating_sub(page.max(1));
        view.offset = view.offset.clamp((at + 1).saturating_sub(page.max(1)), at).min(last);
        view.tagged.retain(|key| rows.iter().any(|row| row.key == *key));
    }

    /// Takes in a key. `rows` are those of the table that is shown, `page` how many of them fit on the screen.
    pub(crate) fn key(&mut self, key: Key, rows: &[Row], page: usize) -> Act {
        match key {
            Key::Ctrl('c') | Key::F(10) => return Act::Quit,
            Key::Ctrl('l') => return Act::Redraw,
            _ => {}
        }
        match self.mode {
            Mode::Table => return self.table_key(key, rows, page),
            Mode::Help(at) => self.help_key(key, at),
            Mode::Sort(at) => self.sort_key(key, at),
            Mode::Search => self.search_key(key, rows),
            Mode::Filter => self.filter_key(key),
        }
        Act::Nothing
    }

    fn table_key(&mut self, key: Key, rows: &[Row], page: usize) -> Act {
        let at = self.selected(rows);
        let far = page.max(2) - 1;
        match key {
            Key::Char('q') => return Act::Quit,
            Key::Char('z') => return Act::Clear,
            Key::F(1) | Key::Char('h' | '?') => self.mode = Mode::Help(0),
            Key::F(3) | Key::Char('/') => {
                self.search.clear();
                self.mode = Mode::Search;
            }
            Key::F(4) | Key::Char('\\') => self.mode = Mode::Filter,
            Key::F(6) | Key::Char('<' | '>' | ',' | '.') => self.mode = Mode::Sort(self.view().order.column),
            Key::Char('I') => self.view_mut().order.inverted ^= true,
            Key::Char('P') => self.order_by(&["LOAD/s", "OUT/s", "p50"]),
            Key::Char('M') => self.order_by(&["MOVED", "SENT"]),
            Key::Char('T') => self.order_by(&["AGE", "AGO"]),
            Key::Char('N') => self.order_by(&["PID", "PEER", "HOST"]),
            Key::Up => self.select(rows, at.saturating_sub(1)),
            Key::Down => self.select(rows, at + 1),
            Key::PageUp => self.select(rows, at.saturating_sub(far)),
            Key::PageDown => self.select(rows, at + far),
            Key::Home => self.view_mut().selected = None,
            Key::End => self.select(rows, usize::MAX),
            Key::Char(' ') => self.tag(rows, at),
            Key::Char('U') => self.view_mut().tagged.clear(),
            Key::Char('p' | 'Z') => self.paused ^= true,
            Key::Char('+' | '=') => self.delay = longer(self.delay),
            Key::Char('-') => self.delay = shorter(self.delay),
            Key::Tab => self.tab = self.tab.turn(1),
            Key::BackTab => self.tab = self.tab.turn(Tab::ALL.len() - 1),
            Key::Esc => self.view_mut().filter.clear(),
            _ => {}
        }
        Act::Nothing
    }

    /// Arrows move the page; any other key ends it.
    fn help_key(&mut self, key: Key, at: usize) {
        self.mode = match key {
            Key::Down | Key::PageDown => Mode::Help((at + 1).min(super::help::LINES.len() - 1)),
            Key::Up | Key::PageUp => Mode::Help(at.saturating_sub(1)),
            _ => Mode::Table,
        };
    }

    /// Sorts by the first of these columns that the table has.
    fn order_by(&mut self, titles: &[&str]) {
        let columns = self.tab.columns();
        let has = |title: &&str| columns.iter().position(|column| column.title == *title);
        if let Some(column) = titles.iter().find_map(has) {
            self.view_mut().order = Order { column, inverted: false };
        }
    }

    fn select(&mut self, rows: &[Row], at: usize) {
        let row = rows.get(at.min(rows.len().saturating_sub(1)));
        self.view_mut().selected = row.map(|row| row.key);
    }

    fn tag(&mut self, rows: &[Row], at: usize) {
        let Some(row) = rows.get(at) else { return };
        let tagged = &mut self.view_mut().tagged;
        if !tagged.remove(&row.key) {
            tagged.insert(row.key);
        }
        self.select(rows, at + 1);
    }

    fn sort_key(&mut self, key: Key, at: usize) {
        let last = self.tab.columns().len() - 1;
        self.mode = match key {
            Key::Up => Mode::Sort(at.saturating_sub(1)),
            Key::Down => Mode::Sort((at + 1).min(last)),
            Key::Home | Key::PageUp => Mode::Sort(0),
            Key::End | Key::PageDown => Mode::Sort(last),
            Key::Enter | Key::Char(' ') => {
                self.view_mut().order = Order { column: at, inverted: false };
                Mode::Table
            }
            Key::Esc | Key::Char('q') | Key::F(6) => Mode::Table,
            _ => Mode::Sort(at),
        };
    }

    fn search_key(&mut self, key: Key, rows: &[Row]) {
        let at = self.selected(rows);
        match key {
            Key::Enter | Key::Esc => self.mode = Mode::Table,
            Key::F(3) | Key::Down => self.find(rows, at + 1),
            _ if edit(&mut self.search, key) => self.find(rows, at),
            _ => {}
        }
    }

    /// Selects the first row from `from` on, round and round, that has the text searched for.
    fn find(&mut self, rows: &[Row], from: usize) {
        if self.search.is_empty() {
            return;
        }
        let order = (0..rows.len()).map(|step| (from + step) % rows.len());
        if let Some(at) = order.into_iter().find(|at| rows[*at].has(&self.search)) {
            self.select(rows, at);
        }
    }

    fn filter_key(&mut self, key: Key) {
        match key {
            Key::Enter | Key::F(4) => self.mode = Mode::Table,
            Key::Esc => {
                self.view_mut().filter.clear();
                self.mode = Mode::Table;
            }
            key => {
                edit(&mut self.view_mut().filter, key);
            }
        }
    }
}

/// Types into a text; whether it was changed.
fn edit(text: &mut String, key: Key) -> bool {
    match key {
        Key::Backspace => text.pop().is_some(),
        Key::Ctrl('u') => {
            text.clear();
            true
        }
        Key::Char(c) if text.chars().count() < LONGEST => {
            text.push(c);
            true
        }
        _ => false,
    }
}

fn longer(delay: Duration) -> Duration {
    let all = DELAYS_MS.map(Duration::from_millis);
    all.into_iter().find(|it| *it > delay).unwrap_or(delay)
}

fn shorter(delay: Duration) -> Duration {
    let all = DELAYS_MS.map(Duration::from_millis);
    all.into_iter().rev().find(|it| *it < delay).unwrap_or(delay)
}
