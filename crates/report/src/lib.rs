//! Results as one HTML page that needs nothing else: plots as SVG, a table under each, the surroundings, and sentences that say what
//! each plot shows. [`chart`] makes charts of a result's figures, [`draw`] draws them, [`page`] has the page.
#![forbid(unsafe_code)]

mod case;
pub mod chart;
pub mod draw;
pub mod page;
pub mod plot;
mod sentence;
