//! end
pub struct End; pub struct Failure; pub struct Shared;
