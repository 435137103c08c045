//! Streams whose circuit changes under them: no byte is lost, none comes twice, and lies end the stream.

mod answers;
mod asking;
mod busy;
mod forged;
mod hammer;
mod lies;
mod offers;
mod pieces;
mod rig;
mod sharer;
mod still;
mod traffic;
mod words;
mod zcopy;
