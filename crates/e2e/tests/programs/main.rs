//! Unmodified programs between hosts, and inside one: their bytes are compared, and the daemons' counters say that
//! streams carried them.

mod containers;
mod database;
mod ip;
mod messaging;
mod mpi;
mod own_calls;
mod performance;
mod ports;
mod proxy;
mod python;
mod rpc;
mod servers;
mod shell;
mod stack;
mod storage;
mod tools;
mod uvloop;
mod web;
