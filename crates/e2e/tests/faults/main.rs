//! Faults: whoever dies, lies or is not there, the others go on, and everything comes back.

mod absence;
mod announced;
mod beside;
mod cable;
mod daemon;
mod death;
mod leak;
mod ring;
mod rubbish;
mod striped;
