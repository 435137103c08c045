//! What a chart is made of: what is drawn, the words and the table that say the same.

/// A plot with the words and the table that say the same.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// Its heading.
    pub title: String,
    /// What it shows, in plain sentences.
    pub says: String,
    /// What is drawn; nothing where there is only a table.
    pub plot: Option<Plot>,
    /// The same numbers: names of columns first.
    pub table: Vec<Vec<String>>,
}

/// What is drawn.
#[derive(Clone, Debug, PartialEq)]
pub enum Plot {
    /// Lines over an axis.
    Lines(Lines),
    /// Bars, one group a row.
    Bars(Bars),
    /// Hosts and their cables.
    Hosts(Hosts),
}

/// Lines over an axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Lines {
    /// What stands below the axis.
    pub below: String,
    /// What stands beside the other one.
    pub beside: String,
    /// Marks of the horizontal axis, with their names.
    pub marks: Vec<(f64, String)>,
    /// Whether places are drawn by their logarithms.
    pub logarithmic: bool,
    /// Whether values are.
    pub logarithmic_values: bool,
    /// The lines.
    pub series: Vec<Series>,
}

/// One line.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Its name.
    pub name: String,
    /// It is a limit or another program: drawn dashed.
    pub reference: bool,
    /// Points, by place.
    pub points: Vec<(f64, f64)>,
}

/// Rows of bars.
#[derive(Clone, Debug, PartialEq)]
pub struct Bars {
    /// Unit of the bars.
    pub unit: String,
    /// Names of the bars of a row.
    pub series: Vec<String>,
    /// Each row's name and values.
    pub rows: Vec<(String, Vec<Option<f64>>)>,
    /// A line at this value, with its name: where two are equal.
    pub line: Option<(f64, String)>,
    /// Whether values are drawn by their logarithms.
    pub logarithmic: bool,
}

/// Hosts and their cables.
#[derive(Clone, Debug, PartialEq)]
pub struct Hosts {
    /// Hosts, counted from 1.
    pub hosts: u16,
    /// Pairs of hosts that a cable joins.
    pub cables: Vec<(u16, u16)>,
}
