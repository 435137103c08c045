//! The forms of a report: those of [`crosslane_results`].

pub use crosslane_results::export::{
    columns, distinct, heading, json, markdown, markdown_columns, notes, number, or_dash, summary, table,
    two, warnings, whole,
};
