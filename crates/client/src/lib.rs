//! What programs link to: sessions with the daemon, streams on mapped slices
