//! Unmodified programs between hosts, and inside one: their bytes are compared, and the daemons' counters say that
//! streams carried them.

mod database;
mod ip;
mod performance;
mod python;
mod servers;
mod shell;
mod stack;
mod tools;
mod web;
