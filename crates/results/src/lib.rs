//! Results of measurements: what a run reports ([`report`], [`figure`]), its forms ([`export`]), its file ([`read`]), and what two
//! of them differ by ([`compare`]). Nothing here measures.
#![forbid(unsafe_code)]

pub mod compare;
pub mod export;
pub mod figure;
pub mod machine;
pub mod read;
pub mod report;
pub mod sample;
pub mod steal;
pub mod unit;
